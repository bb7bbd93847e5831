//! The laws of histories of locks, limiters and other primitives.
// Moved as they were.
#![allow(missing_docs, clippy::must_use_candidate)]

pub mod holds;
pub mod limits;
pub mod steps;
pub mod verdict;
