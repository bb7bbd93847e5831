//! What the attribute `leader` calls.

use super::{AsyncScope, Function};
use crate::{
    handles::{Election, Origin},
    locker::Locker,
};
use futures_util::TryFutureExt;
use locker_core::error::Result;

/// Returns the election `name`, for calls of `function`.
pub fn leader(locker: &Locker, function: &'static Function, name: &str) -> Election {
    locker.elect(name).origin(Origin::Function(function))
}

/// Waits until this candidate is elected.
///
/// # Errors
/// Those of `Election::run`, without those of the body.
pub fn term(election: &Election) -> impl Future<Output = Result<AsyncScope>> + Send + '_ {
    election.term().map_ok(AsyncScope::one)
}

/// A parameter of a leader.
#[diagnostic::on_unimplemented(
    message = "each term of a leader gets copies of the parameters, but `{Self}` is not `Clone`: derive it, \
               take an `Arc`, or bound it `T: Clone`",
    label = "not `Clone`"
)]
pub trait TermCopy: Clone {}

#[diagnostic::do_not_recommend]
impl<T: Clone> TermCopy for T {}

/// Returns a copy of a parameter for one term.
pub fn copy<T: TermCopy>(parameter: &T) -> T {
    parameter.clone()
}
