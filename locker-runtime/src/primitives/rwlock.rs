//! The read/write lock: many readers or one writer, first come first served, a run of readers together.
//!
//! It is a [`semaphore`](super::semaphore) with as many permits as can be counted, as tokio's is: a reader takes one
//! and a writer takes all of them. A waiting writer is not passed by readers that come after it, so neither side
//! starves.

use super::semaphore::{MAX_SIZE, Permits};
use crate::id::Id;

/// How a read/write lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Mode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

impl Mode {
    /// What is asked of the semaphore.
    #[must_use]
    pub fn permits(self, id: Id) -> Permits {
        let permits = if self == Self::Read { 1 } else { MAX_SIZE };
        Permits { size: MAX_SIZE, permits, key: id }
    }
}
