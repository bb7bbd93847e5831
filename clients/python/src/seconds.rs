//! Times and numbers as Python programs give them.

use crate::errors::misused;
use locker_runtime::private::bindings::parse_duration;
use pyo3::{
    exceptions::PyOverflowError,
    prelude::*,
    types::{PyBool, PyDelta, PyFloat, PyInt, PyString},
};
use std::time::Duration;

/// A time: a number of seconds, a text such as `"800ms"`, or a `timedelta`. Infinity is [`Duration::MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let refused = |why: &str| {
            let shown = value.repr().map_or_else(|_| "it".to_owned(), |text| text.to_string());
            misused(value.py(), format!("{shown} is no time: {why}"))
        };
        if value.is_instance_of::<PyBool>() {
            return Err(refused(ACCEPTED));
        }
        if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
            let number = value.extract().or_else(|error: PyErr| huge(value, error))?;
            return of_number(number).map(Self).map_err(refused);
        }
        if let Ok(text) = value.cast::<PyString>() {
            return parse_duration(&text.to_cow()?).map(Self).map_err(|_| refused(ACCEPTED));
        }
        if value.is_instance_of::<PyDelta>() {
            return value.extract().map(Self).map_err(|_: PyErr| refused(NEGATIVE));
        }
        // Numbers of other types, such as `Decimal`.
        let number: f64 = value.extract().map_err(|_: PyErr| refused(ACCEPTED))?;
        of_number(number).map(Self).map_err(refused)
    }
}

/// Returns an infinity of the same sign for an integer that no float holds.
fn huge(value: Borrowed<'_, '_, PyAny>, error: PyErr) -> PyResult<f64> {
    if !error.is_instance_of::<PyOverflowError>(value.py()) {
        return Err(error);
    }
    Ok(if value.lt(0)? { f64::NEG_INFINITY } else { f64::MAX })
}

const ACCEPTED: &str = "give seconds, a text such as \"800ms\" or \"1m 30s\", or a timedelta";
const NEGATIVE: &str = "it is negative";

/// More than anything accepts, and not infinite.
const TOO_LONG: Duration = Duration::from_secs(u64::MAX);

fn of_number(seconds: f64) -> Result<Duration, &'static str> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) => Ok(time),
        Err(_) if seconds == f64::INFINITY => Ok(Duration::MAX),
        Err(_) if seconds < 0.0 => Err(NEGATIVE),
        Err(_) if seconds.is_nan() => Err(ACCEPTED),
        Err(_) => Ok(TOO_LONG),
    }
}

/// Reads the number `name` from 0.
pub(crate) fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    in_range(name, value, "0 to 9007199254740991")
}

/// Reads the number `name`.
pub(crate) fn number(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    in_range(name, value, "-9007199254740991 to 9007199254740991")
}

fn in_range<'py, T>(name: &str, value: &Bound<'py, PyAny>, accepted: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = value.py();
    let refused = || misused(py, format!("{name}={value:?}: give a number from {accepted}"));
    if value.is_instance_of::<PyBool>() {
        return Err(refused());
    }
    value.extract().map_err(|_: PyErr| refused())
}
