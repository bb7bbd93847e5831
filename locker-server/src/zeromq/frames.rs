//! Parsing of message frames.

use crate::api::{Answer, Method};

/// The request in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// A call, as over HTTP.
    Call {
        /// The method.
        method: Method,
        /// The path, still encoded.
        path: &'a str,
        /// The query, without the question mark.
        query: &'a str,
    },
    /// Any other text: a request to pass in the current time slot.
    TimeSlot,
}

/// Returns the number of frames in the envelope, which the answer repeats: those up to the first empty frame.
#[must_use]
pub(crate) fn envelope<B: AsRef<[u8]>>(frames: &[B]) -> usize {
    match frames.iter().position(|frame| frame.as_ref().is_empty()) {
        Some(empty) if frames.len() > 1 => empty + 1,
        _ => 0,
    }
}

/// Parses the frames behind the envelope.
///
/// # Errors
/// 400 unless there is exactly one frame of UTF-8; 404 for a path outside `/v1`.
pub(crate) fn parse<B: AsRef<[u8]>>(frames: &[B]) -> Result<Request<'_>, Answer> {
    let [frame] = frames else {
        return Err(Answer::bad_request(format!(
            "the request has {} frames: send it in one frame",
            frames.len()
        )));
    };
    let Ok(text) = std::str::from_utf8(frame.as_ref()) else {
        return Err(Answer::bad_request("the request is not UTF-8"));
    };
    let Some((method, target)) = target(text) else { return Ok(Request::TimeSlot) };
    let target = target.split_once('#').map_or(target, |(target, _)| target);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path != "/v1" && !path.starts_with("/v1/") {
        return Err(Answer::no_such_path(path));
    }
    Ok(Request::Call { method, path, query })
}

fn target(text: &str) -> Option<(Method, &str)> {
    const METHODS: [(&str, Method); 4] =
        [("", Method::Get), ("GET ", Method::Get), ("POST ", Method::Post), ("DELETE ", Method::Delete)];
    METHODS.into_iter().find_map(|(start, method)| {
        let target = text.strip_prefix(start)?;
        target.starts_with('/').then_some((method, target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_envelope_ends_with_the_first_empty_frame() {
        let cases: [(&[&str], usize); 7] = [
            (&["let me go"], 0),
            (&[""], 0),
            (&["", "let me go"], 1),
            (&["", ""], 1),
            (&["req1", "", "/v1"], 2),
            (&["a", "b"], 0),
            (&[], 0),
        ];
        for (frames, expected) in cases {
            assert_eq!(envelope(frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn paths_are_calls_other_texts_time_slots() {
        for text in ["let me go", "", "GET", "GET x", "HEAD /v1", "v1/event/a/wait", " /v1", "get /v1"] {
            assert_eq!(parse(&[text]), Ok(Request::TimeSlot), "{text}");
        }
        let call = |method, path, query| Ok(Request::Call { method, path, query });
        assert_eq!(parse(&["/v1"]), call(Method::Get, "/v1", ""));
        assert_eq!(
            parse(&["GET /v1/event/a/wait?maxwait=0"]),
            call(Method::Get, "/v1/event/a/wait", "maxwait=0")
        );
        assert_eq!(parse(&["POST /v1/event/a/send"]), call(Method::Post, "/v1/event/a/send", ""));
        assert_eq!(parse(&["DELETE /v1/event/a#x?y"]), call(Method::Delete, "/v1/event/a", ""));
    }

    #[test]
    fn other_frames_are_refused() {
        let status = |frames: &[&[u8]]| parse(frames).unwrap_err().status;
        assert_eq!(status(&[b"a", b"b"]), 400);
        assert_eq!(status(&[]), 400);
        assert_eq!(status(&[b"\xff"]), 400);
        for path in ["/", "/healthz", "/metrics", "/event/a/wait", "/v1x", "/v10/event/a/wait"] {
            assert_eq!(status(&[path.as_bytes()]), 404, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_frames_are_parsed_or_refused(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
            let envelope = envelope(&frames);
            prop_assert!(envelope <= frames.len());
            if let Err(answer) = parse(&frames[envelope..]) {
                prop_assert!(matches!(answer.status, 400 | 404));
            }
        }
    }
}
