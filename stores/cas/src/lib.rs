//! Makes a store of anything that can compare and set values and send messages between processes.
//!
//! The steps of the primitives run in this process, on values that are kept elsewhere: read a value, run the step,
//! write the value back if nobody has changed it, send the notifications. Queues, leases, fences, hand-offs and lists
//! come with that; what is kept elsewhere is a [`Backend`]. [`CasStore::new`] makes a store of one, for
//! `LockerBuilder::store`.
//!
//! With the feature `contract`, the module `contract` has the promises of a backend as tests of two that share a store:
//! call `contract::all` in a test of your own, and add the faults that your backend can have.
//!
//! # Example
//! A backend in a map, `examples/map.rs`:
//! ```text
#![doc = include_str!("../examples/map.rs")]
//! ```

// The floors, from the top: a module uses only those below its own floor (tests/floors.rs).
#[cfg(test)]
mod tests;

#[cfg(feature = "_fuzz")]
#[doc(hidden)]
pub mod fuzz;

#[cfg(any(test, feature = "_fake"))]
#[doc(hidden)]
pub mod fake;

#[cfg(any(test, feature = "contract"))]
pub mod contract;

mod store;

#[doc(hidden)]
pub mod served;

mod queues;

mod round;

mod entry;

mod health;
mod messages;
pub mod ticker;

mod backend;
pub mod ticked;

mod time;

#[doc(hidden)]
pub mod queue;

pub use backend::{
    ABSENT, Backend, Draw, Epoch, Holder, Inbox, Message, NO_VERSION, Outcome, Received, Values, Version,
    Write, random_inbox,
};
pub use entry::{Latest, Stamped};
pub use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    store::opening::Opening,
};
pub use store::{CasStore, shared};
pub use time::{Basis, Found, Time};
