//! HTTP responses to refused requests: the status of each kind of error, and the rate limit fields.

use crate::handles::Admission;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::RETRY_AFTER};
use locker_core::{
    error::{Error, ErrorKind},
    primitives::rate_limiter::Quota,
};
use std::time::Duration;

/// Returns the response to a request that failed with `error`. It has no body.
pub(super) fn refuse<R: Default>(error: &Error) -> Response<R> {
    let status = match error.kind() {
        ErrorKind::Limited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::TimedOut | ErrorKind::RetriesExhausted | ErrorKind::Deadlock | ErrorKind::Unavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // `Lost` among them: a client that repeats the request may do half of the work twice.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = Response::new(R::default());
    *response.status_mut() = status;
    let known = error.retry_after().or(error.is_temporary().then_some(Duration::from_secs(1)));
    if let Some(after) = known {
        response.headers_mut().insert(RETRY_AFTER, seconds(after).max(1).into());
    }
    response
}

/// The largest integer of a structured field (RFC 9651).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Sets the fields of draft-ietf-httpapi-ratelimit-headers: `RateLimit` and `RateLimit-Policy` of the current versions,
/// and those of the first versions, which more clients read.
///
/// Keeps the fields of an inner limit if that has fewer remaining tokens.
pub(super) fn set_fields(headers: &mut HeaderMap, quota: &Quota, remaining: u64, reset_after: Duration) {
    if inner_remaining(headers).is_some_and(|inner| inner <= remaining) {
        return;
    }
    let ((size, window), reset) = (quota.per_window(), seconds(reset_after));
    let (size, remaining) = (size.min(MAX_INTEGER), remaining.min(MAX_INTEGER));
    set(headers, "ratelimit-policy", &format!("\"default\";q={size};w={}", seconds(window)));
    set(headers, "ratelimit", &format!("\"default\";r={remaining};t={reset}"));
    set(headers, "ratelimit-limit", &size.to_string());
    set(headers, REMAINING, &remaining.to_string());
    set(headers, "ratelimit-reset", &reset.to_string());
}

pub(super) fn set_admitted(headers: &mut HeaderMap, quota: &Quota, admission: &Admission) {
    set_fields(headers, quota, admission.remaining, admission.reset_after);
}

/// Returns the remaining tokens of an inner limit, or `None` if there is none.
fn inner_remaining(headers: &HeaderMap) -> Option<u64> {
    headers.get(REMAINING)?.to_str().ok()?.parse().ok()
}

const REMAINING: &str = "ratelimit-remaining";

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Returns whole seconds, rounded up so that a client does not return too early.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_status() {
        for (kind, status) in [
            (ErrorKind::Limited, 429),
            (ErrorKind::TimedOut, 503),
            (ErrorKind::RetriesExhausted, 503),
            (ErrorKind::Deadlock, 503),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Lost, 500),
            (ErrorKind::Misused, 500),
            (ErrorKind::Conflict, 500),
        ] {
            assert_eq!(refuse::<()>(&Error::new(kind, "x")).status(), status, "{kind}");
        }
    }

    #[test]
    fn retry_after_is_never_too_early() {
        let error = |after| Error::new(ErrorKind::Limited, "x").with_retry_after(after);
        for (after, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (59_999, "60")] {
            let response = refuse::<()>(&error(Duration::from_millis(after)));
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
        for kind in [ErrorKind::Lost, ErrorKind::Misused, ErrorKind::Conflict] {
            let refused = refuse::<()>(&Error::new(kind, "x"));
            assert!(!refused.headers().contains_key(RETRY_AFTER), "{kind}: a repetition is no remedy");
        }
    }

    #[test]
    fn policy_covers_the_remaining_tokens() {
        let gcra = |count, burst| Quota::gcra(count, Duration::from_secs(60)).burst(burst);
        for (quota, policy, limit) in [
            (gcra(60, 10), "\"default\";q=60;w=60", "60"),
            (gcra(60, 60), "\"default\";q=60;w=60", "60"),
            (gcra(60, 90), "\"default\";q=90;w=90", "90"),
            (gcra(7, 10), "\"default\";q=10;w=86", "10"),
            (gcra(0, 10), "\"default\";q=0;w=60", "0"),
        ] {
            let mut headers = HeaderMap::new();
            set_fields(&mut headers, &quota, quota.size(), Duration::ZERO);
            assert_eq!(headers["ratelimit-policy"], policy);
            assert_eq!(headers["ratelimit-limit"], limit);
            assert!(quota.size() <= limit.parse().unwrap());
        }
    }

    #[test]
    fn fields_show_the_remaining_tokens() {
        let mut headers = HeaderMap::new();
        set_fields(
            &mut headers,
            &Quota::fixed_window(5, Duration::from_millis(800)),
            3,
            Duration::from_millis(1500),
        );
        for (name, value) in [
            ("ratelimit-policy", "\"default\";q=5;w=1"),
            ("ratelimit", "\"default\";r=3;t=2"),
            ("ratelimit-limit", "5"),
            ("ratelimit-remaining", "3"),
            ("ratelimit-reset", "2"),
        ] {
            assert_eq!(headers[name], value);
        }
    }

    #[test]
    fn fields_show_the_tightest_of_several_limits() {
        let (narrow, wide) =
            (Quota::gcra(5, Duration::from_secs(1)), Quota::gcra(900, Duration::from_secs(60)));
        for (first, second, limit) in [((narrow, 0), (wide, 57), "5"), ((wide, 57), (narrow, 3), "5")] {
            let mut headers = HeaderMap::new();
            for (quota, remaining) in [first, second] {
                set_fields(&mut headers, &quota, remaining, Duration::from_secs(1));
            }
            assert_eq!(headers["ratelimit-limit"], limit);
            assert_eq!(headers["ratelimit-remaining"], first.1.min(second.1).to_string());
            assert_eq!(headers["ratelimit-policy"], "\"default\";q=5;w=1");
        }
    }

    #[test]
    fn numbers_fit_structured_fields() {
        let mut headers = HeaderMap::new();
        let quota = Quota::fixed_window((1 << 53) - 1, Duration::from_secs(60));
        set_fields(&mut headers, &quota, quota.size() - 1, Duration::from_secs(60));
        assert_eq!(headers["ratelimit-policy"], "\"default\";q=999999999999999;w=60");
        assert_eq!(headers["ratelimit"], "\"default\";r=999999999999999;t=60");
    }
}
