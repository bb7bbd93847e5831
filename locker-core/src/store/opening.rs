//! The options for opening a store.

#[cfg(feature = "redis")]
use crate::ranges::misused;
use crate::{
    error::Result,
    ranges::{SHORTEST, check_range},
};
use std::time::Duration;

/// The default limit of the wait for one reply of a store.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

/// The options for opening any store.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// How long opening may take.
    pub timeout: Duration,
    /// The prefix of every key.
    pub prefix: String,
    /// Whether opening returns before the store has answered. Calls then report its errors.
    pub lazy: bool,
    /// The options of stores that other processes share.
    pub network: NetworkOptions,
}

/// The options of stores that other processes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetworkOptions {
    /// Whether a server may evict keys when its memory is full.
    #[cfg(feature = "redis")]
    pub allow_eviction: bool,
    /// The replicas that must have a grant.
    #[cfg(feature = "redis")]
    pub replicas: Option<Replicas>,
    /// The longest lease in strict mode.
    #[cfg(feature = "redis")]
    pub strict: Option<Duration>,
    /// How long a reply may take.
    pub command_timeout: Duration,
    /// The certificates that are trusted, in PEM format. `None`: those of the system.
    pub tls_ca: Option<Vec<u8>>,
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
    ///
    /// # Errors
    /// `Misused`, with the name of the option.
    pub fn check(&self) -> Result<()> {
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
pub struct Replicas {
    /// How many replicas.
    pub count: u32,
    /// How long to wait for them.
    pub timeout: Duration,
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
