//! A fleet of simulated processes: one thread polls the tasks of all, in an order that a seed decides, in virtual time.

use fastrand::Rng;
use locker_core::process::world::{Inhabitant, Task, World};
use std::{
    collections::BTreeMap,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// The time at which a simulation begins, in microseconds since the Unix epoch.
const BEGIN: u64 = 1_700_000_000_000_000;

/// The longest time that one poll of a task takes, in microseconds.
const LONGEST_POLL: u64 = 40;

/// The number of a process of the fleet.
pub(crate) type Number = usize;

/// The clock of a process beside the true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// How far it is ahead when the simulation begins, in microseconds.
    pub(crate) ahead: i64,
    /// How much faster it goes, in millionths.
    pub(crate) faster: i64,
}

impl Clock {
    /// Returns what it shows at a true time.
    fn shows(self, time: u64) -> u64 {
        let gained = i128::from(time) * i128::from(self.faster) / 1_000_000;
        let shown = i128::from(BEGIN) + i128::from(time) + gained + i128::from(self.ahead);
        u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
    }

    /// Returns the first true time at which it shows `shown` or more.
    fn time_of(self, shown: u64) -> u64 {
        let passed = i128::from(shown) - i128::from(BEGIN) - i128::from(self.ahead);
        let mut time =
            (passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.faster)).saturating_sub(2).max(0);
        while u64::try_from(time).is_ok_and(|time| self.shows(time) < shown) {
            time += 1;
        }
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

/// The fleet. Cheap to clone; clones are the same one.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<Shared>);

struct Shared {
    /// The true time since the begin, in microseconds.
    now: AtomicU64,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    processes: Vec<Process>,
    tasks: Vec<Option<(Number, Task)>>,
    /// The tasks that were woken.
    ready: Vec<usize>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    /// A digest of all that has happened.
    trace: DefaultHasher,
    polls: u64,
}

struct Process {
    inhabitant: Option<Inhabitant>,
    stopped: bool,
    killed: bool,
}

impl Fleet {
    pub(crate) fn new(seed: u64) -> Self {
        let state = State {
            rng: Rng::with_seed(seed),
            processes: Vec::new(),
            tasks: Vec::new(),
            ready: Vec::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            trace: DefaultHasher::new(),
            polls: 0,
        };
        Self(Arc::new(Shared { now: AtomicU64::new(0), state: Mutex::new(state) }))
    }

    /// Returns the true time since the begin, in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }

    /// Adds a process with this clock.
    pub(crate) fn add(&self, clock: Clock) -> (Number, Inhabitant) {
        let number = self.state().processes.len();
        let world = OfProcess { fleet: Arc::downgrade(&self.0), number, clock };
        let inhabitant = Inhabitant::new(Arc::new(world));
        let process = Process { inhabitant: Some(inhabitant.clone()), stopped: false, killed: false };
        self.state().processes.push(process);
        (number, inhabitant)
    }

    /// Ends a process: its tasks are neither polled nor dropped again.
    pub(crate) fn kill(&self, number: Number) {
        let mut state = self.state();
        state.processes[number].killed = true;
        let of_process = |task: &(Number, Task)| task.0 == number;
        let tasks: Vec<_> =
            state.tasks.iter_mut().filter_map(|task| task.take_if(|task| of_process(task))).collect();
        drop(state);
        std::mem::forget(tasks);
    }

    /// Ends the simulation: no task is polled or dropped again.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        let left = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers));
        drop(state);
        std::mem::forget(left);
    }

    /// Keeps a process from running, or lets it go on.
    pub(crate) fn set_stopped(&self, number: Number, stopped: bool) {
        self.state().processes[number].stopped = stopped;
    }

    pub(crate) fn is_killed(&self, number: Number) -> bool {
        self.state().processes[number].killed
    }

    /// Adds to the digest of all that has happened.
    pub(crate) fn trace(&self, event: &impl Hash) {
        event.hash(&mut self.state().trace);
    }

    /// Returns the digest of all that has happened, and the number of polls.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let state = self.state();
        (state.trace.finish(), state.polls)
    }

    /// Runs all processes until a true time, or until `is_over`.
    pub(crate) fn run(&self, until: u64, is_over: impl Fn() -> bool) {
        while self.now() < until && !is_over() {
            match self.pick() {
                Some(task) => self.poll(task),
                None if self.next_timer().is_some_and(|due| due <= until) => self.fire(),
                None => self.0.now.store(until, Ordering::Relaxed),
            }
        }
    }

    /// Takes a task that can run.
    fn pick(&self) -> Option<usize> {
        let mut state = self.state();
        let State { ready, tasks, processes, rng, .. } = &mut *state;
        ready.retain(|task| tasks[*task].is_some());
        let runs =
            |task: &usize| tasks[*task].as_ref().is_some_and(|(number, _)| !processes[*number].stopped);
        let able: Vec<usize> = (0..ready.len()).filter(|at| runs(&ready[*at])).collect();
        let at = able.get(rng.usize(..able.len().max(1))).copied()?;
        Some(ready.swap_remove(at))
    }

    fn poll(&self, task: usize) {
        let mut state = self.state();
        let Some((number, mut future)) = state.tasks[task].take() else { return };
        let Some(process) = state.processes[number].inhabitant.clone() else { return };
        let took = state.rng.u64(..=LONGEST_POLL);
        (task, took).hash(&mut state.trace);
        state.polls += 1;
        drop(state);
        self.0.now.fetch_add(took, Ordering::Relaxed);
        let waker = Waker::from(Arc::new(Woken { fleet: Arc::downgrade(&self.0), task }));
        let entered = process.enter();
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(()) => drop(future),
            Poll::Pending => self.state().tasks[task] = Some((number, future)),
        }
        drop(entered);
    }

    fn next_timer(&self) -> Option<u64> {
        self.state().timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Moves the time on to the next timer, and wakes what waits for it.
    fn fire(&self) {
        let mut state = self.state();
        let Some((due, _)) = state.timers.first_key_value().map(|(key, _)| *key) else { return };
        let now = self.now().max(due);
        self.0.now.store(now, Ordering::Relaxed);
        let later = state.timers.split_off(&(now + 1, 0));
        let wakers = std::mem::replace(&mut state.timers, later);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process of the fleet gets in place of an operating system.
struct OfProcess {
    fleet: Weak<Shared>,
    number: Number,
    clock: Clock,
}

impl OfProcess {
    fn time(&self) -> u64 {
        self.fleet.upgrade().map_or(0, |fleet| fleet.now.load(Ordering::Relaxed))
    }
}

impl World for OfProcess {
    fn now(&self) -> u64 {
        self.clock.shows(self.time())
    }

    fn shared_now(&self) -> u64 {
        BEGIN + self.time()
    }

    fn spawn(&self, task: Task) {
        let Some(fleet) = self.fleet.upgrade() else { return };
        let mut state = lock(&fleet);
        if state.processes[self.number].killed {
            drop(state);
            return std::mem::forget(task);
        }
        let id = state.tasks.len();
        state.tasks.push(Some((self.number, task)));
        state.ready.push(id);
    }

    fn sleep(&self, until: u64) -> Task {
        Box::pin(Timer { fleet: Weak::clone(&self.fleet), due: self.clock.time_of(until) })
    }

    fn fill(&self, bytes: &mut [u8]) -> bool {
        let Some(fleet) = self.fleet.upgrade() else { return false };
        lock(&fleet).rng.fill(bytes);
        true
    }
}

/// Ends at a true time.
struct Timer {
    fleet: Weak<Shared>,
    due: u64,
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(fleet) = self.fleet.upgrade() else { return Poll::Pending };
        if fleet.now.load(Ordering::Relaxed) >= self.due {
            return Poll::Ready(());
        }
        let mut state = lock(&fleet);
        let number = state.next_timer;
        state.next_timer += 1;
        state.timers.insert((self.due, number), context.waker().clone());
        Poll::Pending
    }
}

/// Marks a task as woken.
struct Woken {
    fleet: Weak<Shared>,
    task: usize,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let Some(fleet) = self.fleet.upgrade() else { return };
        let mut state = lock(&fleet);
        if !state.ready.contains(&self.task) {
            state.ready.push(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_show_times_that_they_find_again() {
        for clock in [
            Clock { ahead: 0, faster: 0 },
            Clock { ahead: 7_000_000, faster: 500 },
            Clock { ahead: -3_600_000_000, faster: -500 },
        ] {
            for time in [0, 1, 999, 1_000_003, 77_000_000_001] {
                let shown = clock.shows(time);
                let found = clock.time_of(shown);
                assert!(found <= time && clock.shows(found) >= shown, "{clock:?} at {time}: {found}");
                assert!(found == 0 || clock.shows(found - 1) < shown);
            }
        }
    }
}
