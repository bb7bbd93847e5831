//! The runtime of locker: primitives, stores, guards and leases.
//!
//! Applications use the crate `locker-rs` (library name `locker`), which re-exports what is here together with
//! the attributes.

mod error;
mod guard;
mod key;
mod locker;
#[doc(hidden)]
pub mod private;

pub use error::{Error, ErrorKind, Result};
pub use guard::Guard;
pub use key::{Key, KeyFormat, KeyPart};
pub use locker::{LockRequest, Locker, global, try_global};
