//! The options of a locker, which come as keyword arguments.

use crate::{
    key::Format,
    options::{Holds, Waiting, given, option, time, truth, unexpected},
    text::text,
};
use locker_runtime::{KeyFormat, Locker, LockerBuilder, private::bindings::with_parameter};
use pyo3::{
    prelude::*,
    types::{PyDict, PyString},
};

/// The options of a locker, read one by one.
pub(crate) struct Settings {
    builder: LockerBuilder,
    pub(crate) waiting: Waiting,
    pub(crate) holds: Holds,
    pub(crate) prefix: String,
    pub(crate) key_format: Format,
}

impl Settings {
    /// Reads the options of a locker.
    pub(crate) fn read(url: Option<&str>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut settings = Self::new(url);
        for (name, value) in options.into_iter().flatten() {
            settings = settings.set(&name.cast_into::<PyString>()?.to_cow()?, &value)?;
        }
        Ok(settings)
    }

    fn new(url: Option<&str>) -> Self {
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
        }
    }

    /// Sets the option `name`.
    fn set(mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
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
            #[cfg(any(
                feature = "redis-tls",
                feature = "postgres-tls",
                feature = "etcd-tls",
                feature = "mysql-tls",
                feature = "zookeeper-tls"
            ))]
            "tls_ca" => {
                let pem = match value.cast::<PyString>() {
                    Ok(pem) => pem.to_cow()?.as_bytes().to_vec(),
                    Err(_) => option(name, value, "certificates in PEM form")?.unwrap_or_default(),
                };
                self.builder = self.builder.tls_ca(pem);
            }
            _ => {
                let parameter = parameter(name, value)?;
                self.builder = with_parameter(self.builder, name, &parameter);
            }
        }
        Ok(self)
    }

    pub(crate) fn build(self) -> LockerBuilder {
        self.waiting.build(self.builder)
    }
}

/// Returns the value of an option that is a parameter of a redis URL.
fn parameter(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(match name {
        "strict" | "wait_timeout" => humantime::format_duration(given(name, value)?).to_string(),
        "wait_replicas" => {
            option::<u32>(name, value, "a number of replicas")?.unwrap_or_default().to_string()
        }
        "allow_eviction" => if truth(name, value)? == Some(true) { "yes" } else { "no" }.to_owned(),
        _ => return Err(unexpected(name)),
    })
}
