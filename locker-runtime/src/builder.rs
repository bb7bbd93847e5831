//! The builder of lockers.

use crate::{
    blocking::block_on,
    diagnostics::warning,
    error::{Error, Result},
    key::KeyFormat,
    locker::Locker,
    ranges::misused,
    settings::{COMMAND_TIMEOUT, Settings, waiting_setters},
    store::Store,
    stores::{self, Memory, opening::Opening},
};
use std::{env::VarError, fmt, sync::Arc, time::Duration};

impl Locker {
    /// Returns a locker on a new embedded store, which only its clones share. It locks within this process.
    ///
    /// The URL `memory://` names one store that the whole process shares instead.
    #[must_use]
    pub fn memory() -> Self {
        Self::with_defaults(Memory::new())
    }

    /// Opens the store behind `url` with the defaults of [`LockerBuilder`].
    ///
    /// # Errors
    /// Those of [`LockerBuilder::build`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).build().await
    }

    /// [`connect`](Self::connect) for callers that are not async.
    ///
    /// # Errors
    /// Those of [`LockerBuilder::build`].
    pub fn connect_blocking(url: &str) -> Result<Self> {
        block_on(Self::connect(url))
    }

    /// Returns a builder with the defaults: lease 10 s, timeout 10 s, attempts unlimited, `retry_delay` 2 s.
    pub fn builder() -> LockerBuilder {
        LockerBuilder::default()
    }

    pub(crate) fn with_defaults(store: impl Store) -> Self {
        let (settings, key_format) = (Settings::default(), KeyFormat::default());
        Self::new(Arc::new(store), settings, String::new(), key_format, COMMAND_TIMEOUT)
    }
}

/// A builder of lockers with other defaults.
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
    /// Sets the URL of the store: `memory://`, or another scheme whose Cargo feature is on. Default: the environment
    /// variable `LOCKER_URL`, and without it `memory://`, with a warning that this locks within one process only.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets a store that the application implements, instead of a URL.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    waiting_setters!();

    /// Sets the prefix of every key. Default: none. On Redis it cannot have braces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how arguments are written into keys. Default [`KeyFormat::Escaped`].
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.key_format = format;
        self
    }

    /// Sets whether to accept a Redis that evicts keys, locks included, when its memory is full. Default `false`: such
    /// a server is refused.
    #[cfg(feature = "redis")]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.opening.redis.allow_eviction = allow;
        self
    }

    /// Sets how long to wait for the reply to one command; then the command is sent again over a new connection.
    /// Default 1 s, at least 1 ms. A renewal waits at most a third of the lease.
    ///
    /// It also bounds how long an annotated function waits for its release before returning, on every store.
    #[cfg(feature = "redis")]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.opening.redis.command_timeout = timeout;
        self
    }

    /// Sets the certificate authorities, in PEM form, that a `rediss://` server is checked against. Default: those of
    /// the system, or of the file that the environment variable `SSL_CERT_FILE` names.
    #[cfg(feature = "redis-tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.opening.redis.tls_ca = Some(pem.into());
        self
    }

    /// Opens the store and makes the locker.
    ///
    /// # Errors
    /// `Misused` if the URL or a setting is wrong (the message says what is accepted). `Unavailable` if the store
    /// cannot be reached within the timeout.
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

    /// Makes `build` return before the store has answered. Calls on the locker then report its errors.
    pub(crate) fn lazy(mut self) -> Self {
        self.opening.lazy = true;
        self
    }

    /// Opens the store that `LOCKER_URL` names. A variable that cannot be used is an error, because locks that should
    /// be shared must not end up in memory.
    async fn open_default(&self) -> Result<Arc<dyn Store>> {
        let url = match std::env::var("LOCKER_URL") {
            Ok(url) => url,
            Err(VarError::NotUnicode(_)) => {
                return misused("the environment variable LOCKER_URL is not UTF-8");
            }
            Err(VarError::NotPresent) => {
                warning!(
                    "no store is named by set_global, a builder's url or LOCKER_URL: locks are kept in memory and protect this process only"
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

/// Shows no password.
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
