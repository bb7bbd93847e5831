//! Records: of several callers one runs in a slot of time.

use crate::{
    call::{Call, Output},
    errors::raised,
    guard::runs,
    key::Function,
    options::{self, Holds, RunOptions},
    reference::LockerRef,
};
use futures_util::TryFutureExt;
use locker_runtime::private::bindings::{Slots, asked, begin_run, describe, record, slots};
use pyo3::{prelude::*, types::PyDict};

/// A record of what has run.
#[pyclass(frozen, module = "locker._native")]
#[derive(Clone, Debug)]
pub(crate) struct Once {
    pub(crate) reference: LockerRef,
    pub(crate) key: locker_runtime::Key,
    pub(crate) defaults: Holds,
}

#[pymethods]
impl Once {
    #[getter]
    fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Makes one success count for a slot of time.
    #[pyo3(signature = (every, **options))]
    fn per(&self, every: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<OncePer> {
        let (py, every, options) = (every.py(), options::given("every", every)?, RunOptions::read(options)?);
        let slots = slots(every, options.from, options.early).map_err(|error| raised(py, &error))?;
        Ok(OncePer { of: self.clone(), slots, options })
    }
}

/// What runs once in each slot of time.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct OncePer {
    of: Once,
    slots: Slots,
    options: RunOptions,
}

#[pymethods]
impl OncePer {
    #[getter]
    fn key(&self) -> &str {
        self.of.key()
    }

    /// Begins a run, and returns its guard; `None` if the call is skipped.
    #[pyo3(signature = (*, function=None, inside=None))]
    fn begin(
        &self,
        py: Python<'_>,
        function: Option<&Function>,
        inside: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let Once { reference, key, defaults } = &self.of;
        let locker = reference.open(py)?;
        if let Some(function) = function {
            describe(locker, &function.digest);
        }
        let record = record(locker, key.clone(), function.map(|function| function.source));
        let call = self.options.call(record.per(self.slots.every).slots(self.slots), *defaults);
        let around = inside.map_or_else(|| Ok(Vec::new()), options::around)?;
        let asked = asked(call, &around).map_err(|error| raised(py, &error))?;
        Ok(Call::new(begin_run(asked).map_ok(|run| Output::maybe(run, runs))))
    }
}
