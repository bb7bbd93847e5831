//! Rate limiter, counter, event, watchdog, latch and barrier.

use crate::{
    call::{Call, Output},
    key::Function,
    options::{given, timeout},
    reference::LockerRef,
    seconds::{count, number},
    text::text,
};
use locker_runtime::{
    Quota,
    private::bindings::{describe, limiter, named},
};
use pyo3::prelude::*;
use std::time::Duration;

/// An admitted call.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Admission(locker_runtime::Admission);

impl Admission {
    fn output(admission: locker_runtime::Admission) -> Output {
        Output::object(Self(admission))
    }
}

#[pymethods]
impl Admission {
    /// How many tokens are left.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// How many seconds until all tokens are available again.
    #[getter]
    fn reset_after(&self) -> f64 {
        self.0.reset_after.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<Admission remaining={} reset_after={:.3}>", self.remaining(), self.reset_after())
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct RateLimiter {
    pub(crate) reference: LockerRef,
    pub(crate) key: locker_runtime::Key,
    pub(crate) quota: Quota,
    pub(crate) waits_past_timeout: bool,
    pub(crate) caches_refusals: bool,
    pub(crate) function: Option<Py<Function>>,
}

impl RateLimiter {
    fn of(&self, py: Python<'_>, tokens: u64) -> PyResult<locker_runtime::RateLimiter> {
        let locker = self.reference.open(py)?;
        let function = self.function.as_ref().map(Py::get);
        if let Some(function) = function {
            describe(locker, &function.digest);
        }
        let limiter =
            limiter(locker, self.key.clone(), self.quota, function.map(|function| function.source.path()));
        let limiter = limiter.wait_past_timeout(self.waits_past_timeout).cache_refusals(self.caches_refusals);
        Ok(limiter.tokens(tokens))
    }
}

#[pymethods]
impl RateLimiter {
    #[getter]
    fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Takes tokens, and waits until they are available.
    #[pyo3(signature = (tokens=1, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = tokens)] tokens: u64,
        #[pyo3(from_py_with = timeout)] timeout: Option<Duration>,
    ) -> PyResult<Call> {
        let mut limiter = self.of(py, tokens)?;
        if let Some(timeout) = timeout {
            limiter = limiter.timeout(timeout);
        }
        Ok(Call::new(async move { limiter.acquire().await.map(Admission::output) }))
    }

    /// Takes tokens that are available now.
    #[pyo3(signature = (tokens=1))]
    fn try_acquire(&self, py: Python<'_>, #[pyo3(from_py_with = tokens)] tokens: u64) -> PyResult<Call> {
        let limiter = self.of(py, tokens)?;
        Ok(Call::new(async move {
            limiter.try_acquire().await.map(|admission| Output::maybe(admission, Admission::output))
        }))
    }
}

/// What a handle needs besides its settings.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) reference: LockerRef,
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn key(&self, kind: &str) -> String {
        named(&self.reference.prefix, kind, &self.name).to_string()
    }

    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<(&locker_runtime::Locker, &str)> {
        Ok((self.reference.open(py)?, &self.name))
    }

    fn timeout(&self, timeout: Option<Duration>) -> Duration {
        timeout.unwrap_or(self.reference.timeout)
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Counter(pub(crate) Named);

impl Counter {
    fn of(&self, py: Python<'_>) -> PyResult<locker_runtime::Counter> {
        let (locker, name) = self.0.open(py)?;
        Ok(locker.counter(name))
    }
}

#[pymethods]
impl Counter {
    #[getter]
    fn key(&self) -> String {
        self.0.key("counter")
    }

    /// Adds `by`, and returns the sum.
    #[pyo3(signature = (by=1))]
    fn add(&self, py: Python<'_>, #[pyo3(from_py_with = by)] by: i64) -> PyResult<Call> {
        let counter = self.of(py)?;
        Ok(Call::new(async move { counter.add(by).await.map(Output::Signed) }))
    }

    fn get(&self, py: Python<'_>) -> PyResult<Call> {
        let counter = self.of(py)?;
        Ok(Call::new(async move { counter.get().await.map(Output::Signed) }))
    }

    fn set(&self, py: Python<'_>, #[pyo3(from_py_with = value)] value: i64) -> PyResult<Call> {
        let counter = self.of(py)?;
        Ok(Call::new(async move { counter.set(value).await.map(|()| Output::Nothing) }))
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) of: Named,
    pub(crate) keep: Option<Duration>,
}

impl Event {
    fn of(&self, py: Python<'_>) -> PyResult<locker_runtime::Event> {
        let (locker, name) = self.of.open(py)?;
        let event = locker.event(name);
        Ok(match self.keep {
            Some(keep) => event.keep(keep),
            None => event,
        })
    }
}

#[pymethods]
impl Event {
    #[getter]
    fn key(&self) -> String {
        self.of.key("event")
    }

    /// Waits until the event is sent, and returns its message.
    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = timeout)] timeout: Option<Duration>,
    ) -> PyResult<Call> {
        let (event, timeout) = (self.of(py)?, self.of.timeout(timeout));
        Ok(Call::new(async move { event.wait(timeout).await.map(Output::Text) }))
    }

    #[pyo3(signature = (message=String::new()), text_signature = "($self, message='')")]
    fn send(&self, py: Python<'_>, #[pyo3(from_py_with = message)] message: String) -> PyResult<Call> {
        let event = self.of(py)?;
        Ok(Call::new(async move { event.send(&message).await.map(|()| Output::Nothing) }))
    }

    fn reset(&self, py: Python<'_>) -> PyResult<Call> {
        let event = self.of(py)?;
        Ok(Call::new(async move { event.reset().await.map(|()| Output::Nothing) }))
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Watchdog(pub(crate) Named);

impl Watchdog {
    fn of(&self, py: Python<'_>) -> PyResult<locker_runtime::Watchdog> {
        let (locker, name) = self.0.open(py)?;
        Ok(locker.watchdog(name))
    }
}

#[pymethods]
impl Watchdog {
    #[getter]
    fn key(&self) -> String {
        self.0.key("watchdog")
    }

    fn kick(&self, py: Python<'_>, #[pyo3(from_py_with = expires)] expires: Duration) -> PyResult<Call> {
        let watchdog = self.of(py)?;
        Ok(Call::new(async move { watchdog.kick(expires).await.map(|()| Output::Nothing) }))
    }

    /// Waits until the watchdog has expired.
    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = timeout)] timeout: Option<Duration>,
    ) -> PyResult<Call> {
        let (watchdog, timeout) = (self.of(py)?, self.0.timeout(timeout));
        Ok(Call::new(async move { watchdog.wait(timeout).await.map(|()| Output::Nothing) }))
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Latch {
    pub(crate) of: Named,
    pub(crate) count: u64,
}

impl Latch {
    fn of(&self, py: Python<'_>) -> PyResult<locker_runtime::Latch> {
        let (locker, name) = self.of.open(py)?;
        Ok(locker.latch(name, self.count))
    }
}

#[pymethods]
impl Latch {
    #[getter]
    fn key(&self) -> String {
        self.of.key("latch")
    }

    /// Counts down by one, and returns how many count-downs are left.
    fn count_down(&self, py: Python<'_>) -> PyResult<Call> {
        let latch = self.of(py)?;
        Ok(Call::new(async move { latch.count_down().await.map(Output::Unsigned) }))
    }

    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = timeout)] timeout: Option<Duration>,
    ) -> PyResult<Call> {
        let (latch, timeout) = (self.of(py)?, self.of.timeout(timeout));
        Ok(Call::new(async move { latch.wait(timeout).await.map(|()| Output::Nothing) }))
    }
}

#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Barrier {
    pub(crate) of: Named,
    pub(crate) parties: u64,
    pub(crate) once: bool,
}

#[pymethods]
impl Barrier {
    #[getter]
    fn key(&self) -> String {
        self.of.key("barrier")
    }

    #[pyo3(signature = (timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = timeout)] timeout: Option<Duration>,
    ) -> PyResult<Call> {
        let (locker, name) = self.of.open(py)?;
        let (barrier, timeout) =
            (locker.barrier(name, self.parties).once(self.once), self.of.timeout(timeout));
        Ok(Call::new(async move { barrier.wait(timeout).await.map(|()| Output::Nothing) }))
    }
}

fn tokens(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    count("tokens", value)
}

fn by(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    number("by", value)
}

fn value(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    number("value", value)
}

fn message(value: &Bound<'_, PyAny>) -> PyResult<String> {
    text("message", value)
}

fn expires(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    given("expires", value)
}
