//! What is held.

use crate::{
    call::{Call, Output},
    errors::{exception, misused, raised},
};
use futures_util::{
    FutureExt, TryFutureExt,
    future::{ready, select_all},
};
use locker_runtime::{
    Error, ErrorKind,
    private::bindings::{self, Ends, Holding, finish, finish_with, release_bounded},
};
use pyo3::{exceptions::PyResourceWarning, prelude::*};
use std::{
    ffi::CString,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

/// A hold. Its lease is renewed in the background until it is released, lost or garbage-collected.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) holding: Holding,
    /// `None` once released. Only touched while the GIL is held.
    held: Mutex<Option<locker_runtime::Guard>>,
    warns: AtomicBool,
    /// `None`: it is no run.
    run: Option<Run>,
}

/// What a run has and other holds have not.
#[derive(Clone, Copy, Debug)]
struct Run {
    slot: Option<SystemTime>,
    missed: u64,
    ends: Ends,
}

impl Guard {
    fn new(guard: locker_runtime::Guard, run: Option<Run>) -> Self {
        Self {
            holding: Holding::of(&guard),
            held: Mutex::new(Some(guard)),
            warns: AtomicBool::new(false),
            run,
        }
    }

    /// Warns that nobody has released this, as files do. In Rust, so that no interrupt is lost in `__del__`.
    fn warn_of_drop(&self, py: Python<'_>) -> PyResult<()> {
        let is_finalizing = py.import("sys").and_then(|sys| sys.call_method0("is_finalizing")?.is_truthy());
        if !matches!(is_finalizing, Ok(false)) {
            return Ok(());
        }
        let key = self.key().replace('\0', "\\0");
        let text =
            format!("{key} was dropped while it was held, which releases it: use `with`, or keep its guard");
        PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &CString::new(text)?, 1)
    }

    fn take(&self) -> Option<locker_runtime::Guard> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn take_run(&self, py: Python<'_>) -> PyResult<(locker_runtime::Guard, Ends)> {
        let run = self.run.ok_or_else(|| misused(py, "only a run has success"))?;
        let guard = self.take().ok_or_else(|| released(py, self.key()))?;
        Ok((guard, run.ends))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.warns.load(Ordering::Relaxed) || !self.is_held() {
            return;
        }
        // The release, in the background.
        drop(self.take());
        Python::attach(|py| {
            let raised = PyErr::take(py);
            if let Err(error) = self.warn_of_drop(py) {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

#[pymethods]
impl Guard {
    /// Makes this warn if it is garbage-collected while it is held.
    fn warn_if_dropped(&self) {
        self.warns.store(true, Ordering::Relaxed);
    }

    #[getter]
    fn key(&self) -> &str {
        self.holding.key()
    }

    #[getter]
    fn fence(&self) -> u64 {
        self.holding.fence()
    }

    /// 32 hexadecimal digits that no other hold of the store has.
    #[getter]
    fn id(&self) -> String {
        self.holding.id()
    }

    /// When the slot of a run begins; `None` if it is none of `once_per`.
    #[getter]
    fn slot(&self) -> Option<SystemTime> {
        self.run?.slot
    }

    /// How many slots before that of a run had no success.
    #[getter]
    fn missed(&self) -> u64 {
        self.run.map_or(0, |run| run.missed)
    }

    /// Seconds of the lease that are left by the local clock; 0.0 if it may be over, and after `release`.
    #[getter]
    fn remaining(&self) -> f64 {
        if self.is_released() { 0.0 } else { self.holding.remaining().as_secs_f64() }
    }

    #[getter]
    fn is_held(&self) -> bool {
        self.remaining() > 0.0
    }

    /// Whether `release` was called.
    #[getter]
    fn is_released(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Raises `Lost` if the lease may be over, `NotHeld` after `release`, `Misused` in a forked child.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_released() {
            return Err(released(py, self.key()));
        }
        if self.is_held() { Ok(()) } else { Err(raised(py, &self.holding.loss_error())) }
    }

    /// Ends the hold. With `bounded` it waits no longer than `command_timeout`, as the end of a function does.
    #[pyo3(signature = (*, bounded=false))]
    fn release(&self, py: Python<'_>, bounded: bool) -> PyResult<Call> {
        let guard = self.take().ok_or_else(|| released(py, self.key()))?;
        Ok(release(vec![guard], bounded))
    }

    /// Ends a run of unknown outcome: as `release`, or by its lease if crashes are refused.
    fn abandon(&self, py: Python<'_>) -> PyResult<Call> {
        let (guard, ends) = self.take_run(py)?;
        if !ends.refuses() {
            return Ok(release(vec![guard], true));
        }
        drop(guard);
        Ok(Call::new(ready(Ok(Output::Nothing))))
    }

    /// Ends a run with success, and waits as `release` does.
    fn finish(&self, py: Python<'_>) -> PyResult<Call> {
        let (guard, ends) = self.take_run(py)?;
        Ok(Call::new(finish(guard, ends).map_ok(|()| Output::Nothing)))
    }

    /// Ends a run with success, and keeps the JSON text of its result. `None`: it has none.
    #[pyo3(signature = (text))]
    fn finish_with(&self, py: Python<'_>, text: Option<&[u8]>) -> PyResult<Call> {
        let (guard, ends) = self.take_run(py)?;
        Ok(Call::new(finish_with(guard, ends, text).map_ok(|()| Output::Nothing)))
    }

    /// Waits until the hold is lost. Never ends after `release`. Keeps nothing held.
    fn lost(&self) -> Call {
        Call::new(self.holding.lost().map(|()| Ok(Output::Nothing)))
    }

    /// Returns the `Lost` that says why the hold is over. For the time after `lost`.
    fn loss<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        exception(py, &self.holding.loss_error())
    }

    fn __repr__(&self) -> String {
        let (key, fence, left) = (self.key(), self.fence(), self.remaining());
        format!("<Guard key={key:?} fence={fence} remaining={left:.3}>")
    }
}

/// Several holds, in the order of their keys.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Guards {
    pub(crate) all: Vec<Py<Guard>>,
}

impl Guards {
    pub(crate) fn new(py: Python<'_>, guards: Vec<locker_runtime::Guard>) -> PyResult<Self> {
        let all =
            guards.into_iter().map(|guard| Py::new(py, Guard::new(guard, None))).collect::<PyResult<_>>()?;
        Ok(Self { all })
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.all.iter().map(Py::get)
    }

    /// Returns the guard that is over, or that ends first.
    fn first_to_end(&self) -> Option<&Guard> {
        self.guards().min_by(|one, other| one.remaining().total_cmp(&other.remaining()))
    }
}

#[pymethods]
impl Guards {
    /// Makes all of them warn if they are garbage-collected while they are held.
    fn warn_if_dropped(&self) {
        self.guards().for_each(Guard::warn_if_dropped);
    }

    /// The guards. They share their holds with this object: `release` on either side counts for both.
    #[getter]
    fn each(&self, py: Python<'_>) -> Vec<Py<Guard>> {
        self.all.iter().map(|guard| guard.clone_ref(py)).collect()
    }

    #[getter]
    fn remaining(&self) -> f64 {
        self.first_to_end().map_or(0.0, Guard::remaining)
    }

    #[getter]
    fn is_held(&self) -> bool {
        self.guards().all(Guard::is_held)
    }

    #[getter]
    fn is_released(&self) -> bool {
        self.guards().all(Guard::is_released)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.guards().try_for_each(|guard| guard.check(py))
    }

    #[pyo3(signature = (*, bounded=false))]
    fn release(&self, py: Python<'_>, bounded: bool) -> PyResult<Call> {
        let guards: Vec<_> = self.guards().filter_map(Guard::take).collect();
        match self.guards().next() {
            Some(first) if guards.is_empty() => Err(released(py, first.key())),
            _ => Ok(release(guards, bounded)),
        }
    }

    /// Waits until one of the holds is lost.
    fn lost(&self) -> Call {
        let lost = self.guards().map(|guard| Box::pin(guard.holding.lost()));
        Call::new(select_all(lost).map(|_| Ok(Output::Nothing)))
    }

    fn loss<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.first_to_end() {
            Some(guard) => guard.loss(py),
            None => Err(misused(py, "nothing was held")),
        }
    }

    fn __repr__(&self) -> String {
        let keys: Vec<_> = self.guards().map(Guard::key).collect();
        format!("<Guards keys={keys:?} remaining={:.3}>", self.remaining())
    }
}

fn release(mut guards: Vec<locker_runtime::Guard>, bounded: bool) -> Call {
    if bounded {
        return Call::new(release_bounded(guards).map_ok(|()| Output::Nothing));
    }
    if guards.len() == 1
        && let Some(guard) = guards.pop()
    {
        return Call::new(guard.release().map_ok(|()| Output::Nothing));
    }
    Call::new(bindings::release(guards).map_ok(|()| Output::Nothing))
}

fn released(py: Python<'_>, key: &str) -> PyErr {
    let error = Error::new(ErrorKind::NotHeld, "this guard was released");
    raised(py, &error.with_key(key))
}

/// Makes a guard the result of a call.
pub(crate) fn granted(guard: locker_runtime::Guard) -> Output {
    Output::object(Guard::new(guard, None))
}

/// Makes the guard of a run the result of a call.
pub(crate) fn runs((guard, ends): (locker_runtime::Guard, Ends)) -> Output {
    let (slot, missed) = (guard.slot(), guard.missed());
    Output::object(Guard::new(guard, Some(Run { slot, missed, ends })))
}

/// Makes several guards the result of a call.
pub(crate) fn granted_all(guards: Vec<locker_runtime::Guard>) -> Output {
    Output::Object(Box::new(|py| Ok(Py::new(py, Guards::new(py, guards)?)?.into_any())))
}
