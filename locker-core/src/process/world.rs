//! A world in place of the operating system: the clock, tasks, timers, random numbers and statics of the code that a
//! thread runs, for tests in which time is virtual.

use super::Process;
use forkguard::Guard;
use once_cell::race::OnceBox;
use std::{
    cell::{Cell, RefCell},
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A task or a timer of a world.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the code of this crate gets from a world.
pub trait World: Send + Sync + 'static {
    /// Returns the time in microseconds since the Unix epoch.
    fn now(&self) -> u64;

    /// Returns the time of the clock that all processes of the world share. Default: [`now`](Self::now).
    fn shared_now(&self) -> u64 {
        self.now()
    }

    /// Runs a task.
    fn spawn(&self, task: Task);

    /// Returns a future that ends at a time in microseconds since the Unix epoch.
    fn sleep(&self, until: u64) -> Task;

    /// Fills `bytes` with random numbers. Returns `false` if they are to come from the operating system, the default.
    fn fill(&self, _bytes: &mut [u8]) -> bool {
        false
    }
}

thread_local! {
    static PROCESS: Cell<Option<&'static Process>> = const { Cell::new(None) };
    /// The processes that were entered and not left, the latest last, each with its number among those of all threads.
    static INSIDE: RefCell<Vec<(u64, Inhabitant)>> = const { RefCell::new(Vec::new()) };
}

/// A process of a world: it finds no static of another one. Cheap to clone.
#[derive(Clone)]
pub struct Inhabitant {
    process: &'static Process,
    world: Arc<dyn World>,
}

impl Inhabitant {
    /// Makes a process of `world`. What its statics keep stays in memory for good.
    #[must_use]
    pub fn new(world: Arc<dyn World>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let process = Process {
            guard: Guard::default(),
            reported: 0,
            id: std::process::id(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            child: OnceBox::new(),
        };
        Self { process: Box::leak(Box::new(process)), world }
    }

    /// Makes this thread run code of the process until the returned value is dropped.
    #[must_use]
    pub fn enter(&self) -> Entered {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        INSIDE.with_borrow_mut(|inside| inside.push((number, self.clone())));
        PROCESS.set(Some(self.process));
        Entered { number, _of_this_thread: PhantomData }
    }

    /// Runs a task in this process.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _entered = self.enter();
        self.world.spawn(Box::pin(task));
    }

    /// Returns the process whose code this thread runs.
    #[must_use]
    pub fn here() -> Option<Self> {
        Some(Self { process: PROCESS.get()?, world: current()? })
    }
}

/// Two are equal if they are the same process.
impl PartialEq for Inhabitant {
    fn eq(&self, other: &Self) -> bool {
        self.process.number == other.process.number
    }
}

impl fmt::Debug for Inhabitant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inhabitant({})", self.process.number)
    }
}

/// Makes its thread run code of a process; dropping it restores what was before, also if another one was entered since
/// and is left later.
pub struct Entered {
    number: u64,
    _of_this_thread: PhantomData<*const ()>,
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = INSIDE.with_borrow_mut(|inside| {
            let at = inside.iter().rposition(|(number, _)| *number == self.number);
            let left = at.map(|at| inside.remove(at));
            PROCESS.set(inside.last().map(|(_, inhabitant)| inhabitant.process));
            left
        });
        // Not under the borrow: a world may contain whatever its maker has put into it.
        drop(left);
    }
}

/// Returns the world of this thread.
pub(crate) fn current() -> Option<Arc<dyn World>> {
    PROCESS.get()?;
    INSIDE.with_borrow(|inside| inside.last().map(|(_, inhabitant)| Arc::clone(&inhabitant.world)))
}

/// Returns the process whose code this thread runs, if it is one of a world.
pub(super) fn process() -> Option<&'static Process> {
    PROCESS.get()
}

/// Returns the time of the world of this thread.
pub(crate) fn now() -> Option<u64> {
    PROCESS.get()?;
    INSIDE.with_borrow(|inside| inside.last().map(|(_, inhabitant)| inhabitant.world.now()))
}

/// Fills `bytes` with random numbers of the world of this thread. Returns `false` if it has none.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    current().is_some_and(|world| world.fill(bytes))
}
