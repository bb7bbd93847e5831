//! What a function holds while its body runs, and how that ends.

use crate::{
    blocking::block_on,
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
    handles::LockRequest,
    lease::{Guard, release_all, while_held},
    panics,
};
use futures_util::{
    FutureExt, TryFutureExt,
    future::{Either, ready},
};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// One guard, or those of `each`.
#[derive(Debug)]
pub struct Hold {
    guard: Guard,
    others: Vec<Guard>,
}

impl Hold {
    fn one(guard: Guard) -> Self {
        Self { guard, others: Vec::new() }
    }

    pub(super) fn of(mut guards: Vec<Guard>) -> Option<Self> {
        let guard = guards.pop()?;
        Some(Self { guard, others: guards })
    }

    /// What `guard = name` binds.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    async fn lost(&self) {
        if self.others.is_empty() {
            return self.guard.lost().await;
        }
        let mut all: Vec<_> = self.guards().map(|guard| Box::pin(guard.lost())).collect();
        poll_fn(|context| {
            let mut any = all.iter_mut().map(|lost| lost.as_mut().poll(context));
            any.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await;
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        std::iter::once(&self.guard).chain(&self.others)
    }

    fn check(&self) -> Result<()> {
        self.guards().try_for_each(Guard::check)
    }

    /// Releases all of them, and waits for that no longer than the end of a function may take.
    fn release(self) -> impl Future<Output = Result<()>> + Send {
        if self.others.is_empty() {
            return Either::Left(self.guard.release_bounded());
        }
        Either::Right(Box::pin(release_all(self.others.into_iter().chain([self.guard]))))
    }

    fn release_blocking(self) -> Result<()> {
        block_on(self.release())
    }
}

// Combinators instead of async functions: those would store their argument twice in every caller's future.

/// Waits for the lock.
///
/// # Errors
/// Those of `acquire`.
pub fn acquire(request: LockRequest) -> impl Future<Output = Result<Hold>> + Send {
    request.acquire().map_ok(Hold::one)
}

/// Waits for the lock, blocking the thread.
///
/// # Errors
/// Those of `acquire_blocking`.
pub fn acquire_blocking(request: LockRequest) -> Result<Holder> {
    request.acquire_blocking().map(|guard| Holder::new(Hold::one(guard)))
}

/// Runs `body` until it ends or the hold is known to be lost; then it is not polled again.
///
/// # Errors
/// `Lost`.
pub async fn cancel_on_lost<F: Future>(hold: &Hold, body: Pin<&mut F>) -> Result<F::Output> {
    while_held(body, pin!(hold.lost()), || hold.check().is_ok()).await.ok_or_else(|| loss_error(hold))
}

fn loss_error(hold: &Hold) -> Error {
    let message = "the lease ended before its holder released it";
    let known = || Error::new(ErrorKind::Lost, message).with_key(hold.guard.key());
    hold.check().err().unwrap_or_else(known)
}

/// Releases after a body whose result stands; what went wrong is logged.
pub fn leave(hold: Hold) -> impl Future<Output = ()> + Send {
    hold.release().map(log)
}

/// Releases after a body whose result does not stand when the hold was lost before.
///
/// # Errors
/// `Lost`.
pub fn leave_checked(hold: Hold) -> impl Future<Output = Result<()>> + Send {
    match hold.check() {
        Ok(()) => Either::Left(hold.release().map(only_loss)),
        lost => Either::Right(ready(lost)),
    }
}

/// Any other release error must not mask the body's result.
fn only_loss(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if error.kind() == ErrorKind::Lost => Err(error),
        other => {
            log(other);
            Ok(())
        }
    }
}

fn log(released: Result<()>) {
    if let Err(error) = released {
        warning!(%error, "the function's result stands although its lock did not end as it should");
        drop(error);
    }
}

/// Does nothing: that it is mentioned moves the value into the block around a body.
pub const fn capture<T>(_: &T) {}

/// Calls `body` at once: what `return` and `?` in it leave is only the body.
pub fn call<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// A hold that is released, blocking, when the function ends in whatever way.
#[derive(Debug)]
pub struct Holder(Option<Hold>);

impl Holder {
    pub(super) fn new(hold: Hold) -> Self {
        Self(Some(hold))
    }

    /// What `guard = name` binds.
    ///
    /// # Panics
    /// Never: only what takes `self` empties it.
    pub fn guard(&self) -> &Guard {
        self.0.as_ref().expect("held until the function ends").guard()
    }

    /// Releases after a body whose result does not stand when the hold was lost before.
    ///
    /// # Errors
    /// `Lost`.
    pub fn leave_checked(mut self) -> Result<()> {
        let Some(hold) = self.0.take() else { return Ok(()) };
        hold.check()?;
        only_loss(hold.release_blocking())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            // Neither a result nor another panic is lost to a store that panics.
            panics::contain(|| log(hold.release_blocking()));
        }
    }
}
