//! From an HTTP request to its response.
//!
//! The paths of calls have no routes: [`api`](crate::api) parses them, because ZeroMQ needs the same parser.

use super::{access::AccessPolicy, response::response, stream::Client, unread::UnreadCap};
use crate::{
    api::{Answer, CallKind, Method, ParsedCall, openapi},
    log_throttle::LogEvent,
    metrics::Transport,
    server::{Request as CallRequest, Server},
};
use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{MethodRouter, get},
};
use http_body_util::BodyExt;
use hyper::{header::CONTENT_TYPE, http::request::Parts};
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

    /// Parses the request. `Err` contains the answer if there is nothing to carry out.
    async fn parse(&self, request: Request) -> Result<ParsedCall, Answer> {
        let (head, body) = request.into_parts();
        let form = self.form(&head, body).await.map_err(|answer| self.refused(&head, answer))?;
        let query = head.uri.query().unwrap_or_default();
        let (transport, method, path) = (Transport::Http, method(&head.method), head.uri.path());
        self.server.parse(CallRequest { transport, method, path, query, form: &form })
    }

    /// Counts the answer to a request that was refused before it was parsed as a call.
    fn refused(&self, head: &Parts, answer: Answer) -> Answer {
        let kind = CallKind::of(method(&head.method), head.uri.path());
        self.server.metrics.answered(Transport::Http, kind, &answer);
        answer
    }

    /// Returns the form in the body. Bodies of other methods than `POST` are ignored.
    async fn form(&self, head: &Parts, body: Body) -> Result<String, Answer> {
        if head.method != hyper::Method::POST {
            return Ok(String::new());
        }
        let read = tokio::time::timeout(self.header_timeout, self.read(body)).await;
        let form = read.unwrap_or_else(|_| {
            Err(Answer::bad_request("the body did not arrive within --header-timeout"))
        })?;
        if !form.is_empty() && !is_form(head) {
            return Err(Answer::wrong_type());
        }
        String::from_utf8(form).map_err(|_| Answer::bad_request("the body is not UTF-8"))
    }

    /// Copies the body, so that the buffers of the HTTP library are free again.
    async fn read(&self, mut body: Body) -> Result<Vec<u8>, Answer> {
        let (mut read, announced) = (Vec::new(), hyper::body::Body::size_hint(&body).lower());
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

/// Returns the routes. The check of a layer applies to the routes before it.
pub(super) fn router(handler: &Arc<Handler>) -> Router {
    let ready =
        |text| page(move |handler: Arc<Handler>| async move { handler.server.service.ready(text).await });
    Router::new()
        .route("/metrics", page(async |handler| Answer::text(handler.server.render_metrics())))
        .fallback(call)
        .layer(from_fn_with_state(handler.clone(), check_token))
        .route("/healthz", page(async |_| Answer::text("ok")))
        .route("/readyz", ready("ready"))
        .route(BOUNCER_READY, ready("I'm ready!\n"))
        .route("/openapi.json", page(async |_| openapi_document()))
        .layer(from_fn_with_state(handler.clone(), check_origin))
        .with_state(handler.clone())
}

type HandlerState = State<Arc<Handler>>;

/// Returns a page about the server itself. `HEAD` is refused like all methods but `GET`.
fn page<F>(answer: impl Fn(Arc<Handler>) -> F + Clone + Send + Sync + 'static) -> MethodRouter<Arc<Handler>>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let page = async move |State(handler): HandlerState| {
        tokio::task::yield_now().await;
        handler.respond(answer(handler.clone()).await)
    };
    get(page).head(wrong_method).fallback(wrong_method)
}

async fn wrong_method() -> Response {
    response(Answer::wrong_method("GET"), None)
}

fn openapi_document() -> Answer {
    openapi::document().map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json)
}

async fn check_origin(
    State(handler): HandlerState,
    Extension(client): Extension<Client>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    if let Err(answer) = handler.access.check_origin(&head, client.local()) {
        return handler.respond(handler.refused(&head, answer));
    }
    next.run(Request::from_parts(head, body)).await
}

async fn check_token(State(handler): HandlerState, request: Request, next: Next) -> Response {
    if let Err(answer) = handler.access.check_token(request.headers()) {
        let (head, _) = request.into_parts();
        return handler.respond(handler.refused(&head, answer));
    }
    next.run(request).await
}

async fn call(
    State(handler): HandlerState,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    if request.method() == hyper::Method::GET {
        // Its answer may be long, and the HTTP library serves pipelined requests without a pause.
        tokio::task::yield_now().await;
    }
    let answer = match handler.parse(request).await {
        Ok(parsed) => {
            handler.server.answer(Transport::Http, &parsed, pin!(client.disconnected()), None).await
        }
        Err(answer) => Some(answer),
    };
    if let Some(answer) = answer {
        return handler.respond(answer);
    }
    client.close();
    // The client does not get it.
    Response::default()
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
