//! The return value of a function that did not acquire its lock.

use locker_core::error::Error;

/// A return type of functions without `on_error`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the lock was not acquired: return `Result<_, E>` with \
               `E: From<locker::Error>`, or add `on_error = path`",
    label = "not a `Result`"
)]
pub trait Outcome {
    /// Returns the value for a call that failed with `error`.
    fn refused(error: Error) -> Self;
}

impl<T, E: FromLocker> Outcome for Result<T, E> {
    fn refused(error: Error) -> Self {
        Err(E::from_locker(error))
    }
}

/// An error type that can be converted from [`Error`].
#[diagnostic::on_unimplemented(
    message = "the error type `{Self}` cannot say that the lock was not acquired: implement \
               `From<locker::Error>` for it, or add `on_error = path`",
    label = "no `From<locker::Error>`"
)]
pub trait FromLocker {
    /// Converts `error`.
    fn from_locker(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> FromLocker for E {
    fn from_locker(error: Error) -> Self {
        error.into()
    }
}

/// Stands for a value of `T`, so that the compiler infers the type of a block that may not return.
///
/// # Panics
/// Always. Generated code never calls it.
#[must_use]
pub fn never<T>() -> T {
    unreachable!("generated code calls it only in `if false`")
}
