//! Texts that Python gives.

use crate::errors::misused;
use pyo3::{prelude::*, types::PyString};
use std::borrow::Cow;

/// Reads a text that UTF-8 can spell.
pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let refused = |why: &str| misused(value.py(), format!("{name}={value:?}: {why}"));
    let text = value.cast::<PyString>().map_err(|_| refused("give a text"))?;
    text.to_cow().map(Cow::into_owned).map_err(|_| refused("it has lone surrogates"))
}

/// Reads the name of a primitive or of a function.
pub(crate) fn name(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = text("name", value)?;
    if name.is_empty() {
        return Err(misused(value.py(), "name='': give at least one character"));
    }
    Ok(name)
}
