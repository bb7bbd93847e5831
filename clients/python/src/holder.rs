//! One hold, as inspections and errors show it.

use locker_runtime::primitives::inspection;
use pyo3::prelude::*;
use std::time::Duration;

/// One hold.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Holder(locker_runtime::Holder);

impl From<locker_runtime::Holder> for Holder {
    fn from(holder: locker_runtime::Holder) -> Self {
        Self(holder)
    }
}

impl From<&inspection::Held> for Holder {
    fn from(held: &inspection::Held) -> Self {
        let mut holder = locker_runtime::Holder::default();
        (holder.fence, holder.permits, holder.note) = (held.fence, held.permits, held.note.clone());
        (holder.age, holder.time_left) = (held.age, held.time_left);
        Self(holder)
    }
}

/// The arguments of the constructor, which copies and pickles call.
type Arguments<'a> =
    (u64, u64, Option<f64>, Option<f64>, Option<&'a str>, Option<&'a str>, Option<&'a str>, Option<u32>);

#[pymethods]
impl Holder {
    #[new]
    #[pyo3(signature = (fence, permits=1, age=None, time_left=None, note=None, function=None, file=None, line=None))]
    #[expect(clippy::too_many_arguments, reason = "one for each field")]
    fn new(
        fence: u64,
        permits: u64,
        age: Option<f64>,
        time_left: Option<f64>,
        note: Option<String>,
        function: Option<String>,
        file: Option<String>,
        line: Option<u32>,
    ) -> Self {
        let time =
            |seconds: Option<f64>| seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let mut holder = locker_runtime::Holder::default();
        (holder.fence, holder.permits, holder.note) = (fence, permits, note);
        (holder.age, holder.time_left) = (time(age), time(time_left));
        (holder.function, holder.file, holder.line) = (function, file, line);
        Self(holder)
    }

    fn __getnewargs__(&self) -> Arguments<'_> {
        let (note, function) = (self.note(), self.function());
        (self.0.fence, self.0.permits, self.age(), self.time_left(), note, function, self.file(), self.0.line)
    }

    #[getter]
    fn fence(&self) -> u64 {
        self.0.fence
    }

    /// The number of permits.
    #[getter]
    fn permits(&self) -> u64 {
        self.0.permits
    }

    /// Seconds since the grant, if that is known.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.0.age.map(|age| age.as_secs_f64())
    }

    /// Seconds that it lasts without a renewal; `None` if without end.
    #[getter]
    fn time_left(&self) -> Option<f64> {
        self.0.time_left.map(|left| left.as_secs_f64())
    }

    /// What the holder's locker says about itself, by default host and process; `None` if it is not known.
    #[getter]
    fn note(&self) -> Option<&str> {
        self.0.note.as_deref()
    }

    /// The function that the key belongs to, in `error.blocked`; `None` if it is not known, and in inspections.
    #[getter]
    fn function(&self) -> Option<&str> {
        self.0.function.as_deref()
    }

    /// The file of the function.
    #[getter]
    fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The line of the function.
    #[getter]
    fn line(&self) -> Option<u32> {
        self.0.line
    }

    fn __repr__(&self) -> String {
        match &self.0.note {
            Some(note) => format!("<Holder fence={} note={note:?}>", self.0.fence),
            None => format!("<Holder fence={}>", self.0.fence),
        }
    }
}
