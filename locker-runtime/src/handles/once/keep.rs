//! Functions whose result counts for later calls.

use super::{Asked, Asks, Began, Once, check_min_hold, decode, encode, record_setters, text, unread};
use crate::{
    handles::{LockRequest, Origin, lock::Done},
    lease::Guard,
    locker::Locker,
    settings::{Settings, hold_setters, margin_setters},
};
use locker_core::{
    error::{Error, Result},
    id::Id,
    key::{ArgumentsDigest, Key, KeyFormat, KeyPart},
    primitives::{HoldKind, MAX_VALUE},
    ranges::{check_range, misused},
};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

/// How many bytes a result may have, unless set.
pub(crate) const MAX_SIZE: usize = 64 * 1024;

impl Once {
    /// Keeps the result of a success for this long: until then calls get it, and nothing runs again. Up to 10 years.
    /// With zero only calls get it that waited while it was made.
    pub fn keep(self, keep: Duration) -> OnceKeep {
        let Self { locker, key, origin } = self;
        let settings = locker.settings();
        OnceKeep { locker, key, origin, settings, keep, digest: None, max_size: MAX_SIZE, after_crash: false }
    }
}

/// A request to run once and to give its result to the other callers. Created by [`Once::keep`].
///
/// The first caller runs. The others wait for it, and get its result, and so do all calls while the result is kept. If
/// the run fails or its process ends, the next caller runs: errors are not kept.
///
/// Results are kept as JSON text, which other versions of a program can read. One that is larger than
/// [`max_size`](Self::max_size), or that cannot be read back as `T`, is returned to its caller and not kept, with a
/// warning in the log: other callers get `Conflict`, and nothing runs again.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::{Guard, Locker};
/// use std::time::Duration;
/// let locker = Locker::memory();
/// let day = Duration::from_secs(24 * 60 * 60);
/// let pay = |amount: u64| locker.once("payment 9f3c").keep(day).same(&[&amount]).refuse_after_crash();
/// let receipt = pay(100).run(async |_: &Guard| Ok::<_, locker::Error>("paid 100".to_owned())).await?;
/// let again = pay(100).run(async |_: &Guard| Ok::<_, locker::Error>("paid twice".to_owned())).await?;
/// assert_eq!((receipt, again), ("paid 100".into(), "paid 100".into()));
/// let other = pay(200).run(async |_: &Guard| Ok::<_, locker::Error>(String::new())).await;
/// assert_eq!(other.unwrap_err().kind(), locker::ErrorKind::Conflict);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a record does nothing until something is run"]
pub struct OnceKeep {
    locker: Locker,
    key: Key,
    origin: Origin,
    settings: Settings,
    keep: Duration,
    digest: Option<Id>,
    max_size: usize,
    after_crash: bool,
}

impl OnceKeep {
    /// Sets what calls with this key must have in common, in this order: a call with other values gets `Conflict`,
    /// whether the run is over or goes on. Default: nothing.
    pub fn same(self, parts: &[&dyn KeyPart]) -> Self {
        let mut digest = ArgumentsDigest::new(KeyFormat::Escaped);
        for part in parts {
            digest.part(*part);
        }
        self.same_digest(digest.finish())
    }

    #[doc(hidden)]
    pub fn same_digest(mut self, digest: u128) -> Self {
        self.digest = Some(Id::from(digest));
        self
    }

    /// Sets how many bytes of JSON text a result may have. Default 65,536, 1 to 524,288.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// Sets how long a call waits for a run of another caller. Default 10 s, or as the locker says. Zero never waits.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Refuses to run again after a run that has ended in another way than by its result, because its process died, its
    /// lease was lost, it panicked, or its future was dropped: calls get `Lost`, for as long as a result would have
    /// been kept. By default the next caller runs.
    pub fn refuse_after_crash(mut self) -> Self {
        self.after_crash = true;
        self
    }

    record_setters!();

    /// Runs `body`, or returns the result of another run.
    ///
    /// # Errors
    /// Those of the body, after which the next caller runs. `Conflict` if a call with this key has other values that
    /// must be the [`same`](Self::same), or the result was not kept or is no `T`, if the key belongs to another kind of
    /// primitive, or was deleted during the wait. `TimedOut` if another run has not ended in time; `Lost` if the run
    /// was lost, which drops the body, or if nobody knows whether the run before has succeeded
    /// ([`refuse_after_crash`](Self::refuse_after_crash)); `Misused` if a setting is wrong, or the call is inside of a
    /// run of this record; `Unavailable` if the store cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the body is dropped, and the next caller runs, unless
    /// [`refuse_after_crash`](Self::refuse_after_crash) is set.
    pub async fn run<T, E>(self, body: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let max_size = self.max_size;
        match self.asked()?.enter().await? {
            Began::Runs(run) => run.run(body, |result| encode(result, max_size)).await,
            Began::Done(done) => Ok(done.result()?),
        }
    }

    fn check(&self) -> Result<()> {
        check_kept(self.keep, self.max_size, self.after_crash)
    }
}

/// Refuses settings that no call accepts.
///
/// # Errors
/// `Misused` if one is out of range.
pub(crate) fn check_kept(keep: Duration, max_size: usize, after_crash: bool) -> Result<()> {
    if !(1..=MAX_VALUE).contains(&max_size) {
        return misused(format!("max_size {max_size} is out of range: give 1 to {MAX_VALUE}"));
    }
    if after_crash && keep.is_zero() {
        return misused("keep 0s forgets a crash at once: keep results, or run again after a crash");
    }
    check_range("keep", keep, Duration::ZERO)
}

impl Done {
    /// Returns the result.
    ///
    /// # Errors
    /// `Conflict` if it was not kept, or is no `T`.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T> {
        decode(&self.value).map_err(|error| self.named(error))
    }

    /// Returns the JSON text of the result.
    ///
    /// # Errors
    /// `Conflict` if it was not kept.
    pub(crate) fn text(&self) -> Result<&[u8]> {
        text(&self.value).map_err(|error| self.named(error))
    }

    /// Returns the error of a caller that cannot read the text.
    pub(crate) fn unread(&self) -> Error {
        self.named(unread())
    }

    fn named(&self, error: Error) -> Error {
        self.origin.of(error.with_key(self.key.as_str()))
    }
}

impl Asks for OnceKeep {
    fn asked(self) -> Result<Asked> {
        self.check().map_err(|error| self.origin.of(error.with_key(self.key.as_str())))?;
        let Self { locker, key, origin, mut settings, keep, digest, max_size, after_crash } = self;
        settings.max_retry = None;
        check_min_hold(&mut settings, &locker, after_crash)
            .map_err(|error| origin.of(error.with_key(key.as_str())))?;
        let request = LockRequest::new(locker, HoldKind::Record, key, settings).origin(origin);
        let mut asked = Asked::new(request, None, after_crash, keep);
        (asked.ask.digest, asked.ends.at_most) = (digest, max_size);
        Ok(asked)
    }
}
