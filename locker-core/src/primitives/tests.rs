//! The primitives against models, and the bench that all tests of primitives use.

pub(super) mod bench;
mod hold_kinds;
mod models;
mod processes;
mod requests;
#[cfg(feature = "_cas")]
mod stored;
