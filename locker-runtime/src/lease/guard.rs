//! The guard of a hold.

use super::{hold::Hold, renewer::Renewer};
use futures_util::future::join_all;
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
};
use once_cell::race::OnceBox;
use std::{
    fmt,
    future::{Future, poll_fn},
    mem::replace,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// A guard of a hold, which is renewed in the background while the guard lives.
///
/// [`release`](Guard::release) ends the hold and returns `Lost` if it was over before. Dropping the guard ends the hold
/// in the background; an error is then only logged. A guard that is leaked, such as by [`std::mem::forget`], is renewed
/// until the process ends, or `max_hold` has passed.
///
/// A forked child holds nothing of its parent: there the copy of a guard is not held, and dropping it does nothing.
#[must_use = "dropping the guard releases what it holds"]
pub struct Guard {
    pub(super) hold: Arc<Hold>,
    watched: Option<usize>,
    pub(super) release: Release,
    id: OnceBox<String>,
}

/// What the end of a guard does to the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    OnDrop,
    OnExpiry,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, release: Release) -> Self {
        Self { watched: Some(Renewer::watch(&hold)), hold, release, id: OnceBox::new() }
    }

    /// Returns the key, with its prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// Returns the fencing token: a number that rises with every grant of this key. A resource that rejects fences
    /// below the highest it has seen is safe from holders whose lease is over.
    ///
    /// Source: M. Kleppmann, "How to do distributed locking", 2016.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold.fence()
    }

    /// Returns a statement for a transaction in PostgreSQL, and its two parameters: the key and the fence.
    ///
    /// `locker_fence` records the fence in the database of the transaction. It fails if a holder with a higher fence
    /// has recorded its own there, so that transactions under this lock take effect in the order of their fences. Run
    /// it first: a transaction under the same lock that has recorded a lower fence is then waited for, and all later
    /// reads see its writes.
    ///
    /// The lock may be in any store. The function has to be in the database of the transaction, where the first
    /// `Locker::connect("postgres://..")` creates it. It is meant for locks and for the writers of read/write locks:
    /// of several holders at a time, only the latest one passes. See [`held_sql`](Self::held_sql) for a check that
    /// also keeps the next holder out until the commit.
    ///
    /// # Errors
    /// The statement fails with SQLSTATE `LK001` if a holder with a higher fence was here. The transaction must be
    /// rolled back, and a retry needs a new hold.
    ///
    /// # Panics
    /// If the fence is above [`i64::MAX`]. No store of this crate grants such a fence for centuries: fences are
    /// microseconds since 1970, or little more, and on etcd rise by 65,536 with each write of the cluster.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn transfer() -> locker_runtime::Result<()> {
    /// # let locker = locker_runtime::Locker::connect("redis://127.0.0.1").await?;
    /// let guard = locker.lock("account 7").acquire().await?;
    /// let (statement, key, fence) = guard.fence_sql();
    /// // With tokio-postgres: transaction.execute(statement, &[&key, &fence]).await?;
    /// assert_eq!((statement, key), ("SELECT locker_fence($1, $2)", guard.key()));
    /// assert_eq!(u64::try_from(fence), Ok(guard.fence()));
    /// # guard.release().await
    /// # }
    /// ```
    #[must_use]
    pub fn fence_sql(&self) -> (&'static str, &str, i64) {
        ("SELECT locker_fence($1, $2)", self.key(), self.bigint_fence())
    }

    /// Returns a statement for a transaction in the database that keeps this lock, and its two parameters: the key and
    /// the fence.
    ///
    /// `locker_held` fails unless this hold is in force by the clock of the database. It also keeps the row of the lock
    /// shared until the transaction ends: no other holder is granted the lock before that, even if the lease ends
    /// meanwhile. Run it last, right before the commit, because it delays renewals and the release as well.
    ///
    /// The store of the lock must be this very database, `postgres://`. Only locks have such a row: the statement fails
    /// for permits of a semaphore and for both sides of a read/write lock. Use [`fence_sql`](Self::fence_sql) for them.
    ///
    /// # Errors
    /// The statement fails with SQLSTATE `LK002` if the lease is over, if the hold was released or ended by force, or
    /// if its lock is in another store. In an isolation level above `READ COMMITTED`, it fails with `40001` if the hold
    /// was renewed since the transaction began. The transaction must be rolled back.
    ///
    /// # Panics
    /// As [`fence_sql`](Self::fence_sql).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn transfer() -> locker_runtime::Result<()> {
    /// # let locker = locker_runtime::Locker::connect("postgres://shop@127.0.0.1/shop").await?;
    /// let guard = locker.lock("account 7").acquire().await?;
    /// let (statement, key, fence) = guard.held_sql();
    /// // With tokio-postgres: transaction.execute(statement, &[&key, &fence]).await?;
    /// assert_eq!((statement, key), ("SELECT locker_held($1, $2)", guard.key()));
    /// # guard.release().await
    /// # }
    /// ```
    #[must_use]
    pub fn held_sql(&self) -> (&'static str, &str, i64) {
        ("SELECT locker_held($1, $2)", self.key(), self.bigint_fence())
    }

    /// Returns the fence as a `bigint`. Two fences must not become equal, so that there is no nearest number.
    fn bigint_fence(&self) -> i64 {
        i64::try_from(self.fence()).expect("no store of this crate grants fences above i64::MAX")
    }

    /// Returns the id of this hold, 32 hexadecimal digits. No other hold of the store has it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| Box::new(self.hold.id().to_string()))
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

    /// Ends the hold.
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
        if !self.hold.is_of_this_process() {
            return Err(self.loss_error());
        }
        if self.release == Release::OnExpiry {
            self.unwatch();
            return self.check();
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
        self.unwatch();
        if self.release == Release::OnDrop {
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
