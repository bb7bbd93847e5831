//! The locker of the whole process.

use crate::{
    error::{Error, Result},
    locker::Locker,
    stores::failing::FailingStore,
};
use once_cell::sync::OnceCell;

static SET: OnceCell<Locker> = OnceCell::new();

/// Returns the locker that `LOCKER_URL` names. It is chosen at the first use, unless that fails with a temporary error.
fn from_environment() -> Result<&'static Locker> {
    static DECIDED: OnceCell<Result<Locker>> = OnceCell::new();
    let decided = DECIDED.get_or_try_init(|| match Locker::builder().lazy().build_blocking() {
        Err(error) if error.is_temporary() => Err(error),
        decided => Ok(decided),
    });
    decided?.as_ref().map_err(Clone::clone)
}

/// Returns a locker on which every call fails with `error`.
fn failing(error: Error) -> &'static Locker {
    static FOR_GOOD: OnceCell<Locker> = OnceCell::new();
    static FOR_NOW: OnceCell<Locker> = OnceCell::new();
    let locker = if error.is_temporary() { &FOR_NOW } else { &FOR_GOOD };
    locker.get_or_init(|| Locker::with_defaults(FailingStore::new(error)))
}

/// Sets the locker that [`global`] returns. It can be set once per process.
///
/// # Errors
/// Returns `locker` if one is set already, or [`global`] was used before. If `LOCKER_URL` is invalid, [`global`] has
/// not been fixed yet, so setting it still succeeds.
pub fn set_global(locker: Locker) -> Result<(), Locker> {
    SET.set(locker)
}

/// Returns the locker of the process, which attributes without `locker = ..` use.
///
/// It is the locker that was passed to [`set_global`], else one on the store that the environment variable `LOCKER_URL`
/// names, else one on `memory://`, with one warning that this locks within one process only. If `LOCKER_URL` is
/// invalid, every call on the locker fails with an error that names the variable.
#[must_use]
pub fn global() -> &'static Locker {
    try_global().unwrap_or_else(failing)
}

/// Returns the locker of the process, as [`global`] does, or the error if `LOCKER_URL` is invalid.
///
/// # Errors
/// `Misused` if the variable is invalid; `Unavailable` if the system refuses a thread or a socket now.
pub fn try_global() -> Result<&'static Locker> {
    if let Some(locker) = SET.get() {
        return Ok(locker);
    }
    from_environment().map(|locker| SET.get_or_init(|| locker.clone()))
}
