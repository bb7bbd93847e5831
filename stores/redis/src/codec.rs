//! The requests of the primitives as calls of scripts, and the replies of these scripts.

pub(super) mod lock;
pub(super) mod primitives;
