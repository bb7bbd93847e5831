//! One operation that may wait.

use crate::{
    bridge::{Bridge, Waking},
    errors::{misused, raised},
};
use locker_runtime::private::bindings::{ProcessCall, block_on, sleep};
use pyo3::{PyClass, prelude::*, pyclass_init::PyClassInitializer, sync::PyOnceLock, types::PyString};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

/// What `Call.poll` returns while nothing is known yet.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Pending;

#[pymethods]
impl Pending {
    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __repr__(&self) -> &'static str {
        "PENDING"
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __reduce__(&self) -> &'static str {
        "PENDING"
    }
}

/// Returns the one `PENDING`.
pub(crate) fn pending(py: Python<'_>) -> PyResult<Py<PyAny>> {
    static PENDING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let pending = PENDING.get_or_try_init(py, || Py::new(py, Pending).map(Py::into_any))?;
    Ok(pending.clone_ref(py))
}

type Make = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The result of a call, before it is made a Python object.
pub(crate) enum Output {
    Nothing,
    Signed(i64),
    Unsigned(u64),
    Text(String),
    /// Makes an object. A grant that nobody takes is returned when this is dropped.
    Object(Make),
}

impl Output {
    /// Makes an object of a class.
    pub(crate) fn object<T>(value: T) -> Self
    where
        T: PyClass<BaseType = PyAny> + Into<PyClassInitializer<T>> + Send + 'static,
    {
        Self::Object(Box::new(|py| Ok(Py::new(py, value)?.into_any())))
    }

    /// Makes the result of one try.
    pub(crate) fn maybe<T>(result: Option<T>, output: impl FnOnce(T) -> Self) -> Self {
        result.map_or(Self::Nothing, output)
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Signed(number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
            Self::Unsigned(number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
            Self::Text(text) => Ok(PyString::new(py, &text).into_any().unbind()),
            Self::Object(make) => make(py),
        }
    }
}

type Answer = locker_runtime::Result<Output>;

/// One operation. Dropping it gives it up: a waiter leaves its queue, an unclaimed grant is returned.
#[pyclass(frozen, generic, module = "locker._native")]
pub(crate) struct Call(Mutex<State>);

/// Only touched while the GIL is held, so that no fork finds it locked.
struct State {
    /// `None` while a thread blocks on it, and once it is over.
    call: Option<ProcessCall<Output>>,
    waking: Option<Arc<Waking>>,
}

impl Call {
    pub(crate) fn new(call: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self(Mutex::new(State { call: Some(ProcessCall::new(call)), waking: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Call {
    /// Blocks this thread, without the GIL, until the result is known.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Some(call) = self.state().call.take() else { return Err(over(py)) };
        let is_on_main_thread = AtomicBool::new(false);
        let waiting = Interruptible { call, is_on_main_thread: &is_on_main_thread, step: None, polls: 0 };
        let answer = block_on(waiting, |rest| {
            is_on_main_thread.store(is_main_thread(py)?, Ordering::Relaxed);
            py.detach(|| rest.run())
        });
        finish(py, answer?)
    }

    /// Returns the result, raises the error, or returns `PENDING` and later notes `token` at the bridge.
    fn poll(&self, py: Python<'_>, bridge: &Bridge, token: u64) -> PyResult<Py<PyAny>> {
        let mut state = self.state();
        let State { call, waking } = &mut *state;
        let Some(polled) = call else { return Err(over(py)) };
        let waking = match waking {
            Some(waking) if bridge.is_of(waking, token) => waking,
            waking => waking.insert(bridge.waking(py, token)?),
        };
        match Pin::new(polled).poll(&mut Context::from_waker(&waking.waker())) {
            Poll::Pending => pending(py),
            Poll::Ready(answer) => {
                let done = call.take();
                drop(state);
                drop(done);
                finish(py, answer)
            }
        }
    }

    /// Gives the call up, if it is not over.
    fn close(&self) {
        let given_up = self.state().call.take();
        drop(given_up);
    }

    /// Whether the result was returned, an error was raised, or the call was given up.
    #[getter]
    fn is_done(&self) -> bool {
        self.state().call.is_none()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

fn finish(py: Python<'_>, answer: Answer) -> PyResult<Py<PyAny>> {
    match answer {
        Ok(output) => output.into_python(py),
        Err(error) => Err(raised(py, &error)),
    }
}

fn over(py: Python<'_>) -> PyErr {
    misused(py, "this call is over, or another thread waits for it: make another one")
}

/// Whether signals are handled on this thread.
///
/// # Errors
/// What a signal handler has raised meanwhile.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static THREADING: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let threading = THREADING.get_or_try_init(py, || py.import("threading").map(Bound::unbind))?.bind(py);
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}

/// How long signals wait.
const STEP: Duration = Duration::from_millis(50);

/// The first step: a timer this far away costs no system call, and most calls end before.
const FIRST_STEP: Duration = Duration::from_millis(110);

/// A call whose thread handles signals meanwhile, if it is the main thread.
struct Interruptible<'a> {
    call: ProcessCall<Output>,
    is_on_main_thread: &'a AtomicBool,
    step: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    polls: usize,
}

impl Future for Interruptible<'_> {
    /// An error if a handler has raised one.
    type Output = PyResult<Answer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call, is_on_main_thread, step, polls } = &mut *self;
        if let Poll::Ready(answer) = Pin::new(call).poll(context) {
            return Poll::Ready(Ok(answer));
        }
        *polls += 1;
        // The first poll is made with the GIL.
        if *polls == 1 || !is_on_main_thread.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let step = step.get_or_insert_with(|| Box::pin(sleep(FIRST_STEP)));
        while step.as_mut().poll(context).is_ready() {
            if let Err(raised) = handle_signals() {
                return Poll::Ready(Err(raised));
            }
            *step = Box::pin(sleep(STEP));
        }
        Poll::Pending
    }
}

#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over the lifetime")]
fn handle_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}
