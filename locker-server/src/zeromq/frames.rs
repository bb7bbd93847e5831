//! What the frames of a message mean.

use crate::calls::{Answer, Method};

/// What is asked in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask<'a> {
    /// A path with its query, as over HTTP.
    Call {
        /// The method.
        method: Method,
        /// The path, still encoded.
        path: &'a str,
        /// The query, without the question mark.
        query: &'a str,
    },
    /// Anything else: may one more pass in this time slot?
    Slot,
}

/// How many of the frames are the envelope that the answer goes back in: those up to the first empty one.
#[must_use]
pub fn envelope<B: AsRef<[u8]>>(frames: &[B]) -> usize {
    match frames.iter().position(|frame| frame.as_ref().is_empty()) {
        Some(empty) if frames.len() > 1 => empty + 1,
        _ => 0,
    }
}

/// Reads what follows the envelope.
///
/// # Errors
/// 400 unless it is one frame of UTF-8; 404 for a path outside `/v1`.
pub fn read<B: AsRef<[u8]>>(frames: &[B]) -> Result<Ask<'_>, Answer> {
    let [frame] = frames else {
        return Err(Answer::bad_request(format!("a request is one frame, not {}", frames.len())));
    };
    let Ok(text) = std::str::from_utf8(frame.as_ref()) else {
        return Err(Answer::bad_request("a request is UTF-8"));
    };
    let Some((method, target)) = target(text) else { return Ok(Ask::Slot) };
    let target = target.split_once('#').map_or(target, |(target, _)| target);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path != "/v1" && !path.starts_with("/v1/") {
        return Err(Answer::no_such_path(path));
    }
    Ok(Ask::Call { method, path, query })
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
    fn paths_are_calls_and_everything_else_asks_for_a_slot() {
        for text in ["let me go", "", "GET", "GET x", "HEAD /v1", "v1/event/a/wait", " /v1", "get /v1"] {
            assert_eq!(read(&[text]), Ok(Ask::Slot), "{text}");
        }
        let call = |method, path, query| Ok(Ask::Call { method, path, query });
        assert_eq!(read(&["/v1"]), call(Method::Get, "/v1", ""));
        assert_eq!(
            read(&["GET /v1/event/a/wait?maxwait=0"]),
            call(Method::Get, "/v1/event/a/wait", "maxwait=0")
        );
        assert_eq!(read(&["POST /v1/event/a/send"]), call(Method::Post, "/v1/event/a/send", ""));
        assert_eq!(read(&["DELETE /v1/event/a#x?y"]), call(Method::Delete, "/v1/event/a", ""));
    }

    #[test]
    fn refuses_what_is_no_request() {
        let status = |frames: &[&[u8]]| read(frames).unwrap_err().status;
        assert_eq!(status(&[b"a", b"b"]), 400);
        assert_eq!(status(&[]), 400);
        assert_eq!(status(&[b"\xff"]), 400);
        for path in ["/", "/healthz", "/metrics", "/event/a/wait", "/v1x", "/v10/event/a/wait"] {
            assert_eq!(status(&[path.as_bytes()]), 404, "{path}");
        }
    }

    proptest! {
        #[test]
        fn frames_of_any_shape_are_read_or_refused(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
            let envelope = envelope(&frames);
            prop_assert!(envelope <= frames.len());
            if let Err(answer) = read(&frames[envelope..]) {
                prop_assert!(matches!(answer.status, 400 | 404));
            }
        }
    }
}
