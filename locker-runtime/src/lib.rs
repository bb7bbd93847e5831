//! The runtime of locker: primitives, stores, guards and leases.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports what is here together with
//! the attributes.

mod error;
mod key;

pub use error::{Error, ErrorKind, Result};
pub use key::Key;
