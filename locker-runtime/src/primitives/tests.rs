//! The primitives against models, and the bench that all tests of primitives use.

pub(super) mod bench;
mod models;
