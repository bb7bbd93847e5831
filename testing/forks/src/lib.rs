//! The library as a module for Python, as far as the tests in `forks.py` use it.

use locker::{Key, Quota};
use pyo3::{create_exception, exceptions::PyException, prelude::*};
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Longer than a test.
const MINUTES: Duration = Duration::from_secs(600);

create_exception!(locker_forks, LockerError, PyException, "Kind and message of an error.");

fn raise(error: &locker::Error) -> PyErr {
    LockerError::new_err((error.kind().to_string(), error.to_string()))
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A locker. Its methods block the thread without the interpreter's lock.
#[pyclass(frozen)]
struct Locker(locker::Locker);

#[pymethods]
impl Locker {
    #[staticmethod]
    fn connect(py: Python<'_>, url: &str) -> PyResult<Self> {
        py.detach(|| locker::Locker::connect_blocking(url)).map(Self).map_err(|error| raise(&error))
    }

    #[staticmethod]
    fn memory() -> Self {
        Self(locker::Locker::memory())
    }

    #[staticmethod]
    fn of_process() -> Self {
        Self(locker::global().clone())
    }

    #[pyo3(signature = (name, lease = 10.0, timeout = 30.0))]
    fn lock(&self, py: Python<'_>, name: &str, lease: f64, timeout: f64) -> PyResult<Guard> {
        let request = self.0.lock(name).lease(Duration::from_secs_f64(lease)).max_hold(MINUTES);
        let request = request.timeout(Duration::from_secs_f64(timeout));
        py.detach(|| request.acquire_blocking()).map(Guard::new).map_err(|error| raise(&error))
    }

    fn try_lock(&self, py: Python<'_>, name: &str) -> PyResult<Option<Guard>> {
        let guard = py.detach(|| self.0.lock(name).try_acquire_blocking());
        guard.map(|guard| guard.map(Guard::new)).map_err(|error| raise(&error))
    }

    /// Waits for a lock in a future that nothing polls but `Waiting.poll`.
    #[pyo3(signature = (name, timeout = 600.0))]
    fn wait(&self, name: &str, timeout: f64) -> Waiting {
        let request = self.0.lock(name).timeout(Duration::from_secs_f64(timeout));
        let mut future: Acquiring = Box::pin(request.acquire());
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "the lock is held");
        Waiting(Some(future))
    }

    /// Elects a client for minutes, and observes the election.
    fn observe(&self, py: Python<'_>, name: &str) -> PyResult<Observer> {
        let term = self.0.keyed_lock_at(self.0.admin().key("leader", name));
        let observed = py.detach(|| {
            run(term.acquire("me", MINUTES, MINUTES))?;
            run(self.0.elect(name).observe())
        });
        observed.map(Observer).map_err(|error| raise(&error))
    }

    /// Makes a call of every other kind on names of `own`, and returns the kinds of the errors.
    fn other_calls(&self, py: Python<'_>, own: &str) -> Vec<String> {
        py.detach(|| self.try_other_calls(own))
            .into_iter()
            .map(|called| called.err().map_or("none".into(), |error| error.kind().to_string()))
            .collect()
    }

    fn settle(&self, py: Python<'_>) {
        py.detach(|| run(self.0.settled()));
    }
}

impl Locker {
    fn try_other_calls(&self, own: &str) -> Vec<locker::Result<()>> {
        let (locker, second) = (&self.0, Duration::from_secs(1));
        let (admin, key) = (locker.admin(), Key::new(&format!("lock:{own}")));
        let permits = locker.keyed_semaphore(own, 2);
        vec![
            locker.semaphore(own, 2).acquire_blocking().map(drop),
            locker.read_lock(own).acquire_blocking().map(drop),
            locker.rate_limiter(own, Quota::gcra(100, second)).acquire_blocking().map(drop),
            locker.rate_limiter(own, Quota::gcra(100, second)).try_acquire_blocking().map(drop),
            run(permits.clone().acquire("me", second, second)).map(drop),
            run(permits.renew("me", second)).map(drop),
            run(permits.release("me")).map(drop),
            run(locker.event(own).reset()),
            run(locker.event(own).send("sent")).map(drop),
            run(locker.event(own).wait(second)).map(drop),
            run(locker.counter(own).add(1)).map(drop),
            run(admin.ping()),
            run(admin.names()).map(drop),
            run(admin.inspect(&key)).map(drop),
            run(admin.evict(&key)).map(drop),
            run(admin.delete(&key)).map(drop),
        ]
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[pyclass]
struct Guard(Option<locker::Guard>);

impl Guard {
    fn new(guard: locker::Guard) -> Self {
        Self(Some(guard))
    }

    fn held(&self) -> &locker::Guard {
        self.0.as_ref().expect("not released yet")
    }
}

#[pymethods]
impl Guard {
    #[getter]
    fn fence(&self) -> u64 {
        self.held().fence()
    }

    fn is_held(&self) -> bool {
        self.held().is_held()
    }

    fn check(&self) -> PyResult<()> {
        self.held().check().map_err(|error| raise(&error))
    }

    fn is_lost(&self) -> bool {
        poll_once(self.held().lost()).is_ready()
    }

    fn release(&mut self, py: Python<'_>) -> PyResult<()> {
        let guard = self.0.take().expect("not released yet");
        py.detach(|| guard.release_blocking()).map_err(|error| raise(&error))
    }
}

#[pyclass(frozen)]
struct Observer(locker::Observer);

#[pymethods]
impl Observer {
    /// Returns the fence of the leader, if there is one.
    fn fence(&self) -> Option<u64> {
        self.0.leader().map(|leader| leader.fence)
    }

    fn has_changed(&self) -> bool {
        poll_once(self.0.changed()).is_ready()
    }
}

type Acquiring = Pin<Box<dyn Future<Output = locker::Result<locker::Guard>> + Send>>;

#[pyclass(unsendable)]
struct Waiting(Option<Acquiring>);

#[pymethods]
impl Waiting {
    /// Returns the guard, or `None` while the lock is not granted.
    fn poll(&mut self) -> PyResult<Option<Guard>> {
        let future = self.0.as_mut().expect("not granted yet");
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(None),
            Poll::Ready(acquired) => {
                self.0 = None;
                acquired.map(|guard| Some(Guard::new(guard))).map_err(|error| raise(&error))
            }
        }
    }
}

#[pyfunction]
fn forked() {
    locker::forked();
}

#[pyfunction]
fn set_global(locker: &Locker) -> bool {
    locker::set_global(locker.0.clone()).is_ok()
}

#[locker::lock_on_argument(expr = 10, args(card))]
fn withdrawn(card: u64, amount: u64) -> Result<u64, locker::Error> {
    Ok(card + amount)
}

/// Calls a function with an attribute.
#[pyfunction]
fn withdraw(py: Python<'_>, card: u64, amount: u64) -> PyResult<u64> {
    py.detach(|| withdrawn(card, amount)).map_err(|error| raise(&error))
}

#[pymodule]
fn locker_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LockerError", module.py().get_type::<LockerError>())?;
    module.add_class::<Locker>()?;
    module.add_class::<Guard>()?;
    module.add_class::<Waiting>()?;
    module.add_class::<Observer>()?;
    module.add_function(wrap_pyfunction!(forked, module)?)?;
    module.add_function(wrap_pyfunction!(set_global, module)?)?;
    module.add_function(wrap_pyfunction!(withdraw, module)?)
}
