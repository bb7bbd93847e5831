//! A reference to a locker, which each process opens.

use crate::errors::raised;
use locker_runtime::private::bindings::LazyLocker;
use pyo3::prelude::*;
use std::{sync::Arc, time::Duration};

/// What handles know of their locker.
#[derive(Clone, Debug)]
pub(crate) struct LockerRef {
    pub(crate) lazy: Arc<LazyLocker>,
    pub(crate) prefix: Arc<str>,
    /// The timeout of calls without one.
    pub(crate) timeout: Duration,
}

impl LockerRef {
    /// Returns the locker of this process, which the first caller opens.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<&locker_runtime::Locker> {
        if let Some(locker) = self.lazy.get() {
            return Ok(locker);
        }
        // Before anything happens that may be worth a word.
        py.import("locker._logging")?.call_method0("start")?;
        py.detach(|| self.lazy.open()).map_err(|error| raised(py, &error))
    }
}
