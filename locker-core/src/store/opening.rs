//! The options for opening a store.

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
    /// How long a reply may take.
    pub command_timeout: Duration,
    /// The certificates that are trusted, in PEM format. `None`: those of the system.
    pub tls_ca: Option<Vec<u8>>,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self { command_timeout: COMMAND_TIMEOUT, tls_ca: None }
    }
}
