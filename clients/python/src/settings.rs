//! The options of a locker, which come as keyword arguments.

use crate::{
    errors::misused,
    key::Format,
    options::{Holds, Waiting, option, time, unexpected},
    text::text,
};
use locker_runtime::{KeyFormat, Locker, LockerBuilder};
use pyo3::prelude::*;
use std::time::Duration;

/// The options of a locker, read one by one.
pub(crate) struct Settings {
    builder: LockerBuilder,
    pub(crate) waiting: Waiting,
    pub(crate) holds: Holds,
    pub(crate) prefix: String,
    pub(crate) key_format: Format,
    wait_replicas: Option<u32>,
    wait_timeout: Option<Duration>,
}

impl Settings {
    pub(crate) fn new(url: Option<&str>) -> Self {
        let builder = Locker::builder();
        Self {
            builder: match url {
                Some(url) => builder.url(url),
                None => builder,
            },
            waiting: Waiting::default(),
            holds: Holds::default(),
            prefix: String::new(),
            key_format: Format(KeyFormat::Escaped),
            wait_replicas: None,
            wait_timeout: None,
        }
    }

    /// Sets the option `name`.
    pub(crate) fn set(mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if self.waiting.set(name, value)? || self.holds.set(name, value)? || value.is_none() {
            return Ok(self);
        }
        self.builder = match name {
            "prefix" => {
                self.prefix = text(name, value)?;
                self.builder.prefix(self.prefix.clone())
            }
            "key_format" => {
                self.key_format = value.extract()?;
                self.builder.key_format(self.key_format.0)
            }
            "note" => self.builder.note(text(name, value)?),
            "command_timeout" => self.builder.command_timeout(time(name, value)?.unwrap_or_default()),
            _ => return self.set_of_network(name, value),
        };
        Ok(self)
    }

    fn set_of_network(mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        match name {
            #[cfg(any(feature = "redis-tls", feature = "postgres-tls", feature = "etcd-tls"))]
            "tls_ca" => {
                let pem = match value.cast::<pyo3::types::PyString>() {
                    Ok(pem) => pem.to_cow()?.as_bytes().to_vec(),
                    Err(_) => option(name, value, "certificates in PEM form")?.unwrap_or_default(),
                };
                self.builder = self.builder.tls_ca(pem);
            }
            #[cfg(feature = "redis")]
            "strict" => {
                if let Some(longest) = time(name, value)? {
                    self.builder = self.builder.strict(longest);
                }
            }
            #[cfg(feature = "redis")]
            "allow_eviction" => {
                self.builder =
                    self.builder.allow_eviction(crate::options::truth(name, value)?.unwrap_or_default());
            }
            "wait_replicas" => self.wait_replicas = option(name, value, "a number of replicas")?,
            "wait_timeout" => self.wait_timeout = time(name, value)?,
            _ => return Err(unexpected(name)),
        }
        Ok(self)
    }

    pub(crate) fn build(self, py: Python<'_>) -> PyResult<LockerBuilder> {
        let builder = self.waiting.build(self.builder);
        match (self.wait_replicas, self.wait_timeout) {
            (None, None) => Ok(builder),
            (None, Some(_)) => Err(misused(py, "wait_timeout has no effect without wait_replicas")),
            #[cfg(feature = "redis")]
            (Some(count), timeout) => Ok(builder.wait_replicas(count, timeout.unwrap_or(WAIT_TIMEOUT))),
            #[cfg(not(feature = "redis"))]
            (Some(_), _) => Err(misused(py, "wait_replicas is for redis, which this build has not")),
        }
    }
}

/// How long to wait for replicas by default.
#[cfg(feature = "redis")]
const WAIT_TIMEOUT: Duration = Duration::from_millis(200);
