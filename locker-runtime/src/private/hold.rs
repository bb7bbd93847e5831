//! What a function holds while its body runs, and how that ends.

use crate::{Error, ErrorKind, Guard, Result, locker::LockRequest};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// One guard.
#[derive(Debug)]
pub struct Hold {
    guard: Guard,
}

impl Hold {
    /// What `guard = name` binds.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    async fn lost(&self) {
        self.guard.lost().await;
    }

    fn check(&self) -> Result<()> {
        self.guard.check()
    }

    async fn release(self) -> Result<()> {
        self.guard.release().await
    }

    fn release_blocking(self) -> Result<()> {
        self.guard.release_blocking()
    }
}

/// Waits for the lock.
///
/// # Errors
/// Those of `acquire`.
pub async fn acquire(request: LockRequest) -> Result<Hold> {
    request.acquire().await.map(|guard| Hold { guard })
}

/// Waits for the lock, blocking the thread.
///
/// # Errors
/// Those of `acquire_blocking`.
pub fn acquire_blocking(request: LockRequest) -> Result<Holder> {
    request.acquire_blocking().map(|guard| Holder(Some(Hold { guard })))
}

/// Runs `body` until it ends or the hold is lost, whichever is known first; then it is not polled again.
///
/// # Errors
/// `Lost`.
pub async fn cancel_on_lost<F: Future>(hold: &Hold, mut body: Pin<&mut F>) -> Result<F::Output> {
    let mut lost = pin!(hold.lost());
    poll_fn(|context| {
        if let Poll::Ready(output) = body.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        lost.as_mut().poll(context).map(|()| Err(loss(hold)))
    })
    .await
}

fn loss(hold: &Hold) -> Error {
    let unknown = || Error::new(ErrorKind::Lost, "the lease ended while the function ran").with_key(hold.guard.key());
    hold.check().err().unwrap_or_else(unknown)
}

/// Releases after a body whose result stands; what went wrong is logged.
pub async fn leave(hold: Hold) {
    if let Err(error) = hold.release().await {
        warn(&error);
    }
}

/// Releases after a body whose result does not stand when the hold was lost before.
///
/// # Errors
/// `Lost`.
pub async fn leave_checked(hold: Hold) -> Result<()> {
    hold.check()?;
    lost_only(hold.release().await)
}

/// Only a loss replaces the body's result; any other release error is logged.
fn lost_only(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld) => Err(error),
        Err(error) => {
            warn(&error);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
fn warn(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(%error, "the function ran to its end without holding its lock to the end");
}

/// A hold that is released, blocking, when the function ends in whatever way.
#[derive(Debug)]
pub struct Holder(Option<Hold>);

impl Holder {
    /// What `guard = name` binds.
    ///
    /// # Panics
    /// Never: only `leave_checked` and `drop` empty it.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        self.0.as_ref().expect("held until it is left").guard()
    }

    /// Releases after a body whose result does not stand when the hold was lost before.
    ///
    /// # Errors
    /// `Lost`.
    pub fn leave_checked(mut self) -> Result<()> {
        let Some(hold) = self.0.take() else { return Ok(()) };
        hold.check()?;
        lost_only(hold.release_blocking())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(Hold::release_blocking) {
            warn(&error);
        }
    }
}
