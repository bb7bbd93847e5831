//! The token of a change that takes effect once, however many copies of its request arrive.
//!
//! Without it, a late copy would overwrite the change of another caller.

use crate::id::Id;

/// One attempt at a change, the same in every copy of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IdempotencyKey {
    /// The attempt.
    pub attempt: Id,
    /// Whether an earlier copy may still arrive. Copies that arrive after this one are then rejected.
    pub retried: bool,
}

impl IdempotencyKey {
    /// Creates the key of the first copy of a request.
    #[must_use]
    pub fn new(attempt: Id) -> Self {
        Self { attempt, retried: false }
    }
}
