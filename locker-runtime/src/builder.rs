//! The builder of lockers.

use crate::{
    locker::{Locker, check_note, default_note},
    settings::{Settings, waiting_setters},
    stores::{self, Memory},
};
#[cfg(feature = "redis")]
use locker_core::store::opening::Replicas;
use locker_core::{
    blocking::block_on,
    diagnostics::warn_aloud,
    error::{Error, Result},
    key::KeyFormat,
    ranges::misused,
    store::{
        Store,
        opening::{COMMAND_TIMEOUT, Opening},
    },
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
    /// | URL | store | Cargo feature |
    /// | --- | --- | --- |
    /// | `memory://` | this process | |
    /// | `file:///DIR` | a directory of this host | `files` |
    /// | `redis://HOST`, `rediss://HOST`, `unix:///PATH` | one Redis or Valkey | `redis`, `redis-tls` |
    /// | `redis+sentinel://HOST,HOST,HOST/MASTER`, `rediss+sentinel://..` | the master that sentinels name | as above |
    /// | `redis+cluster://HOST,HOST,HOST`, `rediss+cluster://..` | a Redis Cluster | as above |
    /// | `postgres://HOST/DATABASE` | PostgreSQL | `postgres`, `postgres-tls` |
    /// | `etcd://HOST,HOST,HOST`, `etcds://..` | etcd | `etcd`, `etcd-tls` |
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
        Self::new(Arc::new(store), settings, String::new(), key_format, COMMAND_TIMEOUT, default_note())
    }
}

const NO_STORE: &str = "no store is named, neither by the program nor by LOCKER_URL: locks are kept in memory and \
                        protect this process only (LOCKER_URL=memory:// says that this is wanted)";

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
    note: Option<String>,
    opening: Opening,
}

impl LockerBuilder {
    /// Sets the URL of the store: `memory://`, or another scheme whose Cargo feature is on. Default: the environment
    /// variable `LOCKER_URL`, and without it `memory://`, with a warning that this locks within one process only. The
    /// warning goes to standard error if the thread has no `tracing` subscriber.
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

    /// Sets what operators see beside the holds of this locker, at most 120 bytes without control characters. Default:
    /// host and process, as in `web-3:4711`. All users of the store can read it.
    ///
    /// The background thread tells it to the store at the first hold and repeats it every ten minutes, so that it costs
    /// no call anything. [`Held::note`](locker_core::primitives::inspection::Held::note) has it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Sets whether to accept a Redis that evicts keys, locks included, when its memory is full. Default `false`: such
    /// a server is refused.
    #[cfg(feature = "redis")]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.opening.network.allow_eviction = allow;
        self
    }

    /// Sets that a grant on Redis counts only once `count` replicas have it, which the master waits for up to `timeout`
    /// (`WAIT`). Default: nobody waits for replicas. In the URL: `?wait_replicas=1&wait_timeout=200ms`.
    ///
    /// A lock, permits or a side of a read/write lock that too few replicas have acknowledged is never reported as
    /// held. The call asks again until its timeout, then gets `Unavailable`, and the grant is cancelled. A renewal that
    /// too few have acknowledged has failed: the hold is in jeopardy until a later one succeeds, and lost at its
    /// deadline. This narrows the window in which a failover loses a hold, and does not close it: a replica that has
    /// not acknowledged may become the master.
    ///
    /// `count` is at least 1, and `timeout` from 1 ms to half of the [`command_timeout`](Self::command_timeout). Every
    /// other store refuses the option with `Misused` when it is opened by its URL.
    #[cfg(feature = "redis")]
    pub fn wait_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.opening.network.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Sets strict mode on Redis: after a failover, a restart or a loss of data nothing is granted until every lease
    /// that may still be out is over, which is `longest_lease` and 2 s later. Holders keep theirs by renewing. Default:
    /// off. In a URL: `redis://HOST?strict=60s`.
    ///
    /// A longer lease is refused with `Misused`. While nothing is granted, `try_acquire` returns `Unavailable` with
    /// [`Error::retry_after`](crate::Error::retry_after), and other callers wait within their timeouts. The first use
    /// of a server or prefix counts as a failover. All lockers of a server must be strict, with the same prefix and the
    /// same longest lease. `docs/redis.md` has the price and the assumptions. Other stores refuse it.
    ///
    /// ```no_run
    /// # use locker_runtime as locker;
    /// # fn main() -> locker::Result<()> {
    /// use std::time::Duration;
    /// let locker = locker::Locker::builder()
    ///     .url("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/main")
    ///     .lease(Duration::from_secs(30))
    ///     .strict(Duration::from_secs(60))
    ///     .build_blocking()?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub fn strict(mut self, longest_lease: Duration) -> Self {
        self.opening.network.strict = Some(longest_lease);
        self
    }

    /// Sets how long to wait for the reply to one command; then the command is sent again over a new connection.
    /// Default 1 s, at least 1 ms. A renewal waits at most a third of the lease.
    ///
    /// It also bounds how long an annotated function waits for its release before returning, on every store. Calls that
    /// wait for no turn, such as `counter.add`, are sent again for 5 s, or for this long if it is longer, up to 30 s.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.opening.network.command_timeout = timeout;
        self
    }

    /// Sets the certificate authorities, in PEM form, that the store's server is checked against if the connection uses
    /// TLS. Default: those of the system, or of the file that the environment variable `SSL_CERT_FILE` names.
    #[cfg(any(feature = "redis-tls", feature = "postgres-tls", feature = "etcd-tls"))]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.opening.network.tls_ca = Some(pem.into());
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
        self.check()?;
        let note = self.note.take().unwrap_or_else(default_note);
        let store = match self.store.take() {
            Some(store) => {
                #[cfg(feature = "redis")]
                stores::check_options_of_redis("store", &self.opening)?;
                store
            }
            None => match self.url.take() {
                Some(url) => stores::open(&url, &self.opening()).await?,
                None => self.open_default().await?,
            },
        };
        let command_timeout = self.opening.network.command_timeout;
        Ok(Locker::new(store, self.settings, self.prefix, self.key_format, command_timeout, note))
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

    /// Checks the settings, each by itself and with the others.
    fn check(&self) -> Result<()> {
        self.settings.check()?;
        self.note.as_deref().map_or(Ok(()), check_note)?;
        self.opening.network.check()
    }

    /// Checks the settings and the URL, as far as that is possible without opening the store.
    ///
    /// # Errors
    /// `Misused`: [`build`](Self::build) would fail, too.
    pub(crate) fn check_unopened(&self) -> Result<()> {
        self.check()?;
        self.url.as_deref().map_or(Ok(()), |url| stores::check(url, &self.opening()))
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
                warn_aloud(NO_STORE);
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
