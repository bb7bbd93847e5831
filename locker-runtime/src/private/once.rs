//! What the attribute `once_per` calls.

use super::{AsyncScope, Function, key_builder, scope::only_loss};
use crate::{
    handles::{OncePer, Origin},
    lease::{PlainBody, log_release},
    locker::Locker,
};
use futures_util::{FutureExt, TryFutureExt, future::Either};
use locker_core::{
    blocking::block_on,
    error::Result,
    key::{FunctionDigest, Key, KeyBuilder},
    panics,
    primitives::Value,
};
use std::{ops::Deref, time::Duration};

/// Returns the builder of a record's key; the arguments follow.
#[must_use]
pub fn once_per_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    key_builder(locker, function, ":once|")
}

/// Returns the request for the record `key`.
pub fn once_per(locker: &Locker, function: &'static Function, key: Key, every: Duration) -> OncePer {
    locker.record(key).origin(Origin::Function(function)).per(every)
}

/// A run of an async function.
#[derive(Debug)]
pub struct AsyncRun {
    scope: AsyncScope,
    keep: Duration,
}

impl Deref for AsyncRun {
    type Target = AsyncScope;

    fn deref(&self) -> &AsyncScope {
        &self.scope
    }
}

/// Begins a run. Returns `None` if the call is skipped.
///
/// # Errors
/// Those of `OncePer::run`, without those of the body.
pub fn begin(request: OncePer) -> impl Future<Output = Result<Option<AsyncRun>>> + Send {
    async move { request.enter().await }.map_ok(|run| {
        run.map(|run| {
            let (guard, keep) = run.into_parts();
            AsyncRun { scope: AsyncScope::one(guard), keep }
        })
    })
}

/// Ends a run, with success or without. An error is logged.
pub fn end(run: AsyncRun, is_success: bool) -> impl Future<Output = ()> + Send {
    ended(run, is_success).map(log_release)
}

fn ended(run: AsyncRun, is_success: bool) -> impl Future<Output = Result<()>> + Send {
    let AsyncRun { scope, keep } = run;
    if is_success {
        Either::Left(scope.into_guard().finish(Value::default(), keep))
    } else {
        Either::Right(scope.into_guard().release_bounded())
    }
}

/// Ends a run, with success or without, once that is certain. If the future is dropped, nobody knows until the end of
/// the lease.
///
/// # Errors
/// `Lost` if the run was over before; `Unavailable` if the store has not answered for a lease and a minute, or for a
/// third of a lease if the run has failed.
pub async fn end_certainly(run: AsyncRun, is_success: bool) -> Result<()> {
    let AsyncRun { scope, keep } = run;
    if is_success {
        scope.into_guard().finish_until_certain(Value::default(), keep).await
    } else {
        scope.into_guard().release().await
    }
}

/// The run of a plain function. Dropping it ends the run without success and blocks the thread, also after a panic.
#[derive(Debug)]
pub struct BlockingRun {
    /// `None` once it has ended.
    run: Option<AsyncRun>,
    body: Option<PlainBody>,
}

/// Begins a run and blocks the thread. Returns `None` if the call is skipped.
///
/// # Errors
/// As [`begin`].
pub fn begin_blocking(request: OncePer) -> Result<Option<BlockingRun>> {
    let run = block_on(begin(request))?;
    Ok(run.map(|run| {
        let body = Some(PlainBody::begin(run.scope.held()));
        BlockingRun { run: Some(run), body }
    }))
}

impl BlockingRun {
    /// Returns the guard that the option `guard = name` binds.
    ///
    /// # Panics
    /// Never: only methods that consume the run empty it.
    pub fn guard(&self) -> &crate::lease::Guard {
        self.run.as_ref().expect("the run is not empty before it ends").guard()
    }

    /// Ends the run, with success or without.
    ///
    /// # Errors
    /// `Lost` if the run was lost before its end. Any other error is logged.
    pub fn end(mut self, is_success: bool) -> Result<()> {
        self.body = None;
        let Some(run) = self.run.take() else { return Ok(()) };
        // A panic of the store must not replace the body's result.
        panics::contain(|| only_loss(block_on(ended(run, is_success)))).unwrap_or(Ok(()))
    }
}

impl Drop for BlockingRun {
    fn drop(&mut self) {
        self.body = None;
        if let Some(run) = self.run.take() {
            // A panic of the store must not abort during another panic.
            panics::contain(|| block_on(end(run, false)));
        }
    }
}

/// The result of a body: a `Result` says whether it is a success, and any other value is one.
#[derive(Debug)]
pub struct Ended<'a, T>(pub &'a T);

impl<T, E> Ended<'_, std::result::Result<T, E>> {
    /// Returns whether it is a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.0.is_ok()
    }
}

impl<T> Deref for Ended<'_, T> {
    type Target = Success;

    fn deref(&self) -> &Success {
        &Success(true)
    }
}

/// A value that is no `Result`.
#[derive(Debug)]
pub struct Success(bool);

impl Success {
    /// Returns `true`.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.0
    }
}

/// A return type of a function that may be skipped.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped: return `Result<(), E>` or `Result<Option<T>, E>`, or \
               add `on_skip = path`",
    label = "has no value for a skipped call"
)]
pub trait Skipped {
    /// Returns the value of a skipped call.
    fn skipped() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: SkippedValue, E> Skipped for std::result::Result<T, E> {
    fn skipped() -> Self {
        Ok(T::skipped())
    }
}

impl Skipped for () {
    fn skipped() {}
}

impl<T> Skipped for Option<T> {
    fn skipped() -> Self {
        None
    }
}

/// A value of a call that was skipped.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the call was skipped: return `Result<(), E>` or `Result<Option<T>, E>`, or \
               add `on_skip = path`",
    label = "has no value for a skipped call"
)]
pub trait SkippedValue {
    /// Returns it.
    fn skipped() -> Self;
}

impl SkippedValue for () {
    fn skipped() -> Self {}
}

impl<T> SkippedValue for Option<T> {
    fn skipped() -> Self {
        None
    }
}
