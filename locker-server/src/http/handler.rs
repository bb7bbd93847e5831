//! From an HTTP request to its response.
//!
//! Calls have no routes: [`api`](crate::api) parses their paths, because ZeroMQ needs the same parser. All other paths
//! are those of the [router](super::router).

use super::{
    access::{AccessPolicy, Caller},
    context::{Context, method},
    response::Response,
    router,
    sessions::SessionNumber,
    stream::Client,
    unread::UnreadCap,
};
use crate::{
    api::{Answer, CallKind, ParsedCall, is_call},
    metrics::Transport,
    server::{Request as CallRequest, Server, log_change},
};
use axum::{Router, body::Body};
use http_body_util::Either;
use hyper::{Request, body::Incoming, service::Service};
use hyper_util::service::TowerToHyperService;
use std::{pin::pin, sync::Arc, time::Duration};

/// Answers the requests of all connections.
#[derive(Debug)]
pub(crate) struct Handler {
    context: Arc<Context>,
    router: TowerToHyperService<Router>,
    header_size: usize,
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
        let unread = Arc::new(UnreadCap::new(max_unread));
        let context = Arc::new(Context { server, access, header_timeout, unread });
        let router = TowerToHyperService::new(router::router(context.clone()));
        Self { context, router, header_size }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.context.server
    }

    pub(super) fn header_size(&self) -> usize {
        self.header_size
    }

    pub(super) fn header_timeout(&self) -> Duration {
        self.context.header_timeout
    }

    pub(super) fn unread(&self) -> &Arc<UnreadCap> {
        &self.context.unread
    }

    /// Answers a request: `None` if its client has disconnected from a call that waits.
    pub(super) async fn answer(&self, client: &Client, request: Request<Incoming>) -> Option<Response> {
        let context = &self.context;
        let answer = match context.access.check_origin(&request, client.local()) {
            Err(refusal) => Err(refusal),
            Ok(()) if !is_call(request.uri().path()) => {
                // Boxed, because all waiting calls would reserve space for it.
                return Some(Box::pin(self.routed(client, request)).await);
            }
            Ok(()) => authorize(&context.access, &request),
        };
        let answer = match answer {
            Ok(caller) => self.call(client, caller.session, request).await?,
            Err(refusal) => context.refused(request.method(), request.uri().path(), refusal),
        };
        Some(context.respond(answer))
    }

    async fn routed(&self, client: &Client, request: Request<Incoming>) -> Response {
        let reads_body = router::reads_body(request.uri().path());
        // Dropped otherwise: then the HTTP library says that it closes the connection if a body is unread.
        let mut request = request.map(|body| if reads_body { Body::new(body) } else { Body::empty() });
        // The answer may be long, and the HTTP library serves pipelined requests without a pause.
        tokio::task::yield_now().await;
        request.extensions_mut().insert(client.clone());
        let response = self.router.call(request).await.unwrap_or_else(|never| match never {});
        response.map(Either::Right)
    }

    async fn call(
        &self,
        client: &Client,
        session: Option<SessionNumber>,
        request: Request<Incoming>,
    ) -> Option<Answer> {
        if request.method() == hyper::Method::GET {
            // As above.
            tokio::task::yield_now().await;
        }
        match self.parse(request).await {
            Ok(parsed) => {
                let gone = pin!(client.disconnected());
                let answer = self.server().answer(Transport::Http, &parsed, gone, None).await?;
                if let Some(session) = session {
                    log_change(session, &parsed, &answer);
                }
                Some(answer)
            }
            Err(answer) => Some(answer),
        }
    }

    /// Parses the request. `Err` contains the answer if there is nothing to carry out.
    async fn parse(&self, mut request: Request<Incoming>) -> Result<ParsedCall, Answer> {
        let form = match *request.method() {
            hyper::Method::POST => self.context.form(&mut request).await,
            hyper::Method::DELETE => self.context.no_body(&mut request).await.map(|()| String::new()),
            // Ignored.
            _ => Ok(String::new()),
        };
        let path = request.uri().path();
        let form = form.map_err(|answer| self.context.refused(request.method(), path, answer))?;
        let query = request.uri().query().unwrap_or_default();
        let (transport, method) = (Transport::Http, method(request.method()));
        self.server().parse(CallRequest { transport, method, path, query, form: &form })
    }
}

fn authorize(access: &AccessPolicy, request: &Request<Incoming>) -> Result<Caller, Answer> {
    let changes = || {
        let kind = CallKind::of(method(request.method()), request.uri().path());
        request.method() != hyper::Method::GET || kind.is_some_and(CallKind::changes)
    };
    access.authorize(request.headers(), changes)
}
