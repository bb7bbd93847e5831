//! Answers to calls.

use super::{actions::Action, name::quoted};
use locker_runtime::{Error, ErrorKind};
use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

/// An answer to a call. HTTP sends all of it, ZeroMQ sends the status and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// Text in UTF-8; empty for 204.
    pub(crate) body: Cow<'static, str>,
    /// Whether the body is JSON.
    pub(crate) json: bool,
    /// When a retry may succeed, if known.
    pub(crate) retry_after: Option<Duration>,
    /// The fence of a grant.
    pub(crate) fence: Option<u64>,
    /// The methods that the path accepts.
    pub(crate) allow: Option<&'static str>,
    /// The path of the next page of a list.
    pub(crate) next: Option<Box<str>>,
    /// What a record says beside the body.
    pub(crate) record: Option<Record>,
}

/// What a record says beside the body of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The body is the result of another run.
    Replayed,
    /// The run is that of a slot.
    Slot {
        begins: SystemTime,
        /// How many slots had no success since the last one.
        missed: u64,
    },
}

/// The content type of text bodies.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// The content type of JSON bodies.
pub(super) const JSON: &str = "application/json";

impl Answer {
    /// Returns `None` if the answer has no body.
    pub(crate) fn content_type(&self) -> Option<&'static str> {
        (self.status != 204).then_some(if self.json { JSON } else { TEXT })
    }

    /// Returns whether it tells the caller of a record that another run has succeeded.
    pub(crate) fn is_replay_of(&self, action: Action) -> bool {
        action == Action::BeginRun && self.status < 300 && self.fence.is_none()
    }

    fn new(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            body: body.into(),
            json: false,
            retry_after: None,
            fence: None,
            allow: None,
            next: None,
            record: None,
        }
    }

    /// 204: done.
    pub(crate) fn done() -> Self {
        Self::new(204, "")
    }

    /// 200 with a text.
    pub(crate) fn text(body: impl Into<Cow<'static, str>>) -> Self {
        Self::new(200, body)
    }

    /// 200 with JSON.
    pub(crate) fn json(body: impl Into<Cow<'static, str>>) -> Self {
        Self { json: true, ..Self::new(200, body) }
    }

    /// 400 with a one-line reason.
    pub(crate) fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, reason)
    }

    /// 401: the token is missing or wrong.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            401,
            "the token is missing or wrong: send Authorization: Bearer <token> with a token of --token-file",
        )
    }

    /// 403 with a one-line reason.
    pub(crate) fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(403, reason)
    }

    /// 404 for an unknown path.
    pub(crate) fn no_such_path(path: &str) -> Self {
        Self::new(404, format!("no such path: {}", quoted(path)))
    }

    /// 404 with a one-line reason.
    pub(crate) fn not_found(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(404, reason)
    }

    /// 404 for a name that is not in use.
    pub(crate) fn no_such_name(name: &str) -> Self {
        Self::new(404, format!("not in use: {}", quoted(name)))
    }

    /// 405, with the methods that the path accepts.
    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(405, format!("this path accepts {allow}")) }
    }

    /// 408: `maxwait` was exceeded.
    pub(crate) fn timed_out(retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(408, "maxwait was exceeded") }
    }

    /// 409 with a one-line reason.
    pub(crate) fn conflict(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(409, reason)
    }

    /// 409: the key of a client holds nothing.
    pub(crate) fn not_held() -> Self {
        Self::conflict("this key holds nothing")
    }

    /// 413: the body is too large.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, format!("the body is too large: the limit is {limit} bytes"))
    }

    /// 413: the result of a run is too large.
    pub(crate) fn result_too_large(bytes: usize, limit: usize) -> Self {
        Self::new(413, format!("the result has {bytes} bytes, at most {limit} are kept: finish without it"))
    }

    /// 415: the body is not a form.
    pub(crate) fn wrong_type() -> Self {
        Self::new(415, "the body is not a form: send it as application/x-www-form-urlencoded")
    }

    /// 422: a call with the same key has other values.
    pub(crate) fn mismatch() -> Self {
        Self::new(422, "a call of this name has another same: give each its own name")
    }

    /// 429: a cap on names, or on the waits of one name, is reached.
    pub(crate) fn too_many(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(429, reason) }
    }

    /// 503: the server cannot serve the call now.
    pub(crate) fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(503, reason) }
    }

    /// 503: the store does not answer.
    pub(crate) fn store_unavailable() -> Self {
        Self::unavailable("the store is unavailable")
    }

    /// 503: the server is shutting down.
    pub(crate) fn shutting_down() -> Self {
        Self::unavailable("the server is shutting down")
    }

    /// 503: a ZeroMQ connection has too many unanswered calls.
    pub(crate) fn too_many_unanswered() -> Self {
        Self::unavailable("too many unanswered calls on this connection (--max-zmq-calls)")
    }

    /// 503: the unanswered ZeroMQ calls have too many bytes.
    pub(crate) fn too_many_bytes() -> Self {
        Self::unavailable("the unanswered ZeroMQ calls have too many bytes (--max-zmq-bytes)")
    }

    /// 503: clients leave too much of their answers unread.
    pub(crate) fn too_much_unread() -> Self {
        Self::unavailable(
            "the answer is too long for now: other clients have not read theirs (--max-unread-bytes)",
        )
    }

    /// Adds the path of the next page.
    pub(crate) fn with_next(self, next: Option<String>) -> Self {
        Self { next: next.map(String::into_boxed_str), ..self }
    }

    /// Adds what a record says.
    pub(crate) fn with_record(self, record: Option<Record>) -> Self {
        Self { record, ..self }
    }

    /// Adds the fence of a grant.
    pub(crate) fn with_fence(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }
}

/// Maps errors of the library to statuses.
impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        let retry_after = error.retry_after();
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::RetriesExhausted | ErrorKind::Deadlock | ErrorKind::Limited => {
                Self::timed_out(retry_after)
            }
            ErrorKind::NotHeld => Self::not_held(),
            ErrorKind::Conflict | ErrorKind::Lost => Self::conflict(error.message().to_owned()),
            ErrorKind::Misused => Self::bad_request(error.to_string()),
            _ => Self::store_unavailable(),
        }
    }
}
