//! The guard of a hold.

use super::{
    hold::Hold,
    renewer::{Kept, Renewer},
};
use futures_util::{
    FutureExt,
    future::{Either, join_all, ready},
};
use locker_core::{
    background,
    blocking::block_on,
    clock::Timestamp,
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
    primitives::Value,
    process::OfProcess,
};
use once_cell::race::OnceBox;
use std::{
    fmt,
    future::{Future, poll_fn},
    mem::replace,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// A guard of a hold, which is renewed in the background while the guard lives.
///
/// [`release`](Guard::release) ends the hold and returns `Lost` if it was over before. Dropping the guard ends the hold
/// in the background; an error is then only logged. A guard that is leaked, such as by [`std::mem::forget`], is renewed
/// until the process ends, or `max_hold` has passed.
///
/// A forked child holds nothing of its parent: there the copy of a guard is not held, and dropping it does nothing.
///
/// ```
/// # use locker_runtime as locker;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> locker::Result<()> {
/// use locker::Locker;
/// let locker = Locker::memory();
/// let guard = locker.lock("invoice 7").acquire().await?;
/// println!("fence {}, {:?} of the lease left", guard.fence(), guard.remaining());
/// // Right before a step that cannot be undone.
/// guard.check()?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping the guard releases what it holds"]
pub struct Guard {
    pub(super) hold: Arc<Hold>,
    watched: Option<usize>,
    pub(super) release: Release,
    id: OnceBox<String>,
    slot: Option<Slot>,
    is_unknown_when_dropped: bool,
}

/// The slot of a run, and how many before it had no success.
#[derive(Clone, Copy, Debug)]
struct Slot {
    begins: Timestamp,
    missed: u64,
}

/// What the end of a guard does to the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// It ends it, or leaves it to `min_hold`.
    OnDrop,
    /// It ends it although `min_hold` is not over: what it was taken for has not begun.
    BeforeUse,
    /// It leaves it to its lease.
    OnExpiry,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, release: Release) -> Self {
        let watched = Some(Renewer::watch(&hold));
        Self { watched, hold, release, id: OnceBox::new(), slot: None, is_unknown_when_dropped: false }
    }

    /// Returns the key, with its prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// Returns the fencing token: a number that rises with every grant of this key. A resource that rejects fences
    /// below the highest it has seen is safe from holders whose lease is over. The traits `postgres::Fencing` and
    /// `mysql::Fencing` (features `postgres`, `mysql`) have statements that do so in a transaction. [Fence a
    /// write][page] has programs.
    ///
    /// Source: M. Kleppmann, "How to do distributed locking", 2016.
    ///
    /// [page]: https://github.com/locker-rs/locker/blob/main/docs/how-to/fence-a-write.md
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold.fence()
    }

    /// Returns the fence as a `bigint`. Two fences must not become equal, so that there is no nearest number.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn fence_in_sql(&self) -> i64 {
        i64::try_from(self.fence()).expect("no store of this crate grants fences above i64::MAX")
    }

    /// Returns the id of this hold, 32 hexadecimal digits. No other hold of the store has it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| Box::new(self.hold.id().to_string()))
    }

    /// Returns when the slot begins in which this run counts. `None` unless it is a run of `once_per`.
    #[must_use]
    pub fn slot(&self) -> Option<SystemTime> {
        self.slot.map(|slot| UNIX_EPOCH + Duration::from_micros(slot.begins.as_micros()))
    }

    /// Returns how many slots had no success, from the last one that had until this one. 0 if no run is remembered,
    /// which is for three slots after a success; and unless this is a run of `once_per`.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.slot.map_or(0, |slot| slot.missed)
    }

    pub(crate) fn in_slot(mut self, begins: Option<Timestamp>, missed: u64) -> Self {
        self.slot = begins.map(|begins| Slot { begins, missed });
        self
    }

    /// Leaves the run to its lease if the guard is dropped: nobody knows how far its body came.
    pub(crate) fn unknown_when_dropped(mut self) -> Self {
        self.is_unknown_when_dropped = true;
        self
    }

    /// Returns how much of the lease is left by the local clock, or zero if the lease may be over. Zero in a forked
    /// child of the holder.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns whether some of the lease is left by the local clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns `Ok` while [`is_held`](Self::is_held). Call it right before an operation that must not run after a loss.
    ///
    /// # Errors
    /// `Lost` if the lease may be over; `Misused` in a forked child of the holder.
    pub fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(self.loss_error()) }
    }

    /// Returns an error in a forked child of the holder.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.hold.is_of_this_process() { Ok(()) } else { Err(self.loss_error()) }
    }

    /// Returns the hold, unless it outlives the guard.
    pub(crate) fn held(&self) -> Option<&Arc<Hold>> {
        (self.release != Release::OnExpiry).then_some(&self.hold)
    }

    /// Returns the error of a hold that is lost.
    pub(crate) fn loss_error(&self) -> Error {
        self.hold.loss_error()
    }

    /// Waits until the hold is lost: it was not renewed in time, it was ended by force, or `max_hold` has passed. Does
    /// not return while the hold lasts. In a forked child of the holder it returns at once.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Ends the hold. One that has `min_hold` left lasts until that is over: this returns once the store knows so.
    ///
    /// # Errors
    /// `Lost` if it was over before. `Unavailable` if the store cannot be reached for a third of the lease: the release
    /// is then retried in the background for up to one lease plus one minute. `Misused` in a forked child of the
    /// holder: the holder keeps it.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the release continues in the background.
    pub fn release(self) -> impl Future<Output = Result<()>> + Send {
        let patience = self.hold.patience();
        self.release_within(patience)
    }

    /// Releases at the end of a function, which waits no longer than `command_timeout`.
    pub(crate) fn release_bounded(self) -> impl Future<Output = Result<()>> + Send {
        let patience = self.hold.release_timeout();
        self.release_within(patience)
    }

    async fn release_within(mut self, patience: Duration) -> Result<()> {
        self.is_unknown_when_dropped = false;
        self.check_process()?;
        if self.release == Release::OnExpiry {
            self.unwatch();
            return self.check();
        }
        if let Some(kept) = self.leave_to_min_hold() {
            let kept = OfProcess::new(Box::pin(self.hold.kept_within(kept, patience)));
            return kept.await.unwrap_or_else(|| Err(self.loss_error()));
        }
        match self.watched {
            // If this future is not polled, the renewing task releases the hold.
            Some(number) if self.hold.is_remote() => Renewer::release_by(number, self.hold.release_due()),
            _ => self.unwatch(),
        }
        let result = self.hold.release(patience).await;
        self.unwatch();
        if !result.as_ref().is_err_and(|error| error.is_temporary() || error.is_unsent()) {
            self.release = Release::OnExpiry;
        }
        result
    }

    /// Ends a run with success, and waits for that as long as [`release`](Self::release) does. Without an answer in
    /// time it goes on in the background, where the hold is renewed until the store has answered.
    ///
    /// # Errors
    /// `Lost` if the run was over before, and others may have run; `Unavailable` without an answer in time; `Misused`
    /// in a forked child.
    pub(crate) fn finish(self, value: Value, keep: Duration) -> impl Future<Output = Result<()>> + Send {
        if let Err(error) = self.check_process() {
            return Either::Left(ready(Err(error)));
        }
        let (hold, now, (tell, told)) = (self.hold(), Timestamp::now(), oneshot::channel());
        let mut finishing = Box::pin(async move {
            let ended = self.finish_until_certain(value, keep).await;
            // Its caller may not wait any longer.
            drop(tell.send(ended));
        });
        if (&mut finishing).now_or_never().is_none() {
            background::spawn(finishing);
        }
        Either::Right(async move {
            tokio::select! {
                biased;
                Ok(ended) = told => ended,
                () = background::sleep_from(now, now + hold.patience()) => Err(hold.unanswered()),
            }
        })
    }

    /// Ends a run with success, once that is certain. If the future is dropped, nobody knows until the end of the
    /// lease.
    ///
    /// # Errors
    /// `Lost` if the run was over before, and others may have run; `Unavailable` if the store has not answered for a
    /// lease and a minute.
    pub(crate) async fn finish_until_certain(mut self, value: Value, keep: Duration) -> Result<()> {
        // Whatever the store may have carried out, a failure is not reported any more.
        self.release = Release::OnExpiry;
        self.hold().record_success(value, keep).await
    }

    /// [`release`](Self::release) for callers that are not async: blocks this thread.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn release_blocking(self) -> Result<()> {
        block_on(self.release())
    }

    pub(crate) fn hold(&self) -> Arc<Hold> {
        Arc::clone(&self.hold)
    }

    /// Makes the hold last until the end of its lease.
    pub(crate) fn release_on_expiry(&mut self) {
        self.release = Release::OnExpiry;
    }

    /// Says whether what the hold was taken for has begun. One of several locks that are not all granted is not kept.
    pub(crate) fn set_begun(&mut self, has_begun: bool) {
        if self.release != Release::OnExpiry {
            self.release = if has_begun { Release::OnDrop } else { Release::BeforeUse };
        }
    }

    /// Leaves the hold to the renewing task if `min_hold` is not over.
    fn leave_to_min_hold(&mut self) -> Option<Kept> {
        let number = self.watched.filter(|_| self.release == Release::OnDrop)?;
        let kept = Renewer::keep(number, &self.hold)?;
        (self.watched, self.release) = (None, Release::OnExpiry);
        Some(kept)
    }

    fn unwatch(&mut self) {
        if let Some(number) = self.watched.take() {
            Renewer::forget(number);
        }
    }
}

/// Polls `body` while the hold lasts. Returns `None` once `lost` is ready or `is_held` is false; the body is not polled
/// again then. `is_held` is asked before each poll but the first, because a process that was stopped may be polled
/// after its lease and before `lost` is ready.
pub(crate) async fn while_held<F: Future>(
    mut body: Pin<&mut F>,
    mut lost: Pin<&mut impl Future<Output = ()>>,
    is_held: impl Fn() -> bool,
) -> Option<F::Output> {
    let mut has_begun = false;
    poll_fn(|context| {
        if replace(&mut has_begun, true) && !is_held() {
            return Poll::Ready(None);
        }
        match body.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => lost.as_mut().poll(context).map(|()| None),
        }
    })
    .await
}

/// Releases all guards at the same time, the last one first. Returns the [`worst`] error.
pub(crate) async fn release_all(guards: impl DoubleEndedIterator<Item = Guard>) -> Result<()> {
    worst(join_all(guards.rev().map(Guard::release_bounded)).await)
}

/// Logs the error of the end of a run, the result of which is returned.
pub(crate) fn log_unrecorded(ended: Result<()>) {
    if let Err(error) = ended {
        warning!(%error, "the success of a run is not recorded: the next call may run again");
        drop(error);
    }
}

/// Logs the error of a release after a body, the result of which is kept.
pub(crate) fn log_release(released: Result<()>) {
    if let Err(error) = released {
        warning!(%error, "release failed; the function's result is kept");
        drop(error);
    }
}

/// Returns the first `Lost`, or else the first error. A lease that was lost must not hide behind a release that the
/// store did not answer, which ends by itself.
pub(crate) fn worst(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let errors = results.into_iter().filter_map(Result::err);
    errors.min_by_key(|error| error.kind() != ErrorKind::Lost).map_or(Ok(()), Err)
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.hold.is_of_this_process() {
            return;
        }
        if self.is_unknown_when_dropped {
            return self.unwatch();
        }
        // The background calls go on without a receiver.
        drop(self.leave_to_min_hold());
        self.unwatch();
        if self.release != Release::OnExpiry {
            self.hold.release_later();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
