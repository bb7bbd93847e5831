//! The locker of the whole process.

use crate::{
    error::{Error, Result},
    locker::Locker,
    stores::failing::FailingStore,
};
use once_cell::sync::OnceCell;

static SET: OnceCell<Locker> = OnceCell::new();

/// What `global` falls back to: decided once, at its first use, unless that fails for a reason that passes.
fn from_environment() -> Result<&'static Locker> {
    static DECIDED: OnceCell<Result<Locker>> = OnceCell::new();
    let decided = DECIDED.get_or_try_init(|| match Locker::builder().lazy().build_blocking() {
        Err(error) if error.is_temporary() => Err(error),
        decided => Ok(decided),
    });
    decided?.as_ref().map_err(Clone::clone)
}

/// What calls on [`global`] get when `LOCKER_URL` cannot be used, or not yet.
fn failing(error: Error) -> &'static Locker {
    static FOR_GOOD: OnceCell<Locker> = OnceCell::new();
    static FOR_NOW: OnceCell<Locker> = OnceCell::new();
    let locker = if error.is_temporary() { &FOR_NOW } else { &FOR_GOOD };
    locker.get_or_init(|| Locker::with_defaults(FailingStore::new(error)))
}

/// Makes `locker` what [`global`] returns, for the whole process and once.
///
/// # Errors
/// Hands `locker` back when one is set already, or [`global`] was used before. Where `LOCKER_URL` cannot be used,
/// [`global`] has chosen none: then this succeeds at any time, and calls made from then on use `locker`.
pub fn set_global(locker: Locker) -> Result<(), Locker> {
    SET.set(locker)
}

/// The locker that attributes use which name none: the one given to [`set_global`], else one on the store that the
/// environment variable `LOCKER_URL` names, else the process's own `memory://`, with one warning that this protects
/// a single process only.
///
/// Never panics: with a `LOCKER_URL` that cannot be used, every call on the locker fails and says so.
#[must_use]
pub fn global() -> &'static Locker {
    try_global().unwrap_or_else(failing)
}

/// As [`global`], but tells at once when `LOCKER_URL` cannot be used.
///
/// # Errors
/// `Misused`, naming the variable and what is wrong with it; `Unavailable` when the system lacks what it takes now.
pub fn try_global() -> Result<&'static Locker> {
    if let Some(locker) = SET.get() {
        return Ok(locker);
    }
    from_environment().map(|locker| SET.get_or_init(|| locker.clone()))
}
