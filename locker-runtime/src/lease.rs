//! Leases: what a caller holds, and the one task that renews it.

mod guard;
mod hold;
mod renewer;
#[cfg(test)]
mod tests;

pub use guard::Guard;
pub(crate) use guard::{Release, release_all, while_held};
pub(crate) use hold::Hold;
