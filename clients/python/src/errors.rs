//! The errors of the runtime as the classes of `locker._errors`.

use crate::holder::Holder;
use locker_runtime::{Blocked, Error, ErrorKind};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyDict};

/// The module of the classes, and the class of each kind by the kind's name.
struct Classes {
    by_kind: Py<PyDict>,
    other: Py<PyAny>,
    blocked: Py<PyAny>,
}

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || {
            let module = py.import("locker._errors")?;
            let by_kind = module.getattr("BY_KIND")?.cast_into::<PyDict>()?.unbind();
            let class = |name| module.getattr(name).map(Bound::unbind);
            Ok(Self { by_kind, other: class("LockerError")?, blocked: class("Blocked")? })
        })
    }
}

/// Returns the exception for an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// Makes the exception for an error.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let Classes { by_kind, other, blocked: class_of_blocked } = Classes::get(py)?;
    let of_kind = by_kind.bind(py).get_item(format!("{:?}", error.kind()))?;
    let class = of_kind.unwrap_or_else(|| other.bind(py).clone());
    let attributes = PyDict::new(py);
    attributes.set_item("key", error.key())?;
    attributes.set_item("function", error.function())?;
    attributes.set_item("retry_after", error.retry_after().map(|after| after.as_secs_f64()))?;
    attributes.set_item("is_temporary", error.is_temporary())?;
    attributes.set_item("is_certain", error.is_certain())?;
    let blocked = error.blocked().map(|blocked| told(class_of_blocked.bind(py), blocked)).transpose()?;
    attributes.set_item("blocked", blocked)?;
    let message = match error.kind() {
        // The class says it, and messages of the Python half have no kind.
        ErrorKind::Misused => error.to_string().replacen("misused: ", "", 1),
        _ => error.to_string(),
    };
    class.call((message,), Some(&attributes))
}

/// Returns what stood in the way of a call.
fn told<'py>(class: &Bound<'py, PyAny>, blocked: &Blocked) -> PyResult<Bound<'py, PyAny>> {
    let holders: Vec<Holder> = blocked.holders().iter().cloned().map(Holder::from).collect();
    class.call1((holders, blocked.ahead(), blocked.place(), blocked.to_string()))
}

/// Returns the exception `Misused`.
pub(crate) fn misused(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raised(py, &Error::new(ErrorKind::Misused, message))
}
