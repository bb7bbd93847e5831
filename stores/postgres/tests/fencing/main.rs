//! Transactions of callers in PostgreSQL that check the fence of a lock, or that the lock is held.

mod held;
mod interleavings;
mod order;
#[expect(unreachable_pub, reason = "shown on a page as a program of its own")]
mod page;
mod permissions;
mod support;
