//! Elections, and those that observe them.

use crate::{
    call::{Call, Output},
    errors::raised,
    guard::granted,
    handles::Named,
    key::Function,
    options::{self, ElectionOptions, Holds, timeout},
};
use futures_util::{
    FutureExt, TryFutureExt,
    future::{Either, select},
};
use locker_runtime::{
    Error, ErrorKind,
    private::bindings::{candidate_holding, candidate_of, check_candidate, sleep, term, without_place},
};
use pyo3::prelude::*;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// An election of a leader.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Election {
    pub(crate) of: Named,
    pub(crate) options: ElectionOptions,
    pub(crate) defaults: Holds,
}

impl Election {
    fn of(&self, py: Python<'_>) -> PyResult<locker_runtime::Election> {
        let (locker, name) = self.of.open(py)?;
        Ok(self.options.election(without_place(locker.elect(name)), self.defaults))
    }
}

#[pymethods]
impl Election {
    #[getter]
    fn key(&self) -> String {
        self.of.key("leader")
    }

    /// Waits until this candidate is elected, and returns the guard of its term.
    #[pyo3(signature = (*, function=None, inside=None))]
    fn term(
        &self,
        py: Python<'_>,
        function: Option<&Function>,
        inside: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let mut election = self.of(py)?;
        if let Some(function) = function {
            election = candidate_of(election, function.source);
        }
        if let Some(inside) = inside {
            election = candidate_holding(election, &options::around(inside)?);
        }
        check_candidate(&election).map_err(|error| raised(py, &error))?;
        Ok(Call::new(async move { term(&election).await.map(granted) }))
    }

    /// Looks at the election, and returns what goes on looking.
    fn observe(&self, py: Python<'_>) -> PyResult<Call> {
        let observed = self.of(py)?.observe();
        Ok(Call::new(observed.map_ok(|observer| Output::object(Observer(Arc::new(observer))))))
    }
}

/// A view of an election from outside, which looks until it is garbage-collected.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Observer(Arc<locker_runtime::Observer>);

#[pymethods]
impl Observer {
    /// The leader at the latest look; `None` if there was none.
    #[getter]
    fn leader(&self) -> Option<Leader> {
        self.0.leader().map(Leader)
    }

    /// Waits until the leader is another one than at the last look of the caller.
    #[pyo3(signature = (timeout=None))]
    fn changed(&self, #[pyo3(from_py_with = timeout)] timeout: Option<Duration>) -> Call {
        let observer = Arc::clone(&self.0);
        Call::new(async move {
            let changed = observer.changed().boxed();
            match timeout.filter(|timeout| *timeout != Duration::MAX) {
                None => changed.await,
                Some(timeout) => {
                    if let Either::Right(_) = select(changed, sleep(timeout)).await {
                        return Err(Error::new(ErrorKind::TimedOut, "the leader has not changed"));
                    }
                }
            }
            Ok(Output::Nothing)
        })
    }
}

/// A leader as others see it.
#[pyclass(frozen, eq, module = "locker._native")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leader(locker_runtime::Leader);

#[pymethods]
impl Leader {
    /// What the leader says about itself; `None` if it is not known yet.
    #[getter]
    fn note(&self) -> Option<&str> {
        self.0.note.as_deref()
    }

    #[getter]
    fn fence(&self) -> u64 {
        self.0.fence
    }

    /// When its term began, by the clock of the store; `None` on etcd and ZooKeeper.
    #[getter]
    fn since(&self) -> Option<SystemTime> {
        self.0.since
    }

    fn __repr__(&self) -> String {
        match &self.0.note {
            Some(note) => format!("<Leader fence={} note={note:?}>", self.0.fence),
            None => format!("<Leader fence={}>", self.0.fence),
        }
    }
}
