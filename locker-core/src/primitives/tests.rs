//! The primitives against models, and the bench that all tests of primitives use.

pub(super) mod bench;
mod models;
mod processes;
#[cfg(feature = "_cas")]
mod stored;
