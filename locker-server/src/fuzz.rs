//! What the fuzz targets call. A broken law is a panic.

use super::{
    api::{Answer, Method, RawParams, parse},
    zeromq::frames,
};

/// Reads a path and a query, which begins after a question mark.
///
/// # Panics
/// If a law is broken: a request is neither parsed nor properly refused.
pub fn http_query(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    for method in [Method::Get, Method::Post, Method::Delete, Method::Other] {
        call(method, path, query);
    }
    let read = RawParams::parse(query, "");
    assert_eq!(read.is_ok(), RawParams::parse("", query).is_ok(), "query and form are equivalent");
    if query.contains('=') && read.is_ok_and(|parameters| parameters != RawParams::default()) {
        assert!(RawParams::parse(query, query).is_err(), "a parameter given twice is accepted");
    }
}

/// Reads a message of ZeroMQ. Zero bytes separate its frames.
///
/// # Panics
/// If a law is broken: a message is neither parsed nor properly refused.
pub fn zmq_frame(bytes: &[u8]) {
    let all: Vec<&[u8]> = bytes.split(|&byte| byte == 0).collect();
    let envelope = frames::envelope(&all);
    assert!(envelope <= all.len());
    match frames::parse(&all[envelope..]) {
        Ok(frames::Request::Call { method, path, query }) => {
            assert!(path.starts_with("/v1"));
            call(method, path, query);
        }
        Ok(frames::Request::TimeSlot) => {}
        Err(answer) => refusal(&answer),
    }
}

/// A request that is parsed without a form is the same one if its query is a form.
fn call(method: Method, path: &str, query: &str) {
    let parsed = parse(method, path, query, "");
    if let Err(answer) = &parsed {
        refusal(answer);
    }
    assert_eq!(parsed.ok(), parse(method, path, "", query).ok());
}

/// Checks the status of a refusal, and that its reason is one short line.
fn refusal(answer: &Answer) {
    assert!(matches!(answer.status, 400 | 404 | 405), "{answer:?}");
    assert!(
        !answer.body.is_empty() && answer.body.len() < 1500 && !answer.body.contains(['\n', '\r']),
        "{answer:?}"
    );
    assert_eq!(answer.allow.is_some(), answer.status == 405);
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_queries_keeps_the_laws() {
        corpus("http_query", super::http_query);
    }

    #[test]
    fn corpus_of_frames_keeps_the_laws() {
        corpus("zmq_frame", super::zmq_frame);
    }
}
