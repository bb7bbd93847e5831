//! How a function says that it was not let in.

use crate::error::Error;

/// What a function without `on_error` returns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot say that the lock was not acquired: return `Result<_, E>` with \
               `E: From<locker::Error>`, or add `on_error = path`",
    label = "not a `Result`"
)]
pub trait Outcome {
    /// The value that says so.
    fn refused(error: Error) -> Self;
}

impl<T, E: FromLocker> Outcome for Result<T, E> {
    fn refused(error: Error) -> Self {
        Err(E::from_locker(error))
    }
}

/// What the error of such a function can be made from.
#[diagnostic::on_unimplemented(
    message = "the error type `{Self}` cannot say that the lock was not acquired: implement \
               `From<locker::Error>` for it, or add `on_error = path`",
    label = "no `From<locker::Error>`"
)]
pub trait FromLocker {
    /// Converts.
    fn from_locker(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> FromLocker for E {
    fn from_locker(error: Error) -> Self {
        error.into()
    }
}

/// A value that is never made: tells a block what it returns, or that it may end.
///
/// # Panics
/// When called, which generated code does not.
#[must_use]
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
