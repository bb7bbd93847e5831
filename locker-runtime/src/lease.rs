//! Leases: what a caller holds, and the one task that renews it.

mod bodies;
mod guard;
mod hold;
mod renewer;
#[cfg(test)]
mod tests;

pub(crate) use bodies::{
    AsyncBody, Caller, Held, PlainBody, any as any_body, check as check_bodies, check_holds,
};
pub use guard::Guard;
pub(crate) use guard::{Release, release_all, while_held, worst};
pub(crate) use hold::Hold;
