//! What a caller holds.

use super::{hold::Hold, renewer::Renewer};
use crate::{blocking::block_on, error::Result};
use futures_util::future::join_all;
use once_cell::sync::OnceCell;
use std::{
    fmt,
    future::{Future, poll_fn},
    mem::replace,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

/// Proof of a hold, renewed in the background while it lives.
///
/// [`release`](Guard::release) ends it and says whether it lasted until then. Dropping it ends it too, from the
/// background: an error is then only logged.
#[must_use = "dropping the guard releases what it holds"]
pub struct Guard {
    hold: Arc<Hold>,
    watched: Option<usize>,
    release: Release,
    id: OnceCell<String>,
}

/// What the end of a guard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    OnDrop,
    OnExpiry,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, release: Release) -> Self {
        Self { watched: Some(Renewer::watch(&hold)), hold, release, id: OnceCell::new() }
    }

    /// The key, prefix included.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// A number that rises with every grant of this key: a resource that refuses numbers below the highest it has
    /// seen is safe from holders that do not know yet that they are too late.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold.fence()
    }

    /// The id of this hold, 32 hexadecimal digits. No other hold of the store has it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| self.hold.id().to_string())
    }

    /// How much of the lease is surely left; zero when it may be over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether the lease is surely not over yet.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// `Ok` while [`is_held`](Self::is_held): to be asked before a step that must not happen after a loss.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(self.hold.loss_error()) }
    }

    /// Waits until the hold is lost: its lease could not be renewed in time, somebody ended it, or `max_hold` has
    /// passed. Never returns while all is well.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Ends the hold.
    ///
    /// # Errors
    /// `Lost` when it was over before; `Unavailable` when the store cannot be reached for a third of the lease:
    /// the release is then tried on in the background, for as long as a lease and a minute.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped, the release goes on in the background.
    pub fn release(self) -> impl Future<Output = Result<()>> + Send {
        let patience = self.hold.patience();
        self.release_within(patience)
    }

    /// The release at the end of something else, which does not wait long for it.
    pub(crate) fn leave(self) -> impl Future<Output = Result<()>> + Send {
        let patience = self.hold.release_timeout();
        self.release_within(patience)
    }

    async fn release_within(mut self, patience: Duration) -> Result<()> {
        if self.release == Release::OnExpiry {
            self.unwatch();
            return self.check();
        }
        match self.watched {
            // A future that is not polled must not keep from others what it was to release.
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

    /// Leaves the hold to the end of its lease.
    pub(crate) fn release_on_expiry(&mut self) {
        self.release = Release::OnExpiry;
    }

    fn unwatch(&mut self) {
        if let Some(number) = self.watched.take() {
            Renewer::forget(number);
        }
    }
}

/// What `body` ends with; `None` if the hold was over before, as `lost` tells, or `is_held`: what the body waits for may
/// come after a loss that whoever stood still meanwhile has not been told of. It is not polled again then.
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

/// Leaves all of them, the last one first, and tells the first error. None waits for another.
pub(crate) async fn leave_together(guards: impl DoubleEndedIterator<Item = Guard>) -> Result<()> {
    join_all(guards.rev().map(Guard::leave)).await.into_iter().collect()
}

impl Drop for Guard {
    fn drop(&mut self) {
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
