//! The options for opening a store.

#[cfg(feature = "redis")]
use crate::ranges::misused;
use crate::{
    error::Result,
    ranges::{SHORTEST, check_range},
    settings::COMMAND_TIMEOUT,
};
use std::time::Duration;

/// The options for opening any store.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "some stores need no option"))]
pub(crate) struct Opening {
    /// How long opening may take.
    pub(crate) timeout: Duration,
    /// The prefix of every key.
    pub(crate) prefix: String,
    /// Whether opening returns before the store has answered. Calls then report its errors.
    pub(crate) lazy: bool,
    pub(crate) network: NetworkOptions,
}

/// The options of stores that other processes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NetworkOptions {
    #[cfg(feature = "redis")]
    pub(crate) allow_eviction: bool,
    #[cfg(feature = "redis")]
    pub(crate) replicas: Option<Replicas>,
    /// The longest lease in strict mode.
    #[cfg(feature = "redis")]
    pub(crate) strict: Option<Duration>,
    pub(crate) command_timeout: Duration,
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "some stores have no TLS"))]
    pub(crate) tls_ca: Option<Vec<u8>>,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            #[cfg(feature = "redis")]
            allow_eviction: false,
            #[cfg(feature = "redis")]
            replicas: None,
            #[cfg(feature = "redis")]
            strict: None,
            command_timeout: COMMAND_TIMEOUT,
            tls_ca: None,
        }
    }
}

impl NetworkOptions {
    /// Checks that each option is within its range.
    pub(crate) fn check(&self) -> Result<()> {
        check_range("command_timeout", self.command_timeout, SHORTEST)?;
        #[cfg(feature = "redis")]
        if let Some(replicas) = self.replicas {
            replicas.check(self.command_timeout)?;
        }
        #[cfg(feature = "redis")]
        if let Some(longest) = self.strict {
            check_range("strict", longest, SHORTEST)?;
        }
        Ok(())
    }
}

/// How many replicas must have a grant, and how long to wait for them.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

#[cfg(feature = "redis")]
impl Replicas {
    /// Checks that a reply which waits for replicas comes within `command_timeout`.
    pub(crate) fn check(self, command_timeout: Duration) -> Result<()> {
        if self.count == 0 {
            return misused("wait_replicas 0 waits for no replica: give at least 1, or leave it out");
        }
        check_range("wait_timeout", self.timeout, SHORTEST)?;
        if self.timeout > command_timeout / 2 {
            let [given, most] = [self.timeout, command_timeout / 2].map(humantime::format_duration);
            return misused(format!(
                "wait_timeout {given} is too long: give at most {most}, half of the command_timeout"
            ));
        }
        Ok(())
    }
}
