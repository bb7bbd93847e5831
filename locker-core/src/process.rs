//! Processes that fork: which process made a value, and statics of which each process has its own.
//!
//! A forked child has a copy of its parent's memory, but only the thread that forked. Nothing of the parent may be used
//! there: nobody renews, nobody delivers a reply, and a thread that the child does not have may hold any mutex. So each
//! locker, store and guard knows the [`Process`] that made it, and each process finds its own value in a
//! [`PerProcess`]. A child never drops what its parent made.

#[cfg(feature = "_world")]
pub mod world;

use crate::once::Once;
use forkguard::Guard;
use once_cell::race::OnceBox;
use std::{
    fmt,
    future::Future,
    iter::successors,
    mem::{self, forget},
    pin::Pin,
    process,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

/// A process that has used this crate: this one, or one that it was forked from.
pub struct Process {
    /// Detects forks by the C library.
    guard: Guard,
    /// The number of other forks that had been reported.
    reported: usize,
    id: u32,
    /// Its number among the processes of worlds; 0: it is one of the operating system.
    #[cfg(feature = "_world")]
    number: u64,
    /// The next process, as forks have made it.
    child: OnceBox<Self>,
}

/// The first process that has used this crate. Set without waiting, because another thread may be setting it when this
/// thread forks.
static FIRST: OnceBox<Process> = OnceBox::new();

/// The number of forks that [`forked`] has reported, of those that the C library did not.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

impl Process {
    /// Returns the process that calls.
    #[must_use]
    pub fn this() -> &'static Self {
        #[cfg(feature = "_world")]
        if let Some(process) = world::process() {
            return process;
        }
        let mut place = &FIRST;
        loop {
            let process = place.get_or_init(|| Box::new(Self::new()));
            if process.is_this() {
                return process;
            }
            place = &process.child;
        }
    }

    /// Returns whether the process that calls was forked from this one. Those of worlds were not.
    fn is_forebear(&self) -> bool {
        #[cfg(feature = "_world")]
        if self.number > 0 || world::process().is_some() {
            return false;
        }
        !self.is_this()
    }

    fn new() -> Self {
        let (guard, reported) = (Guard::default(), REPORTED.load(Ordering::Relaxed));
        Self {
            guard,
            reported,
            id: process::id(),
            #[cfg(feature = "_world")]
            number: 0,
            child: OnceBox::new(),
        }
    }

    /// Returns whether this process is the one that calls. This costs two loads from memory.
    #[inline]
    pub fn is_this(&self) -> bool {
        #[cfg(feature = "_world")]
        match world::process() {
            Some(process) => return process.number == self.number,
            None if self.number > 0 => return false,
            None => {}
        }
        !self.guard.clone().detected_fork() && self.reported == REPORTED.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.id)
    }
}

/// Tells this crate that the calling process is a forked child. Call it in the child, before any other use.
///
/// A fork by the C library (`fork(2)`, so also `os.fork` and `multiprocessing` in Python, and `daemon(3)`) needs no
/// call: it is noticed. Only a child of a bare system call (`clone(2)`, `_Fork(3)`) must call this function. Everywhere
/// else a call does nothing, in the parent, too. So a hook for every child, such as `os.register_at_fork` in Python,
/// may always call it.
///
/// # In a forked child
///
/// - `global`, `Locker::connect`, `Locker::memory` and the attributes work: the child has a background thread,
///   connections and a memory store of its own. The child must call `set_global` again if its parent has called it;
///   until then calls on the global locker return `Misused`.
/// - Every call on a locker that was made before the fork returns `Misused` at once, whatever its store.
/// - The parent keeps what it holds and waits for. Guards, futures and lockers that the child has copied end nothing of
///   the parent when the child drops them, exits or is killed. In the child such a guard holds nothing: `check` and
///   `release` return `Misused`, and `lost` returns at once.
///
/// The child cannot hold the memory of its parent: locks on `memory://` exclude callers of one process only.
///
/// # Examples
///
/// ```
/// # use locker_runtime as locker;
/// locker::forked(); // harmless in a process that was not forked
/// ```
pub fn forked() {
    let known = Process::this();
    if known.id != process::id() {
        let (before, after) = (known.reported, known.reported + 1);
        // An error means that another thread has reported the same fork.
        let _ = REPORTED.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A static of which each process has its own. A forked child begins with an empty one, and keeps its parent's without
/// dropping it.
pub struct PerProcess<T>(OnceBox<ProcessCell<T>>);

struct ProcessCell<T> {
    process: &'static Process,
    value: Once<T>,
    next: PerProcess<T>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    /// Creates a cell that is empty in every process.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// Returns the cell of this process.
    #[inline]
    pub fn cell(&self) -> &Once<T> {
        match self.0.get() {
            Some(own) if own.process.is_this() => &own.value,
            _ => self.find(),
        }
    }

    #[cold]
    fn find(&self) -> &Once<T> {
        let this = Process::this();
        let empty = || Box::new(ProcessCell { process: this, value: Once::new(), next: Self::new() });
        let mut own = self.0.get_or_init(empty);
        while !own.process.is_this() {
            own = own.next.0.get_or_init(empty);
        }
        &own.value
    }

    /// Returns the values of the processes that this one was forked from.
    pub fn inherited(&self) -> impl Iterator<Item = &T> {
        let all = successors(self.0.get(), |own| own.next.0.get());
        all.filter(|own| own.process.is_forebear()).filter_map(|own| own.value.get())
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// A future that a forked child neither polls nor drops.
#[derive(Debug)]
pub struct OfProcess<F> {
    process: &'static Process,
    future: Option<F>,
}

impl<F> OfProcess<F> {
    /// Makes a future one of this process.
    pub fn new(future: F) -> Self {
        Self { process: Process::this(), future: Some(future) }
    }
}

/// Completes with `None` in a forked child.
impl<F: Future + Unpin> Future for OfProcess<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let is_this = self.process.is_this();
        match &mut self.future {
            Some(future) if is_this => Pin::new(future).poll(context).map(Some),
            _ => Poll::Ready(None),
        }
    }
}

impl<F> Drop for OfProcess<F> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            forget(mem::take(&mut self.future));
        }
    }
}
