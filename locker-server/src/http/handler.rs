//! From an HTTP request to its response.
//!
//! There is no router: [`api`](crate::api) parses the paths, because ZeroMQ needs the same parser, and because `HEAD`
//! must be answered 405, while routers answer it themselves.

use super::{
    access::AccessPolicy,
    conn_state::{ClientGone, ConnState},
    response::{HttpResponse, response},
    unread::{AnswerBody, UnreadAnswers},
};
use crate::{
    api::{Answer, CallKind, Method, ParsedCall, openapi},
    log_throttle::LogEvent,
    metrics::Transport,
    server::{Request, Server},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{
    body::Incoming,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    http::request::Parts,
};
use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

/// The size limit of forms.
const MAX_BODY: usize = 8 * 1024;

/// The path at which bouncer says that it is ready.
const BOUNCER_READY: &str = "/.well-known/ready";

/// Answers the requests of all connections.
#[derive(Debug)]
pub(crate) struct Handler {
    server: Arc<Server>,
    access: AccessPolicy,
    header_size: usize,
    header_timeout: Duration,
    unread: Arc<UnreadAnswers>,
}

impl Handler {
    /// `header_size` limits the request line with its headers, in bytes. `header_timeout` limits how long a request
    /// takes to arrive; idle connections are closed after it. `max_unread` limits the bytes of long answers that are
    /// unread.
    pub(crate) fn new(
        server: Arc<Server>,
        access: AccessPolicy,
        header_size: usize,
        header_timeout: Duration,
        max_unread: usize,
    ) -> Self {
        Self { server, access, header_size, header_timeout, unread: UnreadAnswers::new(max_unread) }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) fn header_size(&self) -> usize {
        self.header_size
    }

    pub(super) fn header_timeout(&self) -> Duration {
        self.header_timeout
    }

    pub(super) async fn respond(
        &self,
        request: hyper::Request<Incoming>,
        state: &ConnState,
    ) -> Result<HttpResponse, ClientGone> {
        let answer = match state.take_answer() {
            Some(answer) => answer,
            None => self.answer(request, state).await?,
        };
        Ok(response(answer, |body| self.body(body, state)))
    }

    /// Returns the body of an answer, or `None` if clients leave too much unread.
    fn body(&self, body: Bytes, state: &ConnState) -> Option<AnswerBody> {
        let admitted = self.unread.body(body, &state.stream);
        if admitted.is_none() && self.server.log_throttle.is_due(LogEvent::UnreadAnswers) {
            tracing::warn!("--max-unread-bytes is reached: long answers are replaced by 503");
        }
        admitted
    }

    async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        state: &ConnState,
    ) -> Result<Answer, ClientGone> {
        let (head, body) = request.into_parts();
        let parsed = self.parse(&head, body, state.local).await;
        // For every request: otherwise a body that arrives later would count as part of the next request.
        let alone = state.stream.is_drained(body_length(&head));
        match parsed {
            Ok(parsed) => {
                let (server, stream) = (self.server.clone(), state.stream.clone());
                let work = async move {
                    server.answer(Transport::Http, &parsed, pin!(stream.closed_by_peer()), None).await
                };
                state.wait_for(Box::pin(work), &head, alone).await
            }
            Err(answer) => Ok(answer),
        }
    }

    /// Checks access and parses the request. `Err` contains the answer if there is nothing to carry out.
    async fn parse(&self, head: &Parts, body: Incoming, local: IpAddr) -> Result<ParsedCall, Answer> {
        self.access.check_origin(head, local).map_err(|answer| self.refused(head, answer))?;
        let path = head.uri.path();
        if let "/healthz" | "/readyz" | BOUNCER_READY | "/openapi.json" = path {
            return Err(self.about_server(&head.method, path).await);
        }
        self.access.check_token(&head.headers).map_err(|answer| self.refused(head, answer))?;
        if path == "/metrics" {
            return Err(self.about_server(&head.method, path).await);
        }
        let form = self.form(head, body).await.map_err(|answer| self.refused(head, answer))?;
        let Ok(form) = std::str::from_utf8(&form) else {
            return Err(self.refused(head, Answer::bad_request("the body is not UTF-8")));
        };
        let query = head.uri.query().unwrap_or_default();
        let (transport, method) = (Transport::Http, method(&head.method));
        self.server.parse(Request { transport, method, path, query, form })
    }

    /// Counts the answer to a request that was refused before it was parsed as a call.
    fn refused(&self, head: &Parts, answer: Answer) -> Answer {
        let kind = CallKind::of(method(&head.method), head.uri.path());
        self.server.metrics.answered(Transport::Http, kind, &answer);
        answer
    }

    /// Answers requests about the server itself.
    async fn about_server(&self, method: &hyper::Method, path: &str) -> Answer {
        if method != hyper::Method::GET {
            return Answer::wrong_method("GET");
        }
        match path {
            "/healthz" => Answer::text("ok"),
            "/readyz" => self.server.service.ready("ready").await,
            BOUNCER_READY => self.server.service.ready("I'm ready!\n").await,
            "/metrics" => Answer::text(self.server.render_metrics()),
            _ => {
                openapi::document().map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json)
            }
        }
    }

    async fn form(&self, head: &Parts, body: Incoming) -> Result<Bytes, Answer> {
        use hyper::body::Body;
        if head.method != hyper::Method::POST || body.is_end_stream() {
            return Ok(Bytes::new());
        }
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Err(Answer::too_large(MAX_BODY));
        }
        let collected = Limited::new(body, MAX_BODY).collect();
        match tokio::time::timeout(self.header_timeout, collected).await {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                if body.is_empty() || is_form(head) { Ok(body) } else { Err(Answer::wrong_type()) }
            }
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Answer::too_large(MAX_BODY))
            }
            Ok(Err(_)) => Err(Answer::bad_request("the body is incomplete")),
            Err(_) => Err(Answer::bad_request("the body did not arrive within --header-timeout")),
        }
    }
}

/// Returns the length of the body as sent. If the head does not state it, returns a length that no body has.
fn body_length(head: &Parts) -> usize {
    match (head.headers.get(CONTENT_LENGTH), head.headers.contains_key(TRANSFER_ENCODING)) {
        (Some(length), false) => {
            length.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
        }
        (None, false) => 0,
        _ => usize::MAX,
    }
}

fn is_form(head: &Parts) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let given = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = given.split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(FORM)
}

fn method(method: &hyper::Method) -> Method {
    match *method {
        hyper::Method::GET => Method::Get,
        hyper::Method::POST => Method::Post,
        hyper::Method::DELETE => Method::Delete,
        _ => Method::Other,
    }
}
