//! Records: of several callers one runs, in a slot of time or for as long as its result is kept.

use crate::{
    call::{Call, Output},
    errors::{exception, raised},
    guard::runs,
    key::{Format, Function, digest_of},
    options::{self, Holds, KeepOptions, SlotOptions},
    reference::LockerRef,
};
use futures_util::TryFutureExt;
use locker_runtime::private::bindings::{
    self, Asks, Began, Slots, asked, begin_run, describe, record, result_text, slots, unread,
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use std::time::Duration;

/// A record of what has run.
#[pyclass(frozen, module = "locker._native")]
#[derive(Clone, Debug)]
pub(crate) struct Once {
    pub(crate) reference: LockerRef,
    pub(crate) key: locker_runtime::Key,
    pub(crate) key_format: Format,
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
        let (py, every, options) = (every.py(), options::given("every", every)?, SlotOptions::read(options)?);
        let slots = slots(every, options.from, options.early).map_err(|error| raised(py, &error))?;
        Ok(OncePer { of: self.clone(), slots, options })
    }

    /// Keeps the result of a success for so long, for calls that have the values `same` in common with it.
    #[pyo3(signature = (keep, *, same=None, **options))]
    fn keep(
        &self,
        keep: &Bound<'_, PyAny>,
        same: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<OnceKeep> {
        let (py, keep, options) = (keep.py(), options::given("keep", keep)?, KeepOptions::read(options)?);
        options.check(py, keep)?;
        let digest = same.map(|values| digest_of(values, self.key_format)).transpose()?;
        Ok(OnceKeep { of: self.clone(), keep, digest, options })
    }
}

impl Once {
    /// Returns the record, for a call of `function`.
    fn record(&self, py: Python<'_>, function: Option<&Function>) -> PyResult<locker_runtime::Once> {
        let locker = self.reference.open(py)?;
        if let Some(function) = function {
            describe(locker, &function.digest);
        }
        Ok(record(locker, self.key.clone(), function.map(|function| function.source)))
    }
}

/// Begins a run, and returns its guard, or what `done` makes of the success of another run.
fn begin(
    py: Python<'_>,
    call: impl Asks,
    inside: Option<&Bound<'_, PyAny>>,
    done: fn(bindings::Done) -> Output,
) -> PyResult<Call> {
    let around = inside.map_or_else(|| Ok(Vec::new()), options::around)?;
    let asked = asked(call, &around).map_err(|error| raised(py, &error))?;
    Ok(Call::new(begin_run(asked).map_ok(move |began| match began {
        Began::Runs(run) => runs(run),
        Began::Done(success) => done(success),
    })))
}

/// What runs once in each slot of time.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct OncePer {
    of: Once,
    slots: Slots,
    options: SlotOptions,
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
        let call = self.of.record(py, function)?.per(self.slots.every).slots(self.slots);
        begin(py, self.options.call(call, self.of.defaults), inside, |_| Output::Nothing)
    }
}

/// What runs once for as long as its result is kept.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct OnceKeep {
    of: Once,
    keep: Duration,
    digest: Option<u128>,
    options: KeepOptions,
}

#[pymethods]
impl OnceKeep {
    #[getter]
    fn key(&self) -> &str {
        self.of.key()
    }

    /// Begins a run, and returns its guard, or the success of another run.
    #[pyo3(signature = (*, function=None, inside=None))]
    fn begin(
        &self,
        py: Python<'_>,
        function: Option<&Function>,
        inside: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let mut call = self.of.record(py, function)?.keep(self.keep);
        if let Some(digest) = self.digest {
            call = call.same_digest(digest);
        }
        begin(py, self.options.call(call, self.of.defaults), inside, |done| Output::object(Done(done)))
    }
}

/// The success of another run.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Done(bindings::Done);

#[pymethods]
impl Done {
    /// The JSON text of its result. Raises `Conflict` if that was not kept.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = result_text(&self.0).map_err(|error| raised(py, &error))?;
        Ok(PyBytes::new(py, text))
    }

    /// Returns the `Conflict` of a result that cannot be read.
    fn unread<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        exception(py, &unread(&self.0))
    }
}
