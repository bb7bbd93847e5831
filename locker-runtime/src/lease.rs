//! Leases: what a caller holds, and the one task that renews it.

mod guard;
mod hold;
mod renewer;
mod self_deadlock;
#[cfg(test)]
mod tests;

pub use guard::Guard;
pub(crate) use guard::{Release, log_release, log_unrecorded, release_all, while_held, worst};
pub(crate) use hold::Hold;
#[cfg(feature = "_control")]
pub(crate) use renewer::Renewer;
pub(crate) use self_deadlock::{
    AsyncBody, Caller, Held, PlainBody, any as any_body, around as holds_of_bodies, check as check_bodies,
    check_holds,
};
