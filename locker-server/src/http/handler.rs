//! From an HTTP request to its response.
//!
//! There are no routes: [`api`](crate::api) parses the paths of calls, because ZeroMQ needs the same parser.

use super::{
    access::AccessPolicy,
    response::{Response, response},
    stream::Client,
    unread::UnreadCap,
};
use crate::{
    api::{Answer, CallKind, Method, ParsedCall, openapi},
    log_throttle::LogEvent,
    metrics::Transport,
    server::{Request as CallRequest, Server},
};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request,
    body::{Body, Incoming},
    header::CONTENT_TYPE,
};
use std::{pin::pin, sync::Arc, time::Duration};

/// The size limit of forms.
const MAX_BODY: usize = 8 * 1024;

const INCOMPLETE: &str = "the body is incomplete";

/// The path at which bouncer says that it is ready.
const BOUNCER_READY: &str = "/.well-known/ready";

/// Answers the requests of all connections.
#[derive(Debug)]
pub(crate) struct Handler {
    server: Arc<Server>,
    access: AccessPolicy,
    header_size: usize,
    header_timeout: Duration,
    unread: Arc<UnreadCap>,
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
        Self { server, access, header_size, header_timeout, unread: Arc::new(UnreadCap::new(max_unread)) }
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

    pub(super) fn unread(&self) -> &Arc<UnreadCap> {
        &self.unread
    }

    /// Counts the answer before others can be made.
    fn respond(&self, answer: Answer) -> Response {
        match self.unread.count(&answer) {
            Ok(unread) => response(answer, unread),
            Err(refusal) => {
                if self.server.log_throttle.is_due(LogEvent::UnreadAnswers) {
                    tracing::warn!("--max-unread-bytes is reached: long answers are replaced by 503");
                }
                response(refusal, None)
            }
        }
    }

    /// Answers a request: `None` if its client has disconnected from a call that waits.
    pub(super) async fn answer(&self, client: &Client, request: Request<Incoming>) -> Option<Response> {
        let answer = match self.check(client, &request) {
            Ok(None) => self.call(client, request).await?,
            Ok(Some(page)) => {
                let is_get = request.method() == hyper::Method::GET;
                // Then the HTTP library says that it closes the connection if a body is unread.
                drop(request);
                self.page(page, is_get).await
            }
            Err(refusal) => self.refused(&request, refusal),
        };
        Some(self.respond(answer))
    }

    /// Returns the page that the request asks for, or `None` if it is a call.
    fn check(&self, client: &Client, request: &Request<Incoming>) -> Result<Option<Page>, Answer> {
        self.access.check_origin(request, client.local())?;
        let page = Page::at(request.uri().path());
        if page.is_none_or(Page::needs_token) {
            self.access.check_token(request.headers())?;
        }
        Ok(page)
    }

    async fn page(&self, page: Page, is_get: bool) -> Answer {
        // It may be long, and the HTTP library serves pipelined requests without a pause.
        tokio::task::yield_now().await;
        if !is_get {
            return Answer::wrong_method("GET");
        }
        match page {
            Page::Metrics => Answer::text(self.server.render_metrics()),
            Page::Health => Answer::text("ok"),
            Page::Ready(text) => self.server.service.ready(text).await,
            Page::OpenApi => {
                openapi::document().map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json)
            }
        }
    }

    async fn call(&self, client: &Client, request: Request<Incoming>) -> Option<Answer> {
        if request.method() == hyper::Method::GET {
            // As a page.
            tokio::task::yield_now().await;
        }
        match self.parse(request).await {
            Ok(parsed) => {
                let gone = pin!(client.disconnected());
                self.server.answer(Transport::Http, &parsed, gone, None).await
            }
            Err(answer) => Some(answer),
        }
    }

    /// Parses the request. `Err` contains the answer if there is nothing to carry out.
    async fn parse(&self, mut request: Request<Incoming>) -> Result<ParsedCall, Answer> {
        let form = match *request.method() {
            hyper::Method::POST => self.form(&mut request).await,
            // Ignored.
            _ => Ok(String::new()),
        };
        let form = form.map_err(|answer| self.refused(&request, answer))?;
        let query = request.uri().query().unwrap_or_default();
        let (transport, method, path) = (Transport::Http, method(request.method()), request.uri().path());
        self.server.parse(CallRequest { transport, method, path, query, form: &form })
    }

    /// Counts the answer to a request that was refused before it was parsed as a call.
    fn refused(&self, request: &Request<Incoming>, answer: Answer) -> Answer {
        let kind = CallKind::of(method(request.method()), request.uri().path());
        self.server.metrics.answered(Transport::Http, kind, &answer);
        answer
    }

    /// Returns the form in the body.
    async fn form(&self, request: &mut Request<Incoming>) -> Result<String, Answer> {
        if request.body().is_end_stream() {
            return Ok(String::new());
        }
        let read = tokio::time::timeout(self.header_timeout, self.read(request.body_mut())).await;
        let form = read.unwrap_or_else(|_| {
            Err(Answer::bad_request("the body did not arrive within --header-timeout"))
        })?;
        if !form.is_empty() && !is_form(request.headers()) {
            return Err(Answer::wrong_type());
        }
        String::from_utf8(form).map_err(|_| Answer::bad_request("the body is not UTF-8"))
    }

    /// Copies the body, so that the buffers of the HTTP library are free again.
    async fn read(&self, body: &mut Incoming) -> Result<Vec<u8>, Answer> {
        let (mut read, announced) = (Vec::new(), body.size_hint().lower());
        if announced > MAX_BODY as u64 {
            return Err(Answer::too_large(MAX_BODY));
        }
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                let ends = self.server.shutdown.is_cancelled();
                return Err(if ends { Answer::shutting_down() } else { Answer::bad_request(INCOMPLETE) });
            };
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if read.len() > MAX_BODY {
                return Err(Answer::too_large(MAX_BODY));
            }
        }
        Ok(read)
    }
}

/// A page about the server itself. All other paths are those of calls.
#[derive(Clone, Copy, Debug)]
enum Page {
    Health,
    /// Contains what it says.
    Ready(&'static str),
    OpenApi,
    Metrics,
}

impl Page {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/healthz" => Some(Self::Health),
            "/readyz" => Some(Self::Ready("ready")),
            BOUNCER_READY => Some(Self::Ready("I'm ready!\n")),
            "/openapi.json" => Some(Self::OpenApi),
            "/metrics" => Some(Self::Metrics),
            _ => None,
        }
    }

    fn needs_token(self) -> bool {
        matches!(self, Self::Metrics)
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let given = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
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
