//! The options for opening a store.

#[cfg(feature = "redis")]
use crate::{
    error::Result,
    ranges::{SHORTEST, check_range},
    settings::COMMAND_TIMEOUT,
};
use std::time::Duration;

/// The options for opening any store.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores across a network"))]
pub(crate) struct Opening {
    /// How long opening may take.
    pub(crate) timeout: Duration,
    /// The prefix of every key.
    pub(crate) prefix: String,
    /// Whether opening returns before the store has answered. Calls then report its errors.
    pub(crate) lazy: bool,
    #[cfg(feature = "redis")]
    pub(crate) redis: RedisOptions,
}

/// The options for opening a store on Redis.
#[cfg(feature = "redis")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RedisOptions {
    pub(crate) allow_eviction: bool,
    pub(crate) command_timeout: Duration,
    pub(crate) tls_ca: Option<Vec<u8>>,
}

#[cfg(feature = "redis")]
impl Default for RedisOptions {
    fn default() -> Self {
        Self { allow_eviction: false, command_timeout: COMMAND_TIMEOUT, tls_ca: None }
    }
}

#[cfg(feature = "redis")]
impl RedisOptions {
    /// Checks that each option is within its range.
    pub(crate) fn check(&self) -> Result<()> {
        check_range("command_timeout", self.command_timeout, SHORTEST)
    }
}
