//! The mutex of the data structures: the standard one, or shuttle's in tests of interleavings.

#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard};

/// Locks `mutex` even if it is poisoned: every critical section of this crate leaves its data consistent.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
