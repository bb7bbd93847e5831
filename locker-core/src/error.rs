//! The error type and its kinds.

mod blocked;
mod cause;

pub use blocked::{Blocked, Holder};
pub use cause::Cause;

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a failed call: its [`kind`](Error::kind), a message, the key and the annotated function if there are
/// any, and the underlying error.
///
/// `Display` writes `key: kind: message`, or `key (function): kind: message` if an attribute's function failed. The
/// message is for logs and may change between versions: match on the kind.
/// The size of the type is one pointer, and a clone shares the underlying error.
///
/// # Examples
///
/// ```
/// # use locker_runtime as locker;
/// use locker::{ErrorKind, Locker};
/// use std::time::Duration;
///
/// # fn main() -> locker::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.lock("invoice 7").acquire_blocking()?;
/// let error = locker.lock("invoice 7").timeout(Duration::ZERO).acquire_blocking().unwrap_err();
/// match error.kind() {
///     ErrorKind::TimedOut | ErrorKind::RetriesExhausted => println!("in use: {error}"),
///     ErrorKind::Lost => panic!("the outcome is unknown, do not repeat the call: {error}"),
///     _ if error.is_temporary() => println!("try again in {:?}", error.retry_after()),
///     _ => return Err(error),
/// }
/// assert_eq!(error.kind(), ErrorKind::TimedOut);
/// assert!(error.is_temporary());
/// # guard.release_blocking() }
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    key: Option<String>,
    function: Option<&'static str>,
    retry_after: Option<Duration>,
    certain: bool,
    unsent: bool,
    answered: bool,
    /// Behind the first bytes of the message, which has it, too.
    blocked: Option<(usize, Arc<Blocked>)>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], which says whether the call may be repeated. More kinds may be added.
///
/// # Examples
///
/// ```
/// # use locker_core::error as locker;
/// use locker::{Error, ErrorKind};
///
/// /// The HTTP status of a request that failed with `error`.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Limited => 429,
///         ErrorKind::TimedOut | ErrorKind::RetriesExhausted | ErrorKind::Unavailable => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(status(&Error::new(ErrorKind::Limited, "5 a second")), 429);
/// assert_eq!(status(&Error::new(ErrorKind::Lost, "the lease ended")), 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The wait did not end within `timeout`.
    ///
    /// The call may be repeated. With `release = "on_expiry"`, this kind means that the function was called within the
    /// last lease: do not repeat it then.
    TimedOut,
    /// `max_retry` attempts have failed.
    ///
    /// The call may be repeated.
    RetriesExhausted,
    /// The caller holds something that another one waits for, and would wait for that one: itself, or through others.
    ///
    /// Of all callers of such a circle one gets this kind. Release what is held, by returning from the function that
    /// holds it; then the whole may be repeated. The others go on.
    Deadlock,
    /// A rate limit refused the call.
    ///
    /// The call may be repeated after [`Error::retry_after`], which is `None` if that time is unknown: a limit of size
    /// 0 admits nothing.
    Limited,
    /// The lease ended before its holder released it.
    ///
    /// The outcome of the work under the lease is unknown: check its state before repeating it.
    Lost,
    /// Nothing is held under this key and id.
    ///
    /// A repetition fails in the same way.
    NotHeld,
    /// The state of the key does not allow the call.
    ///
    /// For example, the key belongs to another kind of primitive, or the event was already sent. A repetition fails
    /// until that state changes.
    Conflict,
    /// The store cannot be reached or cannot serve the call at present.
    ///
    /// After a failed acquire the caller holds nothing, and the call may be repeated. A call that changes something (an
    /// event's `send`, a release) may have been carried out unless [`Error::is_certain`] returns `true`.
    Unavailable,
    /// The call or its configuration is invalid: a URL, duration, name, number or option. Or a function calls itself
    /// and would wait for its own lock. Or the locker was made before a fork, by the parent of this process.
    ///
    /// The message says which values are accepted. A repetition fails in the same way.
    Misused,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::RetriesExhausted => "retries exhausted",
            Self::Deadlock => "deadlock",
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
    /// Creates an error of `kind`. By convention `message` is in lower case and has no full stop.
    ///
    /// The error is [certain](Self::is_certain). Implementations of [`Store`](crate::store::Store) create errors with
    /// this function; applications rarely need it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            key: None,
            function: None,
            retry_after: None,
            certain: true,
            unsent: false,
            answered: false,
            blocked: None,
            source: None,
        }))
    }

    /// The error of a call in a forked child on something that its parent made.
    #[doc(hidden)]
    #[must_use]
    pub fn made_before_a_fork(what: &str, cure: &str) -> Self {
        Self::new(ErrorKind::Misused, format!("{what} before a fork, for the parent process: {cure}"))
    }

    /// Sets the key that the call was about.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    /// Sets the annotated function that failed, if there is one.
    #[doc(hidden)]
    #[must_use]
    pub fn of_function(mut self, function: Option<&'static str>) -> Self {
        self.0.function = function;
        self
    }

    /// Returns the error for what would be granted at another time than after a failure of the store.
    #[doc(hidden)]
    #[cfg(feature = "_network")]
    #[must_use]
    pub fn nothing_is_granted(left: Duration) -> Self {
        let message = format!(
            "the store may have lost grants in a failure or failover: nothing is granted for another {:.1} s",
            left.as_secs_f64()
        );
        Self::new(ErrorKind::Unavailable, message).with_retry_after(left)
    }

    /// Replaces the message.
    #[doc(hidden)]
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        match self.0.blocked.take() {
            Some((_, blocked)) => self.with_blocked(Arc::unwrap_or_clone(blocked)),
            None => self,
        }
    }

    /// Adds what stood in the way of the call, also to the message. That of a deadlock says more already.
    #[doc(hidden)]
    #[must_use]
    pub fn with_blocked(mut self, blocked: Blocked) -> Self {
        let head = self.0.blocked.as_ref().map_or(self.0.message.len(), |(head, _)| *head);
        self.0.message.truncate(head);
        let text = blocked.to_string();
        if !text.is_empty() && self.kind() != ErrorKind::Deadlock {
            self.0.message.extend([": ", &text]);
        }
        self.0.blocked = Some((head, Arc::new(blocked)));
        self
    }

    /// Adds the place of the call to what stood in its way, if that was asked for.
    #[doc(hidden)]
    #[must_use]
    pub fn asked_at(self, place: String) -> Self {
        let Some(mut blocked) = self.blocked().cloned() else { return self };
        blocked.set_place(place);
        self.with_blocked(blocked)
    }

    /// Sets the time after which the call may succeed, counted from the creation of the error.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Sets the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Marks the outcome as unknown: the request may have been carried out, or may be carried out later.
    ///
    /// For stores: use it if a request was sent and no reply arrived. [`is_certain`](Self::is_certain) then returns
    /// `false`.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.0.certain = false;
        self
    }

    /// Marks that the request was not carried out.
    #[doc(hidden)]
    #[cfg(feature = "_cas")]
    #[must_use]
    pub fn certain(mut self) -> Self {
        self.0.certain = true;
        self
    }

    /// Marks that the request was not sent because there was no connection: a later attempt may succeed, whatever the
    /// kind.
    #[doc(hidden)]
    #[cfg(any(feature = "_network", feature = "_control", test))]
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.0.unsent = true;
        self
    }

    /// Marks that the store has said why, although the outcome is unknown.
    #[doc(hidden)]
    #[cfg(any(feature = "redis", test))]
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.0.answered = true;
        self
    }

    /// Returns whether [`unsent`](Self::unsent) marked the error.
    #[doc(hidden)]
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.0.unsent
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message, without the kind and the key.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the key that the call was about, or `None` if it was about no key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Returns the annotated function that was not admitted or that lost its hold: the attribute's `name`, or module
    /// and name, such as `bank::api::withdraw`. Returns `None` for a call by hand.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        self.0.function
    }

    /// Returns what stood in the way of a call that waited for a lock or for permits: the holders, the waiters ahead of
    /// it, and its place.
    ///
    /// `Some` for `Deadlock`, and for `TimedOut` and `RetriesExhausted` of a call that waited 1 s or longer. Returns
    /// `None` for all other errors: nothing is asked for shorter waits, for calls with the timeout 0, during an outage
    /// of the store, or for holders that clients name.
    ///
    /// ```
    /// # use locker_runtime as locker;
    /// # fn main() -> locker::Result<()> {
    /// use locker::Locker;
    /// use std::time::Duration;
    ///
    /// let locker = Locker::memory();
    /// let guard = locker.lock("invoice 7").acquire_blocking()?;
    /// let second = Duration::from_secs(1);
    /// let error = locker.lock("invoice 7").timeout(second).acquire_blocking().unwrap_err();
    /// let blocked = error.blocked().expect("it waited for a second");
    /// assert_eq!(blocked.holders()[0].fence, guard.fence());
    /// println!("{error}");
    /// # guard.release_blocking() }
    /// ```
    #[must_use]
    pub fn blocked(&self) -> Option<&Blocked> {
        self.0.blocked.as_ref().map(|(_, blocked)| &**blocked)
    }

    /// Returns the time after which the call may succeed, or `None` if that is unknown. It counts from the creation
    /// of the error.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns `true` if the same call may succeed later without a change by the caller: for `TimedOut`,
    /// `RetriesExhausted`, `Deadlock`, `Limited` and `Unavailable`.
    ///
    /// It does not say that a repetition is safe: a call that failed with `Unavailable` may have been carried out, see
    /// [`is_certain`](Self::is_certain).
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        use ErrorKind as K;
        matches!(self.0.kind, K::TimedOut | K::RetriesExhausted | K::Deadlock | K::Limited | K::Unavailable)
    }

    /// Returns `true` if the store provably did not carry out the request, and `false` if the outcome is unknown, for
    /// example because the reply was lost.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.0.certain
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.key, self.0.function) {
            (Some(key), Some(function)) => write!(f, "{key} ({function}): ")?,
            (Some(key), None) => write!(f, "{key}: ")?,
            (None, Some(function)) => write!(f, "{function}: ")?,
            (None, None) => {}
        }
        write!(f, "{}: {}", self.0.kind, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message).field("key", &self.0.key);
        out.field("function", &self.0.function).field("retry_after", &self.0.retry_after);
        out.field("certain", &self.0.certain).field("source", &self.0.source).finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
