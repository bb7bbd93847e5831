//! What a call is answered.

use super::name::quoted;
use locker_runtime::{Error, ErrorKind};
use std::{borrow::Cow, time::Duration};

/// One answer, whichever way it travels: HTTP sends all of it, ZeroMQ the status and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Text in UTF-8; empty for 204.
    pub body: Cow<'static, str>,
    /// Whether the body is JSON.
    pub json: bool,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// The fence of a grant.
    pub fence: Option<u64>,
    /// The methods that the path has.
    pub allow: Option<&'static str>,
}

/// What bodies are, unless they are JSON.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// What the others are.
pub const JSON: &str = "application/json";

impl Answer {
    /// What the body is; `None`: there is none.
    #[must_use]
    pub fn content_type(&self) -> Option<&'static str> {
        (self.status != 204).then_some(if self.json { JSON } else { TEXT })
    }

    fn new(status: u16, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status, body: body.into(), json: false, retry_after: None, fence: None, allow: None }
    }

    /// 204: done, nothing to say.
    #[must_use]
    pub fn done() -> Self {
        Self::new(204, "")
    }

    /// 200 with a text.
    #[must_use]
    pub fn text(body: impl Into<Cow<'static, str>>) -> Self {
        Self::new(200, body)
    }

    /// 200 with JSON.
    #[must_use]
    pub fn json(body: String) -> Self {
        Self { json: true, ..Self::new(200, body) }
    }

    /// 400 with a one-line reason.
    #[must_use]
    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, reason)
    }

    /// 401: the token is missing or wrong.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "give a token of the server's token file: Authorization: Bearer <token>")
    }

    /// 403 with a one-line reason.
    #[must_use]
    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(403, reason)
    }

    /// 404 for a path that means nothing.
    #[must_use]
    pub fn no_such_path(path: &str) -> Self {
        Self::new(404, format!("no such path: {}", quoted(path)))
    }

    /// 404 for a name that is not in use.
    #[must_use]
    pub fn no_such_name(name: &str) -> Self {
        Self::new(404, format!("not in use: {}", quoted(name)))
    }

    /// 405, with the methods that the path has.
    #[must_use]
    pub fn wrong_method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(405, format!("allowed here: {allow}")) }
    }

    /// 408: `maxwait` was exceeded.
    #[must_use]
    pub fn timed_out(retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(408, "not within maxwait") }
    }

    /// 409 with a one-line reason.
    #[must_use]
    pub fn conflict(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(409, reason)
    }

    /// 413: more body than is read.
    #[must_use]
    pub fn too_large(most: usize) -> Self {
        Self::new(413, format!("the body has more than {most} bytes"))
    }

    /// 415: a body that is not a form.
    #[must_use]
    pub fn wrong_type() -> Self {
        Self::new(415, "a body must be a form: application/x-www-form-urlencoded")
    }

    /// 429: a cap on what one name or client may use.
    #[must_use]
    pub fn too_many(what: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(429, what) }
    }

    /// 503: not now, through no fault of the call.
    #[must_use]
    pub fn unavailable(why: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(503, why) }
    }

    /// 503: the server is going.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::unavailable("shutting down")
    }

    /// 503: a client has sent much more than was answered.
    #[must_use]
    pub fn crowded() -> Self {
        Self::unavailable("too many calls of this connection are not answered yet")
    }

    /// With the fence of a grant.
    #[must_use]
    pub fn with_fence(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }
}

/// The one table from errors to statuses.
impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        let retry_after = error.retry_after();
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::RetriesExhausted | ErrorKind::Limited => {
                Self::timed_out(retry_after)
            }
            ErrorKind::Lost | ErrorKind::NotHeld => Self::conflict("nothing is held under this key"),
            ErrorKind::Conflict => Self::conflict(error.message().to_owned()),
            ErrorKind::Misused => Self::bad_request(error.to_string()),
            _ => Self::unavailable("the store does not answer"),
        }
    }
}
