//! Answers as HTTP responses.

use super::unread::Unread;
use crate::api::{Answer, Record};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK, RETRY_AFTER, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use std::{borrow::Cow, time::Duration};

/// The bodies of routes are those of axum.
pub(super) type Response = hyper::Response<Either<Full<Bytes>, axum::body::Body>>;

const FENCE: HeaderName = HeaderName::from_static("locker-fence");
const REPLAYED: HeaderName = HeaderName::from_static("locker-replayed");
const SLOT: HeaderName = HeaderName::from_static("locker-slot");
const MISSED: HeaderName = HeaderName::from_static("locker-missed");

/// A body that the HTTP library drops when it is sent.
struct CountedBody {
    text: Cow<'static, str>,
    #[expect(dead_code, reason = "counts until it is dropped")]
    unread: Unread,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Turns an answer into a response. `unread` counts until the body was sent.
pub(super) fn response(mut answer: Answer, unread: Option<Unread>) -> Response {
    let body = match (std::mem::take(&mut answer.body), unread) {
        (text, Some(unread)) => Bytes::from_owner(CountedBody { text, unread }),
        (Cow::Borrowed(text), None) => Bytes::from_static(text.as_bytes()),
        (Cow::Owned(text), None) => Bytes::from(text),
    };
    let content_type = answer.content_type();
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if let Some(fence) = answer.fence {
        headers.insert(FENCE, fence.into());
    }
    match answer.record {
        Some(Record::Replayed) => drop(headers.insert(REPLAYED, HeaderValue::from_static("true"))),
        Some(Record::Slot { begins, missed }) => {
            if let Ok(begins) = humantime::format_rfc3339(begins).to_string().parse() {
                headers.insert(SLOT, begins);
            }
            headers.insert(MISSED, missed.into());
        }
        None => {}
    }
    if let Some(next) = answer.next.and_then(|next| format!("<{next}>; rel=\"next\"").parse().ok()) {
        headers.insert(LINK, next);
    }
    if answer.status != 200 && answer.status != 204 {
        add_refusal_headers(headers, answer.status, answer.retry_after, answer.allow);
    }
    response
}

/// Turns a response into that of a route.
pub(super) fn of_route(response: Response) -> axum::response::Response {
    response.map(|body| match body {
        Either::Left(body) => axum::body::Body::new(body),
        Either::Right(body) => body,
    })
}

/// Returns the response to a client that does not get it.
pub(super) fn nothing() -> Response {
    Response::new(Either::Left(Full::default()))
}

fn add_refusal_headers(
    headers: &mut HeaderMap,
    status: u16,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
) {
    if let Some(after) = retry_after {
        headers.insert(RETRY_AFTER, whole_seconds(after).into());
    }
    if let Some(allow) = allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if status == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}

/// Rounds up, so that a retry after that time is never too early.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
