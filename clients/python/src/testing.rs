//! A locker for tests, and what controls its store.

use crate::{errors::raised, key::Key, locker::Locker, options::given, settings::Settings};
use locker_runtime::{private::bindings::LazyLocker, testing};
use pyo3::{prelude::*, types::PyDict};
use std::sync::{Mutex, PoisonError};

/// Returns a locker on a store of its own in this process, and what controls the store.
#[pyfunction]
#[pyo3(signature = (**options))]
pub(crate) fn controlled(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<(Locker, Control)> {
    let url = "memory://";
    let settings = Settings::read(Some(url), options)?;
    let made = Locker::made(Some(url.to_owned()), settings, LazyLocker::controlled);
    let (locker, control) = made.map_err(|error| raised(py, &error))?;
    Ok((locker, Control(control)))
}

/// Controls the store of one locker under test.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Control(testing::Control);

#[pymethods]
impl Control {
    /// Moves time on for the store and its holds.
    fn advance(&self, py: Python<'_>, by: &Bound<'_, PyAny>) -> PyResult<()> {
        let by = given("by", by)?;
        py.detach(|| self.0.advance(by));
        Ok(())
    }

    /// Ends the holds of a key by force. Returns whether any caller held it.
    fn lose(&self, py: Python<'_>, key: &Key) -> PyResult<bool> {
        py.detach(|| self.0.lose(&key.0)).map_err(|error| raised(py, &error))
    }

    /// Makes all calls to the store fail until the end of the outage.
    fn outage(&self) -> Outage {
        Outage(Mutex::new(Some(self.0.outage())))
    }
}

/// An outage of a store, which ends when this is collected at the latest.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Outage(Mutex<Option<testing::Outage>>);

#[pymethods]
impl Outage {
    /// Ends it.
    fn end(&self, py: Python<'_>) {
        let outage = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(outage));
    }
}
