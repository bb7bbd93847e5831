//! The read/write lock: many readers or one writer, first come first served, consecutive readers together.
//!
//! It is a [`semaphore`](super::semaphore) with the greatest number of permits: a reader takes one, a writer takes all
//! of them. Readers that arrive later do not overtake a waiting writer, so neither side starves.

use super::semaphore::{MAX_SIZE, Permits};
use crate::id::Id;

/// The side of a read/write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Mode {
    /// The shared side, which any number of readers hold at a time.
    Read,
    /// The exclusive side, which one writer holds while there is no reader.
    Write,
}

impl Mode {
    /// Returns what to ask of the semaphore.
    #[must_use]
    pub fn permits(self, id: Id) -> Permits {
        let permits = if self == Self::Read { 1 } else { MAX_SIZE };
        Permits { size: MAX_SIZE, permits, key: id }
    }
}
