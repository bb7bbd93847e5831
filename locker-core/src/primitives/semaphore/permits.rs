//! The permits of one request.

use crate::id::Id;

/// The permits that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(feature = "serde", feature = "_cas"), derive(serde::Serialize, serde::Deserialize))]
pub struct Permits {
    /// The number of permits that exist. The most recent value applies to all callers. With 0 no caller is admitted.
    pub size: u64,
    /// The number of permits to take, all or nothing.
    pub permits: u64,
    /// The name of the hold: the id of the attempt, or an id that a client has chosen. A request with a name that is
    /// held already gets that hold, with its expiry unchanged.
    pub key: Id,
}
