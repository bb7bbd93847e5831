//! The routes of all paths but those of calls.

mod assets;
mod live;
mod session;

use super::{context::Context, response};
use crate::api::{Answer, openapi};
use axum::{
    Router,
    extract::State,
    handler::Handler,
    http::{HeaderMap, Method, Uri},
    response::Response,
    routing::{MethodRouter, get},
};
use std::sync::Arc;

/// The path at which bouncer says that it is ready.
const BOUNCER_READY: &str = "/.well-known/ready";

type Shared = State<Arc<Context>>;

/// Returns the router.
pub(super) fn router(context: Arc<Context>) -> Router {
    let router = Router::new()
        .route("/healthz", only_get(health))
        .route("/readyz", only_get(|State(context): Shared| ready(context, "ready")))
        .route(BOUNCER_READY, only_get(|State(context): Shared| ready(context, "I'm ready!\n")))
        .route("/openapi.json", only_get(document))
        .route("/metrics", only_get(metrics))
        .route("/live", only_get(live::live));
    let router = assets::add(router);
    session::add(router).fallback(unknown).with_state(context)
}

/// Returns `true` if a route reads the bodies of requests.
pub(super) fn reads_body(path: &str) -> bool {
    path == session::PATH
}

/// Answers all methods but GET with 405, as calls do.
fn only_get<T: 'static>(handler: impl Handler<T, Arc<Context>>) -> MethodRouter<Arc<Context>> {
    accept("GET", get(handler))
}

/// Answers methods that `routes` lacks with 405 and `allow`. A HEAD is not answered as a GET.
fn accept(allow: &'static str, routes: MethodRouter<Arc<Context>>) -> MethodRouter<Arc<Context>> {
    let refuse = move |State(context): Shared| async move { context.page(Answer::wrong_method(allow)) };
    routes.head(refuse).fallback(refuse)
}

impl Context {
    /// Returns the response of a route.
    fn page(&self, answer: Answer) -> Response {
        response::of_route(self.respond(answer))
    }

    /// Returns the response to a request that was refused, and counts it.
    fn refuse(&self, method: &Method, path: &str, refusal: Answer) -> Response {
        self.page(self.refused(method, path, refusal))
    }

    /// Returns what `page` makes if the client may read.
    fn for_readers(&self, uri: &Uri, headers: &HeaderMap, page: impl FnOnce() -> Answer) -> Response {
        match self.access.caller(headers) {
            Ok(_) => self.page(page()),
            Err(refusal) => self.refuse(&Method::GET, uri.path(), refusal),
        }
    }
}

async fn health(State(context): Shared) -> Response {
    context.page(Answer::text("ok"))
}

async fn ready(context: Arc<Context>, text: &'static str) -> Response {
    context.page(context.server.service.ready(text).await)
}

async fn document(State(context): Shared) -> Response {
    let document = openapi::document();
    context.page(document.map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json))
}

async fn metrics(State(context): Shared, uri: Uri, headers: HeaderMap) -> Response {
    context.for_readers(&uri, &headers, || Answer::text(context.server.render_metrics()))
}

async fn unknown(State(context): Shared, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let refusal = context.access.caller(&headers).err();
    let answer = refusal.unwrap_or_else(|| Answer::no_such_path(uri.path()));
    context.refuse(&method, uri.path(), answer)
}
