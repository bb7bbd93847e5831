//! The locker of the whole process.

use crate::{locker::Locker, stores::failing::FailingStore};
use locker_core::{
    error::{Error, Result},
    once::Once,
    process::PerProcess,
};

static GLOBAL: PerProcess<Global> = PerProcess::new();

struct Global {
    locker: Locker,
    /// Whether the application has set it. A forked child cannot open it again by itself.
    is_set: bool,
}

/// Returns the locker that `LOCKER_URL` names. It is chosen at the first use, unless that fails with a temporary error.
fn from_environment() -> Result<&'static Locker> {
    static DECIDED: PerProcess<Result<Locker>> = PerProcess::new();
    let decided = DECIDED.cell().get_or_try_init(|| match Locker::builder().lazy().build_blocking() {
        Err(error) if error.is_temporary() => Err(error),
        decided => Ok(decided),
    });
    decided?.as_ref().map_err(Clone::clone)
}

/// Returns a locker on which every call fails with `error`.
fn failing(error: Error) -> &'static Locker {
    static FOR_GOOD: PerProcess<Locker> = PerProcess::new();
    static FOR_NOW: PerProcess<Locker> = PerProcess::new();
    let locker: &'static Once<_> = if error.is_temporary() { FOR_NOW.cell() } else { FOR_GOOD.cell() };
    locker.get_or_init(|| Locker::with_defaults(FailingStore::new(error)))
}

/// Sets the locker that [`global`] returns. It can be set once per process. A forked child sets it again, to a locker
/// that it has made.
///
/// # Errors
/// Returns `locker` if one is set already, or [`global`] was used before. If `LOCKER_URL` is invalid, [`global`] has
/// not been fixed yet, so setting it still succeeds.
///
/// ```
/// # use locker_runtime as locker;
/// locker::set_global(locker::Locker::memory()).expect("the global locker is set once");
/// assert!(locker::set_global(locker::Locker::memory()).is_err());
/// ```
pub fn set_global(locker: Locker) -> Result<(), Locker> {
    GLOBAL.cell().set(Global { locker, is_set: true }).map_err(|global| global.locker)
}

/// Returns the locker of the process, which attributes without `locker = ..` use.
///
/// It is the locker that was passed to [`set_global`], else one on the store that the environment variable `LOCKER_URL`
/// names, else one on `memory://`, with one warning that this locks within one process only. The warning goes to
/// standard error if the thread has no `tracing` subscriber. If `LOCKER_URL` is invalid, every call on the locker fails
/// with an error that names the variable.
///
/// A forked child chooses again. If its parent has called [`set_global`] and the child has not, every call fails with
/// `Misused`: the child must not end up with another store than its parent.
#[must_use]
pub fn global() -> &'static Locker {
    try_global().unwrap_or_else(failing)
}

/// Returns the locker of the process, as [`global`] does, or the error if `LOCKER_URL` is invalid.
///
/// # Errors
/// `Misused` if the variable is invalid, or in a forked child whose parent has called [`set_global`]; `Unavailable` if
/// the system refuses a thread or a socket now.
pub fn try_global() -> Result<&'static Locker> {
    let own = GLOBAL.cell();
    if let Some(global) = own.get() {
        return Ok(&global.locker);
    }
    if GLOBAL.inherited().any(|global| global.is_set) {
        return Err(Error::made_before_a_fork("set_global was called", "call it again in the child"));
    }
    let locker = from_environment()?.clone();
    Ok(&own.get_or_init(|| Global { locker, is_set: false }).locker)
}
