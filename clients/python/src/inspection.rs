//! What can be seen of a key.

use crate::{call::Output, holder::Holder};
use locker_runtime::primitives::inspection;
use pyo3::prelude::*;

/// The state of one key.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Inspection(inspection::Inspection);

impl Inspection {
    pub(crate) fn output(seen: inspection::Inspection) -> Output {
        Output::object(Self(seen))
    }
}

#[pymethods]
impl Inspection {
    /// The total: permits, tokens per interval, parties of a barrier, or the count of a latch.
    #[getter]
    fn size(&self) -> Option<u64> {
        self.0.size
    }

    /// How much of the total is used now.
    #[getter]
    fn used(&self) -> Option<u64> {
        self.0.used
    }

    /// The current holds, oldest first.
    #[getter]
    fn holders(&self) -> Vec<Holder> {
        self.0.holders.iter().map(Holder::from).collect()
    }

    /// The number of waiting callers.
    #[getter]
    fn waiting(&self) -> u64 {
        self.0.waiting
    }

    /// Seconds until all that is used is free again, or a watchdog expires.
    #[getter]
    fn resets_in(&self) -> Option<f64> {
        self.0.resets_in.map(|time| time.as_secs_f64())
    }

    /// Whether the event was sent, the watchdog has expired, the latch is open, or the barrier has had its last round.
    #[getter]
    fn fired(&self) -> Option<bool> {
        self.0.fired
    }

    /// The value of a counter.
    #[getter]
    fn value(&self) -> Option<i64> {
        self.0.value
    }

    fn __repr__(&self) -> String {
        format!("<Inspection holders={} waiting={}>", self.0.holders.len(), self.0.waiting)
    }
}
