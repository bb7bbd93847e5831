//! The builder of lockers.

use crate::{
    blocking::block_on,
    diagnostics::warning,
    error::{Error, Result},
    key::KeyFormat,
    locker::Locker,
    ranges::misused,
    settings::{COMMAND_TIMEOUT, Settings},
    store::Store,
    stores::{self, Memory, opening::Opening},
};
use std::{env::VarError, fmt, sync::Arc, time::Duration};

impl Locker {
    /// A locker on a new embedded store, shared with its clones only. It protects this process, nothing beyond.
    ///
    /// `memory://` in a URL means one store for the whole process instead.
    #[must_use]
    pub fn memory() -> Self {
        Self::with_defaults(Memory::new())
    }

    /// Opens the store behind `url` with the defaults of [`LockerBuilder`].
    ///
    /// # Errors
    /// As [`LockerBuilder::build`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).build().await
    }

    /// [`connect`](Self::connect) for callers that are not async.
    ///
    /// # Errors
    /// As [`LockerBuilder::build`].
    pub fn connect_blocking(url: &str) -> Result<Self> {
        block_on(Self::connect(url))
    }

    /// Starts from the defaults: lease 10 s, timeout 10 s, attempts unlimited, re-checks at most 2 s apart.
    pub fn builder() -> LockerBuilder {
        LockerBuilder::default()
    }

    pub(crate) fn with_defaults(store: impl Store) -> Self {
        let (settings, key_format) = (Settings::default(), KeyFormat::default());
        Self::new(Arc::new(store), settings, String::new(), key_format, COMMAND_TIMEOUT)
    }
}

/// Makes a [`Locker`] with defaults of your own.
///
/// ```
/// # use locker_runtime as locker;
/// # fn main() -> locker::Result<()> {
/// use std::time::Duration;
/// let locker = locker::Locker::builder()
///     .url("memory://")
///     .lease(Duration::from_secs(30))
///     .prefix("shop:")
///     .build_blocking()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LockerBuilder {
    url: Option<String>,
    store: Option<Arc<dyn Store>>,
    settings: Settings,
    prefix: String,
    key_format: KeyFormat,
    opening: Opening,
}

impl LockerBuilder {
    /// Which store: `memory://`, or another scheme whose Cargo feature is on. Default: the variable `LOCKER_URL`,
    /// and without that `memory://`, with a warning that this protects a single process only.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// A store of your own making, in place of a URL.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// How long others wait if a holder dies. Default 10 s, at least 1 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a call waits for its turn. Default 10 s; zero tries once; [`Duration::MAX`] waits for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How many attempts a call makes, the first one included. Default: as many as fit into the timeout.
    pub fn max_retry(mut self, attempts: u32) -> Self {
        self.settings.max_retry = Some(attempts);
        self
    }

    /// The time between two attempts where `max_retry` is set. Default 2 s.
    ///
    /// Without `max_retry` it is the longest pause after an error. A waiter for a lock on Redis asks again for itself
    /// at least that often only if it is shorter than 2 s: its process asks for all of its waiters.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.settings.retry_delay = delay;
        self
    }

    /// What stands before every key, as written. Default: nothing. On Redis it cannot have braces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How arguments are written into keys. Default [`KeyFormat::Escaped`].
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.key_format = format;
        self
    }

    /// Accepts a Redis that drops keys when its memory is full, locks included. Default `false`: such a server is
    /// refused.
    #[cfg(feature = "redis")]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.opening.redis.allow_eviction = allow;
        self
    }

    /// How long Redis may take to answer one command; then it is asked again over a new connection. Default 1 s,
    /// and for a renewal at most a third of the lease. At least 1 ms.
    ///
    /// A function with an attribute waits so long at its end, on every store, for its lock to be released.
    #[cfg(feature = "redis")]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.opening.redis.command_timeout = timeout;
        self
    }

    /// The certificate authority, in PEM form, that vouches for a `rediss://` server. Default: those that the
    /// system trusts (the environment variable `SSL_CERT_FILE` names others).
    #[cfg(feature = "redis-tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.opening.redis.tls_ca = Some(pem.into());
        self
    }

    /// Opens the store and makes the locker.
    ///
    /// # Errors
    /// `Misused` when the URL or a setting is wrong (the message says what is accepted); `Unavailable` when the
    /// store cannot be reached within the timeout.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future leaves nothing behind.
    pub async fn build(mut self) -> Result<Locker> {
        self.settings.check()?;
        #[cfg(feature = "redis")]
        self.opening.redis.check()?;
        let store = match self.store.take() {
            Some(store) => store,
            None => match self.url.take() {
                Some(url) => stores::open(&url, &self.opening()).await?,
                None => self.open_default().await?,
            },
        };
        #[cfg(feature = "redis")]
        let command_timeout = self.opening.redis.command_timeout;
        #[cfg(not(feature = "redis"))]
        let command_timeout = COMMAND_TIMEOUT;
        Ok(Locker::new(store, self.settings, self.prefix, self.key_format, command_timeout))
    }

    /// [`build`](Self::build) for callers that are not async.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<Locker> {
        block_on(self.build())
    }

    /// Does not wait for the store: what is wrong with it comes out of the calls made on the locker.
    pub(crate) fn lazy(mut self) -> Self {
        self.opening.lazy = true;
        self
    }

    /// A variable that is there and cannot be used is an error: what was meant to be shared must not end up in memory.
    async fn open_default(&self) -> Result<Arc<dyn Store>> {
        let url = match std::env::var("LOCKER_URL") {
            Ok(url) => url,
            Err(VarError::NotUnicode(_)) => {
                return misused("the environment variable LOCKER_URL is not UTF-8");
            }
            Err(VarError::NotPresent) => {
                warning!(
                    "no store is named, by set_global, a builder's url or LOCKER_URL: locks are kept in memory and protect this process only"
                );
                "memory://".to_owned()
            }
        };
        stores::open(&url, &self.opening()).await.map_err(|error| {
            let message = format!("the environment variable LOCKER_URL cannot be used: {}", error.message());
            Error::new(error.kind(), message).with_source(error)
        })
    }

    fn opening(&self) -> Opening {
        Opening { timeout: self.settings.timeout, prefix: self.prefix.clone(), ..self.opening.clone() }
    }
}

/// Without what the URL may hold of a password.
impl fmt::Debug for LockerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("LockerBuilder");
        out.field("url", &self.url.as_deref().map(stores::without_login)).field("settings", &self.settings);
        out.field("prefix", &self.prefix).field("key_format", &self.key_format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builders_show_no_password() {
        let shown = format!("{:?}", Locker::builder().url("redis://u:sekret@h"));
        assert!(shown.contains("redis://..@h") && !shown.contains("sekret"), "{shown}");
    }
}
