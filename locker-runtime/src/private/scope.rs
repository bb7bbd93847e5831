//! The scope of an attribute: the guards that are held while the body of a function runs, and their release.

use crate::{
    handles::LockRequest,
    lease::{AsyncBody, Guard, Held, PlainBody, log_release, release_all, while_held},
};
use futures_util::{
    FutureExt, TryFutureExt,
    future::{Either, ready},
};
use locker_core::{
    blocking::block_on,
    error::{Error, ErrorKind, Result},
    panics,
};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// The guards of an async function: one, or several with `each`.
#[derive(Debug)]
pub struct AsyncScope {
    guard: Guard,
    others: Vec<Guard>,
}

impl AsyncScope {
    pub(super) fn one(guard: Guard) -> Self {
        Self { guard, others: Vec::new() }
    }

    pub(super) fn of(mut guards: Vec<Guard>) -> Option<Self> {
        let guard = guards.pop()?;
        Some(Self { guard, others: guards })
    }

    /// Returns the guard that the option `guard = name` binds.
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

    /// Returns the guard of one hold.
    pub(super) fn into_guard(self) -> Guard {
        self.guard
    }

    /// Returns what a body in this scope holds.
    pub(super) fn held(&self) -> Option<Held> {
        Held::by(self.guards())
    }

    fn check(&self) -> Result<()> {
        self.guards().try_for_each(Guard::check)
    }

    /// Releases all guards and waits for that with the bound that applies to the end of a function.
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

// No async functions: see "Future size" in locker.rs.

/// Waits for the lock.
///
/// # Errors
/// Those of `acquire`.
pub fn acquire(request: LockRequest) -> impl Future<Output = Result<AsyncScope>> + Send {
    request.acquire().map_ok(AsyncScope::one)
}

/// Waits for the lock and blocks the thread.
///
/// # Errors
/// Those of `acquire_blocking`.
pub fn acquire_blocking(request: LockRequest) -> Result<BlockingScope> {
    request.acquire_blocking().map(|guard| BlockingScope::new(AsyncScope::one(guard)))
}

/// Runs `body` until it ends or the hold is lost. After a loss `body` is not polled again.
///
/// # Errors
/// `Lost` if the hold was lost first.
pub async fn cancel_on_lost<F: Future>(scope: &AsyncScope, body: Pin<&mut F>) -> Result<F::Output> {
    let body = pin!(run(scope, body));
    while_held(body, pin!(scope.lost()), || scope.check().is_ok()).await.ok_or_else(|| loss_error(scope))
}

/// Runs `body` to its end, also after a loss.
pub fn run<'a, F: Future>(
    scope: &AsyncScope,
    body: Pin<&'a mut F>,
) -> impl Future<Output = F::Output> + use<'a, F> {
    AsyncBody::new(body, scope.held())
}

fn loss_error(scope: &AsyncScope) -> Error {
    scope.check().err().unwrap_or_else(|| scope.guard.loss_error())
}

/// Releases after a body, the result of which is kept. An error of the release is logged.
pub fn leave(scope: AsyncScope) -> impl Future<Output = ()> + Send {
    scope.release().map(log_release)
}

/// Releases after a body, the result of which is discarded if the hold was lost.
///
/// # Errors
/// `Lost` if the hold was lost before the release. Any other error is logged.
pub fn leave_checked(scope: AsyncScope) -> impl Future<Output = Result<()>> + Send {
    match scope.check() {
        Ok(()) => Either::Left(scope.release().map(only_loss)),
        lost => Either::Right(ready(lost)),
    }
}

/// Keeps `Lost` and logs any other error, which must not mask the body's result.
pub(super) fn only_loss(released: Result<()>) -> Result<()> {
    match released {
        Err(error) if error.kind() == ErrorKind::Lost => Err(error),
        other => {
            log_release(other);
            Ok(())
        }
    }
}

/// Does nothing. Generated code calls it to capture the value in the block around a body.
pub const fn capture<T>(_: &T) {}

/// Calls `body`, so that `return` and `?` leave only the body.
pub fn call<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// The guards of a plain function. Dropping the scope releases them and blocks the thread, also after a panic.
#[derive(Debug)]
pub struct BlockingScope {
    /// `None` once it has ended.
    scope: Option<AsyncScope>,
    body: Option<PlainBody>,
}

impl BlockingScope {
    pub(super) fn new(scope: AsyncScope) -> Self {
        let body = Some(PlainBody::begin(scope.held()));
        Self { scope: Some(scope), body }
    }

    /// Ends the body.
    fn take(&mut self) -> Option<AsyncScope> {
        self.body = None;
        self.scope.take()
    }

    /// Returns the guard that the option `guard = name` binds.
    ///
    /// # Panics
    /// Never: only methods that consume the scope empty it.
    pub fn guard(&self) -> &Guard {
        self.scope.as_ref().expect("the scope is not empty before it ends").guard()
    }

    /// Releases after a body, the result of which is discarded if the hold was lost.
    ///
    /// # Errors
    /// `Lost` if the hold was lost before the release. Any other error is logged.
    pub fn leave_checked(mut self) -> Result<()> {
        let Some(scope) = self.take() else { return Ok(()) };
        scope.check()?;
        // A panic of the store must not replace the body's result.
        panics::contain(|| only_loss(scope.release_blocking())).unwrap_or(Ok(()))
    }
}

impl Drop for BlockingScope {
    fn drop(&mut self) {
        if let Some(scope) = self.take() {
            // A panic of the store must not replace the body's result, nor abort during another panic.
            panics::contain(|| log_release(scope.release_blocking()));
        }
    }
}
