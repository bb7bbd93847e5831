//! Answers as HTTP responses.

use crate::api::Answer;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use std::{borrow::Cow, time::Duration};

const FENCE: HeaderName = HeaderName::from_static("locker-fence");

pub(super) type HttpResponse = Response<Full<Bytes>>;

pub(super) fn response(answer: Answer) -> HttpResponse {
    let content_type = answer.content_type();
    let body = match answer.body {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    };
    let mut response = Response::new(Full::new(body));
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
    if answer.status != 200 && answer.status != 204 {
        add_refusal_headers(headers, answer.status, answer.retry_after, answer.allow);
    }
    response
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
