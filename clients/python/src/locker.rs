//! The locker.

use crate::{
    call::{Call, Output},
    election::Election,
    errors::{misused, raised},
    guard::{granted, granted_all},
    handles::{Barrier, Counter, Event, Latch, Named, RateLimiter, Watchdog},
    inspection::Inspection,
    key::{Format, Function, Key, Name, function_key},
    once::Once,
    options::{self, ElectionOptions, HoldOptions, Holds},
    reference::LockerRef,
    seconds::count,
    settings::Settings,
    text::{self, text},
};
use futures_util::{FutureExt, TryFutureExt};
use locker_runtime::{
    HoldKind, LockRequest, LockerBuilder, Mode, Quota,
    private::bindings::{
        LazyLocker, acquire_all, check_around, check_quota, check_request, describe, holding, request,
        without_login,
    },
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyString},
};
use std::{env, future::ready, sync::Arc, time::Duration};

/// A store with defaults. The first call that is made opens it, once in each process.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Locker {
    reference: LockerRef,
    url: Option<String>,
    key_format: Format,
    holds: Holds,
}

#[pymethods]
impl Locker {
    #[new]
    #[pyo3(signature = (url=None, **options))]
    fn new(
        py: Python<'_>,
        url: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let url = url.map(|url| text("url", url)).transpose()?;
        let settings = Settings::read(url.as_deref(), options)?;
        let made = Self::made(url, settings, |builder| Ok((LazyLocker::new(builder)?, ())));
        made.map(|(locker, ())| locker).map_err(|error| raised(py, &error))
    }

    /// The URL without its login; `None` if none was given.
    #[getter]
    fn url(&self) -> Option<String> {
        self.url.as_deref().map(without_login)
    }

    #[getter]
    fn prefix(&self) -> &str {
        &self.reference.prefix
    }

    #[getter]
    fn key_format(&self) -> &'static str {
        self.key_format.name()
    }

    /// Whether other processes share the store.
    #[getter]
    fn is_shared(&self) -> bool {
        let url = self.url.clone().or_else(|| env::var("LOCKER_URL").ok());
        let scheme = url.as_deref().and_then(|url| url.split_once("://"));
        scheme.is_some_and(|(scheme, _)| !scheme.eq_ignore_ascii_case("memory"))
    }

    /// Opens the store and waits for its first answer.
    fn open(&self, py: Python<'_>) -> PyResult<Call> {
        self.ping(py)
    }

    /// Waits until the background work is done. Opens nothing.
    fn settled(&self) -> Call {
        match self.reference.lazy.get().cloned() {
            Some(locker) => Call::new(async move {
                locker.settled().await;
                Ok(Output::Nothing)
            }),
            None => Call::new(ready(Ok(Output::Nothing))),
        }
    }

    fn ping(&self, py: Python<'_>) -> PyResult<Call> {
        let admin = self.reference.open(py)?.admin();
        Ok(Call::new(async move { admin.ping().await.map(|()| Output::Nothing) }))
    }

    /// Looks at a key without changing it. Returns `None` if it is not in use.
    fn inspect(&self, py: Python<'_>, key: &Key) -> PyResult<Call> {
        let (admin, key) = (self.reference.open(py)?.admin(), key.0.clone());
        Ok(Call::new(
            async move { admin.inspect(&key).await.map(|seen| Output::maybe(seen, Inspection::output)) },
        ))
    }

    /// Returns the key of the primitive `name` of this kind (`lock`, `rwlock`, `semaphore`).
    fn named_key(&self, kind: &str, name: Name<'_>) -> PyResult<Key> {
        name.key(&self.reference.prefix, kind).map(Key)
    }

    /// Returns the key that the attributes of Rust make for this function and these arguments.
    #[pyo3(signature = (function, parts=None, part="lock"))]
    fn function_key(
        &self,
        py: Python<'_>,
        function: &Function,
        parts: Option<&Bound<'_, PyAny>>,
        part: &str,
    ) -> PyResult<Key> {
        let none = pyo3::types::PyTuple::empty(py).into_any();
        if parts.is_some_and(PyAnyMethods::is_instance_of::<PyString>) {
            return Err(PyTypeError::new_err("the parts of a key are several values: give a list"));
        }
        function_key(&self.reference.prefix, self.key_format, function, parts.unwrap_or(&none), part)
    }

    #[pyo3(signature = (name, **options))]
    fn lock(&self, py: Python<'_>, name: Name<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Call> {
        self.hold(py, HoldKind::Lock, "lock", name, options)
    }

    #[pyo3(signature = (name, **options))]
    fn read_lock(
        &self,
        py: Python<'_>,
        name: Name<'_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        self.hold(py, HoldKind::ReadWrite(Mode::Read), "rwlock", name, options)
    }

    #[pyo3(signature = (name, **options))]
    fn write_lock(
        &self,
        py: Python<'_>,
        name: Name<'_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        self.hold(py, HoldKind::ReadWrite(Mode::Write), "rwlock", name, options)
    }

    #[pyo3(signature = (name, size, permits=1, **options))]
    fn semaphore(
        &self,
        py: Python<'_>,
        name: Name<'_>,
        #[pyo3(from_py_with = size)] size: u64,
        #[pyo3(from_py_with = permits)] permits: u64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        self.hold(py, HoldKind::Semaphore { size, permits }, "semaphore", name, options)
    }

    /// Acquires all of these locks or none, in the order of their keys, each once.
    #[pyo3(signature = (names, *, mode=None, **options))]
    fn lock_all(
        &self,
        py: Python<'_>,
        names: &Bound<'_, PyAny>,
        mode: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        let (kind, name) = match mode {
            None => (HoldKind::Lock, "lock"),
            Some("read") => (HoldKind::ReadWrite(Mode::Read), "rwlock"),
            Some("write") => (HoldKind::ReadWrite(Mode::Write), "rwlock"),
            Some(other) => return Err(misused(py, format!("mode={other:?}: give \"read\" or \"write\""))),
        };
        if names.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("lock_all takes several names: give a list"));
        }
        let options = HoldOptions::read(options)?;
        let requests = names.try_iter()?.map(|one| self.request(py, kind, name, one?.extract()?, &options));
        let mut requests = requests.collect::<PyResult<Vec<LockRequest>>>()?;
        if requests.is_empty() {
            return Err(misused(py, "no lock is named: give at least one"));
        }
        if !options.try_once {
            return Ok(Call::new(acquire_all(requests).map_ok(granted_all)));
        }
        requests = requests.into_iter().map(|request| request.timeout(Duration::ZERO)).collect();
        Ok(Call::new(acquire_all(requests).map(|acquired| match acquired {
            Err(error) if error.kind() == locker_runtime::ErrorKind::TimedOut => Ok(Output::Nothing),
            acquired => acquired.map(granted_all),
        })))
    }

    #[pyo3(signature = (name, size, interval, *, algorithm="token_bucket", burst=None, wait_past_timeout=false,
                        cache_refusals=true, function=None))]
    #[expect(clippy::too_many_arguments, reason = "the options of the method in Python")]
    fn rate_limiter(
        &self,
        py: Python<'_>,
        name: Name<'_>,
        #[pyo3(from_py_with = size)] size: u64,
        #[pyo3(from_py_with = options::per)] interval: Duration,
        algorithm: &str,
        #[pyo3(from_py_with = burst)] burst: Option<u64>,
        wait_past_timeout: bool,
        cache_refusals: bool,
        function: Option<Py<Function>>,
    ) -> PyResult<RateLimiter> {
        let quota = match algorithm {
            "token_bucket" => Quota::token_bucket(size, interval),
            "fixed_window" => Quota::fixed_window(size, interval),
            "gcra" => Quota::gcra(size, interval),
            other => {
                let message = "give \"token_bucket\", \"fixed_window\" or \"gcra\"";
                return Err(misused(py, format!("algorithm={other:?}: {message}")));
            }
        };
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        check_quota(&quota).map_err(|error| raised(py, &error))?;
        Ok(RateLimiter {
            reference: self.reference.clone(),
            key: name.key(&self.reference.prefix, "rate")?,
            quota,
            waits_past_timeout: wait_past_timeout,
            caches_refusals: cache_refusals,
            function,
        })
    }

    fn counter(&self, #[pyo3(from_py_with = text::name)] name: String) -> Counter {
        Counter(self.named(name))
    }

    #[pyo3(signature = (name, *, keep=None))]
    fn event(
        &self,
        #[pyo3(from_py_with = text::name)] name: String,
        #[pyo3(from_py_with = keep)] keep: Option<Duration>,
    ) -> Event {
        Event { of: self.named(name), keep }
    }

    fn watchdog(&self, #[pyo3(from_py_with = text::name)] name: String) -> Watchdog {
        Watchdog(self.named(name))
    }

    fn latch(
        &self,
        #[pyo3(from_py_with = text::name)] name: String,
        #[pyo3(from_py_with = of_latch)] count: u64,
    ) -> Latch {
        Latch { of: self.named(name), count }
    }

    #[pyo3(signature = (name, parties, *, once=false))]
    fn barrier(
        &self,
        #[pyo3(from_py_with = text::name)] name: String,
        #[pyo3(from_py_with = parties)] parties: u64,
        once: bool,
    ) -> Barrier {
        Barrier { of: self.named(name), parties, once }
    }

    /// Returns the election `name`: to take part in it, or to observe it.
    #[pyo3(signature = (name, **options))]
    fn election(
        &self,
        #[pyo3(from_py_with = text::name)] name: String,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Election> {
        let options = ElectionOptions::read(options)?;
        Ok(Election { of: self.named(name), options, defaults: self.holds })
    }

    /// Returns the record of what has run.
    fn once(&self, name: Name<'_>) -> PyResult<Once> {
        let key = name.key(&self.reference.prefix, "once")?;
        let (reference, key_format) = (self.reference.clone(), self.key_format);
        Ok(Once { reference, key, key_format, defaults: self.holds })
    }

    fn __repr__(&self) -> String {
        match self.url() {
            Some(url) => format!("<Locker {url}>"),
            None => "<Locker>".to_owned(),
        }
    }
}

impl Locker {
    /// Makes one that is opened by what `open` makes of a builder, and returns what comes with that.
    pub(crate) fn made<T>(
        url: Option<String>,
        settings: Settings,
        open: impl FnOnce(LockerBuilder) -> locker_runtime::Result<(LazyLocker, T)>,
    ) -> locker_runtime::Result<(Self, T)> {
        let (holds, key_format, prefix) =
            (settings.holds, settings.key_format, settings.prefix.as_str().into());
        let timeout = settings.waiting.timeout.unwrap_or(Duration::from_secs(10));
        let (lazy, with_it) = open(settings.build())?;
        let reference = LockerRef { lazy: Arc::new(lazy), prefix, timeout };
        Ok((Self { reference, url, key_format, holds }, with_it))
    }

    fn named(&self, name: String) -> Named {
        Named { reference: self.reference.clone(), name }
    }

    fn hold(
        &self,
        py: Python<'_>,
        kind: HoldKind,
        name_of_kind: &str,
        name: Name<'_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        let options = HoldOptions::read(options)?;
        let request = self.request(py, kind, name_of_kind, name, &options)?;
        Ok(if options.try_once {
            Call::new(request.try_acquire().map_ok(|guard| Output::maybe(guard, granted)))
        } else {
            Call::new(request.acquire().map_ok(granted))
        })
    }

    fn request(
        &self,
        py: Python<'_>,
        kind: HoldKind,
        name_of_kind: &str,
        name: Name<'_>,
        options: &HoldOptions<'_>,
    ) -> PyResult<LockRequest> {
        let locker = self.reference.open(py)?;
        let key = name.key(&self.reference.prefix, name_of_kind)?;
        let function = options.function.as_ref().map(Bound::get);
        if let Some(function) = function {
            describe(locker, &function.digest);
        }
        let request = request(locker, kind, key, function.map(|function| function.source));
        let request = options.request(request, self.holds);
        check_request(&request).map_err(|error| raised(py, &error))?;
        if !options.try_once {
            check_around(&request, &options.around).map_err(|error| raised(py, &error))?;
        }
        Ok(holding(request, &options.around))
    }
}

fn size(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("size", value)
}

fn permits(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("permits", value)
}

fn parties(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("parties", value)
}

fn of_latch(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("count", value)
}

fn burst(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if value.is_none() { Ok(None) } else { count("burst", value).map(Some) }
}

fn keep(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    options::time("keep", value)
}
