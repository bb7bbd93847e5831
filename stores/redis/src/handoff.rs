//! The hand-off of a lock inside one process: the server grants it to a run of waiters, and the process passes it on.

pub(super) mod calls;
mod rechecks;
pub(super) mod runs;
