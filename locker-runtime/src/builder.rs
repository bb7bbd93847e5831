//! The builder of lockers.

use crate::{
    locker::{Locker, Metering, Setup, TraceContext, Traces, check_note, default_note},
    settings::{Settings, margin_setters, waiting_setters},
    stores::{self, Memory},
};
use locker_core::{
    blocking::block_on,
    diagnostics::warn_aloud,
    error::{Error, Result},
    key::KeyFormat,
    ranges::{SHORTEST, check_range, misused},
    store::{
        Store,
        opening::{COMMAND_TIMEOUT, Opening},
    },
};
use std::{env::VarError, fmt, sync::Arc, time::Duration};

impl Locker {
    /// Returns a locker with the defaults of [`LockerBuilder`] on a new embedded store, which only its clones share. It
    /// locks within this process.
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
    /// | `mysql://HOST/DATABASE`, `mariadb://..` | MySQL, MariaDB | `mysql`, `mysql-tls` |
    /// | `zk://HOST,HOST,HOST/ROOT`, `zks://..` | ZooKeeper | `zookeeper`, `zookeeper-tls` |
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
        let setup = Setup {
            prefix: String::new(),
            key_format: KeyFormat::default(),
            command_timeout: COMMAND_TIMEOUT,
            note: default_note(),
            deadlocks: true,
            traces: Traces::default(),
            metering: Metering::default(),
        };
        Self::new(Arc::new(store), Settings::default(), setup)
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
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct LockerBuilder {
    url: Option<String>,
    /// The parameters that are added to the URL.
    parameters: Vec<(String, String)>,
    store: Option<Arc<dyn Store>>,
    settings: Settings,
    prefix: String,
    key_format: KeyFormat,
    note: Option<String>,
    deadlocks: bool,
    traces: Traces,
    opening: Opening,
    metering: Metering,
}

impl Default for LockerBuilder {
    fn default() -> Self {
        Self {
            url: None,
            parameters: Vec::new(),
            store: None,
            settings: Settings::default(),
            prefix: String::new(),
            key_format: KeyFormat::default(),
            note: None,
            deadlocks: true,
            traces: Traces::default(),
            opening: Opening::default(),
            metering: Metering::default(),
        }
    }
}

impl LockerBuilder {
    /// Sets the URL of the store: `memory://`, or another scheme whose Cargo feature is on. Default: the environment
    /// variable `LOCKER_URL`, and without it `memory://`, with a warning that this locks within one process only. The
    /// warning goes to standard error if the thread has no `tracing` subscriber.
    ///
    /// The options of a single store are parameters of its URL, such as `redis://HOST?strict=60s&wait_replicas=1`:
    /// [settings](https://github.com/locker-rs/locker/blob/main/docs/reference/settings.md#urls) lists them.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets a store that the application has made, instead of a URL: a [`Memory`](crate::stores::Memory) or one that it
    /// implements.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    waiting_setters!();

    margin_setters!();

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

    /// Sets the text that operators see beside the holds of this locker, at most 120 bytes without control characters.
    /// Default: host and process, as in `web-3:4711`. All users of the store can read it.
    ///
    /// The background thread tells it to the store at the first hold and repeats it every ten minutes, so that it costs
    /// no call anything. [`Held::note`](locker_core::primitives::inspection::Held::note) has it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Sets whether deadlocks of this locker's callers are found. Default `true`: calls that wait for longer than a
    /// second are told to the store, where all of its users can read them, and one call of a cycle fails with
    /// [`Deadlock`](locker_core::error::ErrorKind::Deadlock). With `false` nothing is told, and deadlocks with callers
    /// of this locker last until a timeout.
    pub fn deadlocks(mut self, are_found: bool) -> Self {
        self.deadlocks = are_found;
        self
    }

    /// Sets a function that returns the trace context of its caller: the trace id (16 bytes), the id of the span (8)
    /// and the flags (1), as [W3C Trace Context] has them; `None` without a trace. If [`tell_holds`](Self::tell_holds)
    /// is set, the thread that acquires something calls it when the hold begins, so it must not block. A panic of it is
    /// contained, and the hold has no trace. Default: none.
    ///
    /// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
    pub fn trace_context(
        mut self,
        context: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.traces.context = Some(Arc::new(context));
        self
    }

    /// Sets a function that gets the trace context of a hold that a call waits for, for example to add a link to the
    /// present span. Default: none.
    ///
    /// It is called in a poll of the waiting call, or by its blocked thread, so that the span of the caller is entered,
    /// and must not block: once for each trace context, up to 64. A panic of it is contained. The holder may be in
    /// another process; its locker has to [tell its holds](Self::tell_holds).
    ///
    /// Calls for locks, read/write locks and permits look for their holders after 3 s and then every 5 s: a read of the
    /// store for each key, and one for the texts. Of more than 64 waits of a locker at a time the oldest look, with
    /// [`deadlocks(false)`](Self::deadlocks) none.
    pub fn on_link(mut self, link: impl Fn(&TraceContext) + Send + Sync + 'static) -> Self {
        self.traces.on_link = Some(Arc::new(link));
        self
    }

    /// Makes this locker tell the store of its holds that last for `after` or longer, with their [trace
    /// contexts](Self::trace_context), so that waiting calls can [link](Self::on_link) to them. Default: nothing is
    /// told. All users of the store can read it. Without `trace_context`, [`build`](Self::build) fails with `Misused`.
    ///
    /// It takes a write of the store per 5 s at most, and one per 15 s while nothing changes, whatever the number of
    /// holds. So a hold may be told up to 6 s later. Of more than 64 at a time the oldest are told. A hold that
    /// outlives its guard (`release = "on_expiry"`) is told while the guard lives.
    ///
    /// ```
    /// # use locker_runtime as locker;
    /// # fn main() -> locker::Result<()> {
    /// use std::time::Duration;
    /// # fn context_of_this_span() -> Option<[u8; 25]> { None }
    /// # fn link_this_span_to(_: &[u8; 25]) {}
    /// let locker = locker::Locker::builder()
    ///     .url("memory://")
    ///     .trace_context(context_of_this_span)
    ///     .tell_holds(Duration::from_secs(2))
    ///     .on_link(link_this_span_to)
    ///     .build_blocking()?;
    /// # Ok(()) }
    /// ```
    pub fn tell_holds(mut self, after: Duration) -> Self {
        self.traces.tell_after = Some(after);
        self
    }

    /// Sets how long to wait for the reply to one command; then the command is sent again over a new connection.
    /// Default 1 s, 1 ms to 10 years. A renewal waits at most a third of the lease.
    ///
    /// It also bounds how long an annotated function waits for its release before returning, on every store. Calls that
    /// wait for no turn, such as `counter.add`, are sent again for 5 s, or for this long if it is longer, up to 30 s.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.opening.network.command_timeout = timeout;
        self
    }

    /// Sets the certificate authorities, in PEM form, that the store's server is checked against if the connection uses
    /// TLS. Default: those of the system, or of the file that the environment variable `SSL_CERT_FILE` names.
    #[cfg(any(
        feature = "redis-tls",
        feature = "postgres-tls",
        feature = "etcd-tls",
        feature = "mysql-tls",
        feature = "zookeeper-tls"
    ))]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.opening.network.tls_ca = Some(pem.into());
        self
    }

    /// Sets what counts the calls and holds of this locker (feature `metrics`). Default: the recorder that is installed
    /// with [`metrics::set_global_recorder`], also if that happens after the locker was built; without one nothing is
    /// counted. [Metrics][page] lists them.
    ///
    /// [page]: https://github.com/locker-rs/locker/blob/main/docs/reference/errors-events-metrics.md#metrics
    #[cfg(feature = "metrics")]
    pub fn recorder(mut self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.metering.recorder = Some(recorder);
        self
    }

    /// Sets the names that the label `function` may have, for what is acquired without a function.
    #[doc(hidden)]
    #[cfg(feature = "metrics")]
    pub fn metric_names(mut self, names: Vec<&'static str>) -> Self {
        self.metering.names = names;
        self
    }

    /// Opens the store and makes the locker.
    ///
    /// # Errors
    /// `Misused` if the URL or a setting is wrong (the message says what is accepted), or the store refuses the login.
    /// `Unavailable` if the store cannot be reached within the timeout, or within 5 s if that is shorter or the timeout
    /// is zero.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future leaves nothing behind.
    pub async fn build(mut self) -> Result<Locker> {
        self.check()?;
        let note = self.note.take().unwrap_or_else(default_note);
        let store = match self.store.take() {
            Some(store) => store,
            None => match self.url.take() {
                Some(url) => self.open(&url).await?,
                None => self.open_default().await?,
            },
        };
        let Self { settings, prefix, key_format, deadlocks, traces, metering, opening, .. } = self;
        let command_timeout = opening.network.command_timeout;
        let setup = Setup { prefix, key_format, command_timeout, note, deadlocks, traces, metering };
        Ok(Locker::new(store, settings, setup))
    }

    /// [`build`](Self::build) for callers that are not async.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<Locker> {
        block_on(self.build())
    }

    /// Adds a parameter of redis to the URL.
    pub(crate) fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
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
        if self.traces.tell_after.is_some() && self.traces.context.is_none() {
            return misused("tell_holds tells traces, and there are none: set trace_context, too");
        }
        check_range("command_timeout", self.opening.network.command_timeout, SHORTEST)
    }

    /// Checks the settings and the URL, as far as that is possible without opening the store.
    ///
    /// # Errors
    /// `Misused`: [`build`](Self::build) would fail, too.
    pub(crate) fn check_unopened(&self) -> Result<()> {
        self.check()?;
        match &self.url {
            Some(url) => stores::check(&self.with_parameters(url)?, &self.opening()),
            None if self.parameters.is_empty() || !cfg!(feature = "redis") => Ok(()),
            // The URL is not known yet, and may have what a parameter needs beside it.
            None => {
                let has_replicas = self.parameters.iter().any(|(name, _)| name == "wait_replicas");
                let url = if has_replicas { "redis://h" } else { "redis://h?wait_replicas=1" };
                stores::check(&self.with_parameters(url)?, &self.opening)
            }
        }
    }

    fn with_parameters(&self, url: &str) -> Result<String> {
        let mut parameters = self.parameters.iter();
        parameters.try_fold(url.to_owned(), |url, (name, value)| stores::with_parameter(&url, name, value))
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        stores::open(&self.with_parameters(url)?, &self.opening()).await
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
                return self.open("memory://").await;
            }
        };
        self.open(&url).await.map_err(|error| {
            let message = format!("the environment variable LOCKER_URL cannot be used: {}", error.message());
            Error::new(error.kind(), message).with_source(error)
        })
    }

    fn opening(&self) -> Opening {
        Opening { timeout: self.settings.timeout, prefix: self.prefix.clone(), ..self.opening.clone() }
    }
}

/// `Debug` shows no password.
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
