//! Keys, of names and of functions with their arguments.

use crate::{errors::misused, text};
use locker_runtime::{
    KeyFormat,
    private::{
        self, FunctionDigest,
        bindings::{ArgumentsDigest, described, digest, key_of, named},
    },
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple},
};
use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::DefaultHasher},
    fmt::{Display, Write},
    hash::{Hash, Hasher},
    sync::{Mutex, PoisonError},
};

/// A whole key, as the store receives it.
#[pyclass(frozen, module = "locker._native")]
#[derive(Clone, Debug)]
pub(crate) struct Key(pub(crate) locker_runtime::Key);

#[pymethods]
impl Key {
    #[new]
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(locker_runtime::Key::new(&text::text("key", text)?)))
    }

    fn __str__(&self) -> &str {
        self.0.as_str()
    }

    fn __repr__(&self) -> String {
        format!("Key({:?})", self.0.as_str())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.as_str().hash(&mut hasher);
        hasher.finish()
    }

    fn __getnewargs__(&self) -> (&str,) {
        (self.0.as_str(),)
    }
}

/// A name of a primitive, or a whole key.
pub(crate) enum Name<'py> {
    Text(Bound<'py, PyString>),
    Key(Bound<'py, Key>),
}

impl<'py> FromPyObject<'_, 'py> for Name<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(text.to_owned()));
        }
        match value.cast::<Key>() {
            Ok(key) => Ok(Self::Key(key.to_owned())),
            Err(_) => Err(misused(value.py(), format!("name={value:?}: give a text"))),
        }
    }
}

impl Name<'_> {
    pub(crate) fn key(self, prefix: &str, kind: &str) -> PyResult<locker_runtime::Key> {
        match self {
            Self::Text(text) => Ok(named(prefix, kind, &text::name(&text)?)),
            Self::Key(key) => Ok(key.get().0.clone()),
        }
    }
}

/// Returns a text without lone surrogates, which UTF-8 cannot spell.
fn plain<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    text.to_cow().map_err(|_| misused(text.py(), format!("{text:?} is no text: it has lone surrogates")))
}

/// A decorated function: its digest in keys, and its name for errors and operators.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Function {
    /// As errors name it.
    pub(crate) source: &'static private::Function,
    pub(crate) digest: FunctionDigest,
}

#[pymethods]
impl Function {
    #[new]
    #[pyo3(signature = (path, file="", line=0))]
    fn new(path: &Bound<'_, PyAny>, file: &str, line: u32) -> PyResult<Self> {
        let path = text::name(path)?;
        Ok(Self { source: kept(&path, file, line), digest: described(&path, file, line) })
    }

    #[getter]
    fn path(&self) -> &'static str {
        self.source.path()
    }

    /// The md5 of the path, whose segments are joined by `:`.
    #[getter]
    fn digest(&self) -> &str {
        digest(&self.digest)
    }

    fn __repr__(&self) -> String {
        format!("Function({:?})", self.path())
    }
}

/// Keeps a function until the process ends, once: the runtime knows functions from statics. Programs have few.
fn kept(path: &str, file: &str, line: u32) -> &'static private::Function {
    type Kept = HashMap<(&'static str, &'static str, u32), &'static private::Function>;
    static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    let known: &HashMap<(&str, &str, u32), &'static private::Function> = kept;
    if let Some(function) = known.get(&(path, file, line)) {
        return function;
    }
    let leak = |text: &str| -> &'static str { Box::leak(Box::<str>::from(text)) };
    let (path, file) = (leak(path), leak(file));
    let function = Box::leak(Box::new(private::Function::named(path, file, line)));
    kept.insert((path, file, line), function);
    function
}

/// The format of keys by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format(pub(crate) KeyFormat);

impl Format {
    fn read(py: Python<'_>, name: &str) -> PyResult<Self> {
        match name {
            "escaped" => Ok(Self(KeyFormat::Escaped)),
            "python" => Ok(Self(KeyFormat::Python)),
            other => Err(misused(py, format!("key_format={other:?}: give \"escaped\" or \"python\""))),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        if self.0 == KeyFormat::Python { "python" } else { "escaped" }
    }
}

impl<'py> FromPyObject<'_, 'py> for Format {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Self::read(value.py(), &value.cast::<PyString>()?.to_cow()?)
    }
}

/// Returns the key of a function and its arguments.
pub(crate) fn function_key(
    prefix: &str,
    format: Format,
    function: &Function,
    parts: &Bound<'_, PyAny>,
    part: &str,
) -> PyResult<Key> {
    let part = match part {
        "lock" => ":lock|",
        "semaphore" => ":semaphore|",
        "rate" => ":rate|",
        "once" => ":once|",
        other => {
            return Err(PyValueError::new_err(format!(
                "{other:?} is neither lock, semaphore, rate nor once"
            )));
        }
    };
    let mut key = key_of(prefix, format.0, &function.digest, part);
    each_text(parts, format, |text| key.part(text))?;
    Ok(Key(key.finish()))
}

/// Returns the digest of values, as a key of the default format contains it: two lists of values never have one.
pub(crate) fn digest_of(values: &Bound<'_, PyAny>, format: Format) -> PyResult<u128> {
    let mut digest = ArgumentsDigest::new(KeyFormat::Escaped);
    each_text(values, format, |text| digest.part(text))?;
    Ok(digest.finish())
}

fn each_text(values: &Bound<'_, PyAny>, format: Format, mut take: impl FnMut(&str)) -> PyResult<()> {
    for value in values.try_iter()? {
        take(&plain(&text_of(&value?, format)?)?);
    }
    Ok(())
}

/// Returns what a key contains for `value`, before escaping.
#[pyfunction]
#[pyo3(signature = (value, key_format="escaped"))]
pub(crate) fn part_text<'py>(value: &Bound<'py, PyAny>, key_format: &str) -> PyResult<Bound<'py, PyString>> {
    let text = text_of(value, Format::read(value.py(), key_format)?)?;
    plain(&text)?;
    Ok(text)
}

fn text_of<'py>(value: &Bound<'py, PyAny>, format: Format) -> PyResult<Bound<'py, PyString>> {
    let py = value.py();
    if let Ok(text) = value.cast_exact::<PyString>() {
        return Ok(text.clone());
    }
    if value.is_exact_instance_of::<PyInt>() {
        return value.str();
    }
    if format.0 != KeyFormat::Python {
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(PyString::new(py, if truth.is_true() { "true" } else { "false" }));
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Ok(PyString::new(py, &number.value().to_string()));
        }
    }
    refuse_sets(value, &mut String::new(), 0)?;
    let text = value.str()?;
    if has_address(&text.to_string_lossy()) {
        return Err(refused(
            value,
            "",
            "its text has an address: give a field of it, or its class a `__str__`",
        ));
    }
    Ok(text)
}

/// Refuses sets, also those inside of lists, tuples and dictionaries: `place` says where.
fn refuse_sets(value: &Bound<'_, PyAny>, place: &mut String, depth: usize) -> PyResult<()> {
    if value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        let why = "the order of a set is another one in each process: give a sorted list";
        return Err(refused(value, &at, why));
    }
    if depth == DEEPEST {
        return Err(refused(value, "", "it is nested too deep: give a field of it"));
    }
    let mut inner = |item: &Bound<'_, PyAny>, index: &dyn Display| -> PyResult<()> {
        let len = place.len();
        // A `String` takes everything.
        let _ = write!(place, "[{index}]");
        refuse_sets(item, place, depth + 1)?;
        place.truncate(len);
        Ok(())
    };
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        for (index, item) in value.try_iter()?.enumerate() {
            inner(&item?, &index)?;
        }
    } else if let Ok(dict) = value.cast::<PyDict>() {
        for (key, item) in dict {
            inner(&key, &"a key")?;
            inner(&item, &key.repr()?)?;
        }
    }
    Ok(())
}

/// How deep the values in a part of a key may be nested.
const DEEPEST: usize = 50;

fn refused(value: &Bound<'_, PyAny>, at: &str, why: &str) -> PyErr {
    let name = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    misused(value.py(), format!("a value of type {name}{at} cannot be part of a key: {why}"))
}

/// Whether a text is, or contains, what `object.__repr__` writes.
fn has_address(text: &str) -> bool {
    text.contains('<')
        && text.match_indices(" at 0x").any(|(at, found)| {
            text[at + found.len()..].chars().next().is_some_and(|digit| digit.is_ascii_hexdigit())
        })
}
