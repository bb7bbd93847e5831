//! Wakes an event loop through a file descriptor.

use crate::errors::misused;
use locker_runtime::private::bindings::OwnerProcess;
use pyo3::prelude::*;
use std::{
    mem::take,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

/// Wakes one event loop of one process, through a file descriptor that the loop watches.
#[pyclass(frozen, module = "locker._native")]
#[derive(Debug)]
pub(crate) struct Bridge(Arc<Shared>);

/// What the wakers of a bridge share.
#[derive(Debug)]
struct Shared {
    /// A forked child has a copy of the descriptor, which still wakes the loop of its parent.
    owner: OwnerProcess,
    noted: Mutex<Noted>,
    /// For callers that cannot watch the descriptor.
    changed: Condvar,
}

#[derive(Debug)]
struct Noted {
    tokens: Vec<u64>,
    /// `None` once closed.
    signal: Option<Signal>,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let noted = Mutex::new(Noted { tokens: Vec::new(), signal: Some(Signal::new()?) });
        Ok(Self(Arc::new(Shared { owner: OwnerProcess::this(), noted, changed: Condvar::new() })))
    }

    /// Returns the descriptor, which is readable while tokens are noted; -1 once closed.
    fn fileno(&self) -> i32 {
        if !self.0.owner.is_this() {
            return -1;
        }
        self.0.noted().signal.as_ref().map_or(-1, Signal::fileno)
    }

    /// Returns the tokens noted since the last call, and makes the descriptor unreadable.
    fn drain(&self) -> Vec<u64> {
        if self.0.owner.is_this() { self.0.noted().drain() } else { Vec::new() }
    }

    /// Blocks this thread, without the GIL, until a token is noted or the bridge is closed; then drains.
    fn wait(&self, py: Python<'_>) -> Vec<u64> {
        if !self.0.owner.is_this() {
            return Vec::new();
        }
        py.detach(|| {
            let is_idle = |noted: &mut Noted| noted.tokens.is_empty() && noted.signal.is_some();
            let noted = self.0.changed.wait_while(self.0.noted(), is_idle);
            noted.unwrap_or_else(PoisonError::into_inner).drain()
        })
    }

    /// Closes the descriptor. Later wake-ups do nothing.
    fn close(&self) {
        if self.0.owner.is_this() {
            let closed = take(&mut *self.0.noted());
            self.0.changed.notify_all();
            drop(closed);
        }
    }
}

impl Bridge {
    /// Returns the bridge for wakers.
    ///
    /// # Errors
    /// `Misused` if the parent of this process has made it.
    pub(crate) fn waking(&self, py: Python<'_>, token: u64) -> PyResult<Arc<Waking>> {
        if !self.0.owner.is_this() {
            return Err(misused(py, "this bridge was made before a fork: make another one in the child"));
        }
        Ok(Arc::new(Waking { bridge: Arc::clone(&self.0), token, is_noted: AtomicBool::new(false) }))
    }

    /// Whether `waking` notes this token here.
    pub(crate) fn is_of(&self, waking: &Waking, token: u64) -> bool {
        waking.token == token && Arc::ptr_eq(&waking.bridge, &self.0)
    }
}

impl Shared {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, token: u64) {
        if !self.owner.is_this() {
            return;
        }
        let mut noted = self.noted();
        if noted.signal.is_none() {
            return;
        }
        noted.tokens.push(token);
        if noted.tokens.len() == 1 {
            noted.signal.iter().for_each(Signal::raise);
            self.changed.notify_all();
        }
    }
}

impl Noted {
    fn drain(&mut self) -> Vec<u64> {
        if !self.tokens.is_empty() {
            self.signal.iter().for_each(Signal::clear);
        }
        take(&mut self.tokens)
    }
}

/// Closed, and nothing is noted.
impl Default for Noted {
    fn default() -> Self {
        Self { tokens: Vec::new(), signal: None }
    }
}

/// The waker of one call: notes its token at the bridge, once after each poll.
#[derive(Debug)]
pub(crate) struct Waking {
    bridge: Arc<Shared>,
    token: u64,
    is_noted: AtomicBool,
}

impl Waking {
    /// Returns the waker of the next poll.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        self.is_noted.store(false, Ordering::Release);
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_noted.swap(true, Ordering::AcqRel) {
            self.bridge.note(self.token);
        }
    }
}

#[cfg(target_os = "linux")]
mod signal {
    use rustix::{
        event::{EventfdFlags, eventfd},
        io::{read, write},
    };
    use std::{
        io,
        os::fd::{AsRawFd, OwnedFd},
    };

    /// A descriptor that is readable while it is raised.
    #[derive(Debug)]
    pub(super) struct Signal(OwnedFd);

    impl Signal {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn fileno(&self) -> i32 {
            self.0.as_raw_fd()
        }

        pub(super) fn raise(&self) {
            // It cannot fail: the sum of all that is written stays far below 2^64.
            let _ = write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(super) fn clear(&self) {
            // An error means that it was not raised.
            let _ = read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod signal {
    use std::{
        io::{self, Read, Write},
        os::{fd::AsRawFd, unix::net::UnixStream},
    };

    /// A descriptor that is readable while it is raised.
    #[derive(Debug)]
    pub(super) struct Signal {
        watched: UnixStream,
        written: UnixStream,
    }

    impl Signal {
        pub(super) fn new() -> io::Result<Self> {
            let (watched, written) = UnixStream::pair()?;
            watched.set_nonblocking(true)?;
            written.set_nonblocking(true)?;
            Ok(Self { watched, written })
        }

        pub(super) fn fileno(&self) -> i32 {
            self.watched.as_raw_fd()
        }

        pub(super) fn raise(&self) {
            // It holds one byte at most.
            let _ = (&self.written).write(&[1]);
        }

        pub(super) fn clear(&self) {
            // An error means that it was not raised.
            let _ = (&self.watched).read(&mut [0; 8]);
        }
    }
}

#[cfg(not(unix))]
mod signal {
    use std::io;

    /// No loop here watches descriptors: callers block in `Bridge.wait`.
    #[derive(Debug)]
    pub(super) struct Signal;

    #[expect(clippy::unused_self, reason = "other systems have a descriptor")]
    impl Signal {
        #[expect(clippy::unnecessary_wraps, reason = "other systems may refuse a descriptor")]
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn fileno(&self) -> i32 {
            -1
        }

        pub(super) fn raise(&self) {}

        pub(super) fn clear(&self) {}
    }
}

use signal::Signal;
