//! What the attribute `once_per` calls.

use super::{AsyncScope, Function, key_builder, scope::only_loss};
#[cfg(feature = "idempotent")]
use crate::handles::{OnceKeep, lock::Done, once};
use crate::{
    handles::{
        OncePer, Origin,
        once::{Asks, Began, Ends},
    },
    lease::{PlainBody, log_release, log_unrecorded},
    locker::Locker,
};
use futures_util::{FutureExt, TryFutureExt, future::Either};
#[cfg(feature = "idempotent")]
use locker_core::key::{ArgumentsDigest, KeyFormat};
use locker_core::{
    blocking::block_on,
    error::Result,
    key::{FunctionDigest, Key, KeyBuilder},
    panics,
    primitives::Value,
};
#[cfg(feature = "idempotent")]
use serde::{Serialize, de::DeserializeOwned};
use std::{ops::Deref, time::Duration};

/// Returns the builder of a record's key; the arguments follow.
#[must_use]
pub fn once_key<'a>(locker: &'a Locker, function: &'a FunctionDigest) -> KeyBuilder<'a> {
    key_builder(locker, function, ":once|")
}

/// Returns the request for the record `key`.
pub fn once_per(locker: &Locker, function: &'static Function, key: Key, every: Duration) -> OncePer {
    locker.record(key).origin(Origin::Function(function)).per(every)
}

/// Returns the builder of what calls must have in common.
#[cfg(feature = "idempotent")]
#[must_use]
pub fn same() -> ArgumentsDigest {
    ArgumentsDigest::new(KeyFormat::Escaped)
}

/// Returns the request for the record `key`, whose results are kept so long.
#[cfg(feature = "idempotent")]
pub fn idempotent(locker: &Locker, function: &'static Function, key: Key, keep: Duration) -> OnceKeep {
    locker.record(key).origin(Origin::Function(function)).keep(keep)
}

/// A run of an async function.
#[derive(Debug)]
pub struct AsyncRun {
    scope: AsyncScope,
    ends: Ends,
}

impl Deref for AsyncRun {
    type Target = AsyncScope;

    fn deref(&self) -> &AsyncScope {
        &self.scope
    }
}

/// Begins a run, or returns the result of another one.
///
/// # Errors
/// Those of `OncePer::run` and `OnceKeep::run`, without those of the body and of reading a result.
pub fn enter(request: impl Asks) -> impl Future<Output = Result<Began<AsyncRun>>> + Send {
    async move { request.asked()?.enter().await }.map_ok(|began| {
        began.map(|run| {
            let (guard, ends) = run.into_parts();
            AsyncRun { scope: AsyncScope::one(guard), ends }
        })
    })
}

/// Begins a run. Returns `None` if the call is skipped.
///
/// # Errors
/// As [`enter`].
pub fn begin(request: OncePer) -> impl Future<Output = Result<Option<AsyncRun>>> + Send {
    enter(request).map_ok(Began::run)
}

/// Ends a run, with success or without. An error is logged.
pub fn end(run: AsyncRun, is_success: bool) -> impl Future<Output = ()> + Send {
    end_with(run, is_success.then(Value::default))
}

/// Ends a run with this result, or without success. An error is logged.
pub fn end_with(run: AsyncRun, result: Option<Value>) -> impl Future<Output = ()> + Send {
    let log = if result.is_some() { log_unrecorded } else { log_release };
    ended(run, result).map(log)
}

fn ended(run: AsyncRun, result: Option<Value>) -> impl Future<Output = Result<()>> + Send {
    let AsyncRun { scope, ends: Ends { keep, .. } } = run;
    match result {
        Some(value) => Either::Left(scope.into_guard().finish(value, keep)),
        None => Either::Right(scope.into_guard().release_bounded()),
    }
}

/// Ends a run, with success or without, once that is certain. If the future is dropped, nobody knows until the end of
/// the lease.
///
/// # Errors
/// `Lost` if the run was over before; `Unavailable` if the store has not answered for a lease and a minute, or for a
/// third of a lease if the run has failed.
pub async fn end_certainly(run: AsyncRun, is_success: bool) -> Result<()> {
    let AsyncRun { scope, ends: Ends { keep, .. } } = run;
    if is_success {
        scope.into_guard().finish_until_certain(Value::default(), keep).await
    } else {
        scope.into_guard().release().await
    }
}

/// The run of a plain function. Dropping it ends the run without success and blocks the thread, also after a panic, or
/// leaves it to its lease if crashes are refused.
#[derive(Debug)]
pub struct BlockingRun {
    /// `None` once it has ended.
    run: Option<AsyncRun>,
    body: Option<PlainBody>,
}

/// Does what [`enter`] does, and blocks the thread.
///
/// # Errors
/// As [`enter`].
pub fn enter_blocking(request: impl Asks) -> Result<Began<BlockingRun>> {
    let began = block_on(enter(request))?;
    Ok(began.map(|run| {
        let body = Some(PlainBody::begin(run.scope.held()));
        BlockingRun { run: Some(run), body }
    }))
}

/// Does what [`begin`] does, and blocks the thread.
///
/// # Errors
/// As [`enter`].
pub fn begin_blocking(request: OncePer) -> Result<Option<BlockingRun>> {
    enter_blocking(request).map(Began::run)
}

impl Deref for BlockingRun {
    type Target = AsyncRun;

    /// # Panics
    /// Never: only methods that consume the run empty it.
    fn deref(&self) -> &AsyncRun {
        self.run.as_ref().expect("the run is not empty before it ends")
    }
}

impl BlockingRun {
    /// Ends the run, with success or without.
    ///
    /// # Errors
    /// As [`end_with`](Self::end_with).
    pub fn end(self, is_success: bool) -> Result<()> {
        self.end_with(is_success.then(Value::default))
    }

    /// Ends the run with this result, or without success.
    ///
    /// # Errors
    /// `Lost` if the run was lost before its end; `Misused` in a forked child. Any other error is logged.
    pub fn end_with(mut self, result: Option<Value>) -> Result<()> {
        self.body = None;
        let Some(run) = self.run.take() else { return Ok(()) };
        run.guard().check_process()?;
        // A panic of the store must not replace the body's result.
        panics::contain(|| only_loss(block_on(ended(run, result)))).unwrap_or(Ok(()))
    }
}

impl Drop for BlockingRun {
    fn drop(&mut self) {
        self.body = None;
        if let Some(run) = self.run.take() {
            if run.ends.refuses {
                return;
            }
            // A panic of the store must not abort during another panic.
            panics::contain(|| block_on(end(run, false)));
        }
    }
}

/// The result of a body: a `Result` says whether it is a success, and any other value is one.
#[derive(Debug)]
pub struct Ended<'a, T>(pub &'a T);

impl<T, E> Ended<'_, std::result::Result<T, E>> {
    /// Returns what is recorded if it is a success.
    #[must_use]
    pub fn success(&self) -> Option<Value> {
        self.0.is_ok().then(Value::default)
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
    /// Returns what is recorded if it is a success.
    #[must_use]
    pub fn success(&self) -> Option<Value> {
        self.0.then(Value::default)
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

/// A return type whose value is kept for other calls.
#[cfg(feature = "idempotent")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept for other calls: return `Result<T, E>`, where `T` is `Serialize` and \
               `DeserializeOwned`",
    label = "cannot be kept for other calls"
)]
pub trait Kept: Sized {
    /// Returns the result as it is kept, or `None` if it is an error.
    fn kept(&self, run: &AsyncRun) -> Option<Value>;

    /// Returns the result of another run.
    ///
    /// # Errors
    /// `Conflict` if it was not kept, or is of another type.
    fn replayed(done: &Done) -> Result<Self>;
}

#[cfg(feature = "idempotent")]
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned, E> Kept for std::result::Result<T, E> {
    fn kept(&self, run: &AsyncRun) -> Option<Value> {
        self.as_ref().ok().map(|result| once::encode(result, run.ends.at_most))
    }

    fn replayed(done: &Done) -> Result<Self> {
        done.result().map(Ok)
    }
}
