//! The one error type, and the table of its kinds.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: its [`kind`](Error::kind), the key it was about, and what lay beneath.
///
/// ```
/// # use locker_runtime as locker;
/// use locker::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::TimedOut, "waited 10s for the lock").with_key("lock:a");
/// assert_eq!(error.to_string(), "lock:a: timed out: waited 10s for the lock");
/// assert!(error.is_temporary());
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    key: Option<String>,
    retry_after: Option<Duration>,
    certain: bool,
    unsent: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`]; more may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Not acquired within the `timeout`.
    TimedOut,
    /// Not acquired within `max_retry` attempts.
    RetriesExhausted,
    /// Refused by a rate limit; [`Error::retry_after`] says when to come back.
    Limited,
    /// The lease ended before its holder released it.
    Lost,
    /// Nothing is held under this key and id.
    NotHeld,
    /// The state of the key does not allow this call (an event sent twice, a key of another kind).
    Conflict,
    /// The store cannot be reached or cannot serve now.
    Unavailable,
    /// The call itself is wrong: a bad URL, duration, name or option.
    Misused,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::RetriesExhausted => "retries exhausted",
            Self::Limited => "limited",
            Self::Lost => "lost",
            Self::NotHeld => "not held",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Misused => "misused",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Error {
    /// An error of `kind`; `message` is lower-case and without a full stop.
    ///
    /// Stores and the server make errors with this; users rarely do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            key: None,
            retry_after: None,
            certain: true,
            unsent: false,
            source: None,
        }))
    }

    /// Adds the key the call was about.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Adds when trying again makes sense.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds what lay beneath.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Marks that the request may have been carried out, or may still be.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.0.certain = false;
        self
    }

    /// Marks that there was nobody to send it to: whatever the kind, it may be said later.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn unsent(mut self) -> Self {
        self.0.unsent = true;
        self
    }

    pub(crate) fn is_unsent(&self) -> bool {
        self.0.unsent
    }

    /// The kind, to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, without the key.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The key the call was about, when there was one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// When trying again makes sense, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the same call may succeed later without anything being changed by the caller.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        use ErrorKind as K;
        matches!(self.0.kind, K::TimedOut | K::RetriesExhausted | K::Limited | K::Unavailable)
    }

    /// Whether the store surely did not carry the request out.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.0.certain
    }
}

/// The last thing that went wrong for a known reason, told with later errors that have none: who repeats a request
/// that was refused, and gets no answer at the end, is told both.
#[derive(Debug, Default)]
pub(crate) struct Cause(Option<Error>);

impl Cause {
    /// `error`, and before it the reason it may hide.
    pub(crate) fn explain(&mut self, mut error: Error) -> Error {
        if error.is_certain() {
            self.0 = Some(error.clone());
        } else if let Some(before) = &self.0 {
            error.0.message = format!("{}; before that: {}", error.0.message, before.0.message);
            error.0.source = error.0.source.or_else(|| before.0.source.clone());
        }
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.0.key {
            write!(f, "{key}: ")?;
        }
        write!(f, "{}: {}", self.0.kind, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message).field("key", &self.0.key);
        out.field("retry_after", &self.0.retry_after).field("certain", &self.0.certain);
        out.field("source", &self.0.source).finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_reason_does_not_hide_the_last_known_one() {
        let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
        let mut cause = Cause::default();
        assert_eq!(cause.explain(unavailable("silence").unknown()).to_string(), "unavailable: silence");
        for reason in ["it is loading", "it is busy"] {
            assert_eq!(cause.explain(unavailable(reason)).to_string(), format!("unavailable: {reason}"));
        }
        for _ in 0..2 {
            let error = cause.explain(unavailable("silence").unknown());
            assert_eq!(error.to_string(), "unavailable: silence; before that: it is busy");
            assert!(!error.is_certain());
        }
    }
}
