//! Trials: lockers and processes that are no workers do, each time at a name of its own, what others must not suffer
//! from. How soon those are served is bounded.

use crate::kinds::Kind;
use clap::Args;
use fastrand::Rng;
use locker_harness::{Lateness, eventually};
use locker_runtime::{ErrorKind, Locker, Result};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::{
    fmt,
    future::Future,
    process::{Child, Command},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// The trials on every store.
pub(crate) const OF_LOCKERS: [&str; 3] = ["renew-elsewhere", "visit-shortly", "renew-beside"];
/// The trial on every store whose workers are processes.
pub(crate) const OF_A_CROWD: &str = "stop-crowd";

/// The waiters of the process that is stopped.
const CROWD: u64 = 300;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// How long a grant is kept for a process that does not confirm it.
const GRANT_WINDOW: Duration = Duration::from_secs(2);
/// A waiter asks again at times of its own: so much later than the store could serve it.
const ASKS_AGAIN: Duration = Duration::from_millis(1_500);
/// The threads and processes that have to wake, one after the other, until a waiter is served.
const WAKES: u32 = 12;

/// A process with many waiters for one name.
#[derive(Clone, Debug, Args)]
pub(crate) struct Crowd {
    #[arg(long)]
    url: String,
    #[arg(long)]
    kind: Kind,
    #[arg(long)]
    name: String,
}

impl Crowd {
    /// Returns when each waiter has held or has given up. They are not judged: they stand in the way of others.
    pub(crate) fn run(&self) {
        let locker = connect(&self.url);
        wait(async {
            let mut waiters = JoinSet::new();
            for waiter in 0..CROWD {
                let share = if waiter.is_multiple_of(3) { self.kind.whole() } else { 1 };
                let request = self.kind.ask(&locker, &self.name, share).lease(MINUTE).timeout(MINUTE);
                waiters.spawn(async move {
                    if let Ok(guard) = request.acquire().await {
                        drop(guard.release().await);
                    }
                });
            }
            waiters.join_all().await;
        });
    }

    fn start(&self) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .args(["crowd", "--url", &self.url, "--kind", &self.kind.text(), "--name", &self.name])
            .spawn()
            .expect("a crowd")
    }
}

/// How a trial ended.
struct Served {
    /// The hold in the way was free at some time between these two.
    free: (Instant, Instant),
    /// How much later the next one may be served.
    within: Duration,
    at: Instant,
}

/// The trials, and what they have found.
pub(crate) struct Trials {
    url: String,
    /// How much later than at its end a hold is free: what the processes do not know about the clock of the store.
    clock: Duration,
    held: usize,
    judged: usize,
    pub(crate) problems: Vec<String>,
}

impl Trials {
    pub(crate) fn new(url: String, clock: Duration) -> Self {
        Self { url, clock, held: 0, judged: 0, problems: Vec::new() }
    }

    /// Holds a trial. One whose calls fail, because the store has not recovered yet, proves nothing.
    pub(crate) fn hold(&mut self, trial: &str, rng: &mut Rng) {
        self.held += 1;
        let (name, machine) = (format!("trial:{}", self.held), Lateness::measure());
        let locker = connect(&self.url);
        eventually("a store that has recovered", || {
            let guard = locker.lock(&format!("{name} begins")).acquire_blocking().ok()?;
            guard.release_blocking().ok()
        });
        let served = match trial {
            OF_A_CROWD => self.stopped_crowd(&locker, &name, rng),
            "renew-elsewhere" => self.renewed_elsewhere(&name),
            "visit-shortly" => self.short_visits(&locker, &name),
            _ => self.renewed_beside(&locker, &name, rng),
        };
        let Ok(Served { free, within, at }) = served else { return };
        self.judged += 1;
        if at < free.0 {
            self.problems.push(format!("{trial}: granted {:?} before the end of the hold", free.0 - at));
        }
        let (late, within) = (at.saturating_duration_since(free.1), within + self.clock);
        let machine = WAKES * machine.worst();
        if late > within + machine {
            self.problems.push(format!(
                "{trial}: granted {late:?} after the end of the hold, the bound is {within:?}, and {machine:?} for a \
                 slow machine"
            ));
        }
    }

    /// A process whose waiters are ahead of all others is stopped, and goes on or dies then.
    fn stopped_crowd(&self, locker: &Locker, name: &str, rng: &mut Rng) -> Result<Served> {
        let kind = [Kind::Lock, Kind::Leader, Kind::Semaphore, Kind::ReadWrite][rng.usize(..4)];
        let key = locker.admin().key(kind.in_store(), name);
        let ask = || kind.ask(locker, name, kind.whole()).lease(MINUTE).timeout(MINUTE);
        let waiters = |count: u64| {
            eventually("the waiters", || {
                let state = wait(locker.admin().inspect(&key)).ok()??;
                (state.waiting == count).then_some(())
            });
        };
        let held = ask().acquire_blocking()?;
        let mut crowd = Crowd { url: self.url.clone(), kind, name: name.into() }.start();
        let pid = Pid::from_child(&crowd);
        waiters(CROWD);
        let _ = kill_process(pid, Signal::STOP);
        let _ = waitpid(Some(pid), WaitOptions::UNTRACED);
        let served = thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = ask().acquire_blocking()?;
                let at = Instant::now();
                guard.release_blocking().map(|()| at)
            });
            waiters(CROWD + 1);
            let free = around(|| held.release_blocking());
            let at = next.join().expect("the next one");
            Ok(Served { free: free?, within: GRANT_WINDOW + ASKS_AGAIN, at: at? })
        });
        if rng.bool() {
            let _ = kill_process(pid, Signal::CONT);
        } else {
            drop(crowd.kill());
        }
        drop(crowd.wait());
        // A process that has died leaves its places.
        drop(wait(locker.admin().delete(&key)));
        served
    }

    /// A hold is renewed at a process that has never seen its name, for less time than it was granted for.
    fn renewed_elsewhere(&self, name: &str) -> Result<Served> {
        let [one, two, three] = [(); 3].map(|()| connect(&self.url).keyed_lock(name));
        let (lease, again) = (3 * SECOND, 2 * SECOND);
        let granted = around(|| wait(one.clone().acquire("first", lease, Duration::ZERO)))?;
        thread::scope(|scope| {
            let next =
                scope.spawn(|| wait(two.clone().acquire("next", MINUTE, MINUTE)).map(|_| Instant::now()));
            // How old the hold is when it is renewed.
            thread::sleep(2 * SECOND);
            let mut is_renewed = false;
            let renewed = around(|| wait(three.renew("first", again)).map(|renewed| is_renewed = renewed));
            let at = next.join().expect("the next one");
            drop(wait(two.release("next")));
            let (mut free, renewed) = ((granted.0 + lease, granted.1 + lease), renewed?);
            if is_renewed {
                free = (free.0.max(renewed.0 + again), free.1.max(renewed.1 + again));
            }
            Ok(Served { free, within: ASKS_AGAIN, at: at? })
        })
    }

    /// A holder has died, and one process after the other waits for a moment only.
    fn short_visits(&self, locker: &Locker, name: &str) -> Result<Served> {
        let (lease, moment, between) = (2 * SECOND, Duration::from_millis(50), Duration::from_millis(450));
        let free = around(|| wait(locker.keyed_lock(name).acquire("dead", lease, Duration::ZERO)))?;
        loop {
            match connect(&self.url).lock(name).timeout(moment).acquire_blocking() {
                Ok(guard) => {
                    let at = Instant::now();
                    drop(guard.release_blocking());
                    let free = (free.0 + lease, free.1 + lease);
                    return Ok(Served { free, within: ASKS_AGAIN + between, at });
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => return Err(error),
            }
            // The time between two visits.
            thread::sleep(between);
        }
    }

    /// A holder of a permit has died, and those of the other permits renew.
    fn renewed_beside(&self, locker: &Locker, name: &str, rng: &mut Rng) -> Result<Served> {
        let (lease, others) = (2 * SECOND, rng.u64(2..9));
        let ask = |locker: &Locker| locker.semaphore(name, others + 1).lease(SECOND).timeout(MINUTE);
        let others: Vec<_> = (0..others).map(|_| connect(&self.url)).collect();
        let held: Result<Vec<_>> = others.iter().map(|other| ask(other).acquire_blocking()).collect();
        let held = held?;
        let size = held.len() as u64 + 1;
        let free =
            around(|| wait(locker.keyed_semaphore(name, size).acquire("dead", lease, Duration::ZERO)))?;
        let next = ask(locker).acquire_blocking()?;
        let at = Instant::now();
        for guard in held.into_iter().chain([next]) {
            // One that was lost is judged by the workers' law.
            drop(guard.release_blocking());
        }
        Ok(Served { free: (free.0 + lease, free.1 + lease), within: ASKS_AGAIN, at })
    }
}

impl fmt::Display for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} trials are judged, the others met a store that was not whole",
            self.judged, self.held
        )
    }
}

/// Returns the times before and after a call.
fn around<T>(call: impl FnOnce() -> Result<T>) -> Result<(Instant, Instant)> {
    let before = Instant::now();
    call().map(|_| (before, Instant::now()))
}

fn wait<T>(call: impl Future<Output = T>) -> T {
    runtime().block_on(call)
}

/// Returns a runtime for calls to lockers, which have timers and connections of their own.
fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without drivers")
}

/// Returns a locker with connections of its own, as if in another process: lockers with the same options share them.
fn connect(url: &str) -> Locker {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let builder = Locker::builder().url(url).command_timeout(SECOND + Duration::from_micros(number));
    let opened =
        || builder.clone().build_blocking().inspect_err(|error| eprintln!("no connection yet: {error}"));
    eventually("a connection to the store", || opened().ok())
}
