//! When a collection returns memory.

/// Returns the capacity that a sparse collection should shrink to. Returns `None` if it is small, or an eighth full.
pub(crate) fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > 1024 && len < capacity / 8).then_some(2 * len)
}
