//! `/session`: the login of the page.

use super::{
    super::{
        access::check_page,
        context::Context,
        sessions::{cookie, no_cookie},
        tokens::Role,
    },
    Shared, accept,
};
use crate::api::{Answer, each_parameter, once};
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{
        HeaderMap, Method, Request,
        header::{HeaderName, HeaderValue, ORIGIN, SET_COOKIE},
    },
    response::Response,
    routing::get,
};
use serde::Serialize;
use std::{sync::Arc, time::Duration};

pub(super) const PATH: &str = "/session";

/// The pause before a wrong token is refused.
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(500);

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What the page has to know before it shows anything.
#[derive(Serialize)]
struct About<'a> {
    needs_token: bool,
    role: Option<Role>,
    server: &'static str,
    store: &'a str,
}

/// Adds the route.
pub(super) fn add(router: Router<Arc<Context>>) -> Router<Arc<Context>> {
    router.route(PATH, accept("GET, POST, DELETE", get(about).post(log_in).delete(log_out)))
}

async fn about(State(context): Shared, headers: HeaderMap) -> Response {
    let access = &context.access;
    let about = About {
        needs_token: access.needs_token(),
        role: access.caller(&headers).ok().map(|caller| caller.role),
        server: env!("CARGO_PKG_VERSION"),
        store: context.server.live.store(),
    };
    let text = serde_json::to_string(&about);
    context.page(text.map_or_else(|error| Answer::unavailable(error.to_string()), Answer::json))
}

async fn log_in(State(context): Shared, mut request: Request<Body>) -> Response {
    match context.role_of_form(&mut request).await {
        Ok(role) => {
            let (sessions, headers) = (&context.access.sessions, request.headers());
            sessions.end(headers);
            let (session, id) = sessions.start(role);
            tracing::info!(session, ?role, "a session of the page has begun");
            done(&context, &cookie(&id, is_secure(headers)))
        }
        Err(refusal) => context.refuse(&Method::POST, PATH, refusal),
    }
}

async fn log_out(State(context): Shared, headers: HeaderMap) -> Response {
    if let Err(refusal) = check_page(&headers) {
        return context.refuse(&Method::DELETE, PATH, refusal);
    }
    context.access.sessions.end(&headers);
    done(&context, &no_cookie(is_secure(&headers)))
}

impl Context {
    /// Returns the role of the token in the form.
    async fn role_of_form(&self, request: &mut Request<Body>) -> Result<Role, Answer> {
        check_page(request.headers())?;
        let form = self.form(request).await?;
        if !self.access.needs_token() {
            return Err(Answer::not_found("no token file"));
        }
        let mut token: Option<Box<str>> = None;
        each_parameter("", &form, &["token"], |name, value| once(name, &mut token, value.into()))?;
        let token = token.ok_or_else(|| Answer::bad_request("token is missing"))?;
        if let Some(role) = self.access.role(token.as_bytes()) {
            return Ok(role);
        }
        // A shutdown ends the pause.
        self.server.shutdown.run_until_cancelled(tokio::time::sleep(WRONG_TOKEN_DELAY)).await;
        Err(Answer::unauthorized())
    }
}

fn done(context: &Context, cookie: &str) -> Response {
    let mut response = context.page(Answer::done());
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Returns `true` if the browser reaches the server, or the proxy before it, over TLS.
fn is_secure(headers: &HeaderMap) -> bool {
    let starts = |name: &HeaderName, with: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().starts_with(with))
    };
    starts(&FORWARDED_PROTO, b"https") || starts(&ORIGIN, b"https:")
}
