//! The faults: one after the other.

use crate::{
    Plan,
    history::History,
    record,
    targets::{Disk, Pauses, Target},
    trials::{OF_A_CROWD, OF_LOCKERS, Trials},
    worker::Work,
};
use fastrand::Rng;
use locker_harness::{RedisServer, Signal, SlowDisk};
use rustix::process::{Pid, kill_process};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// The faults that every store has whose workers are processes.
const OF_WORKERS: [&str; 3] = ["kill-worker", "stop-worker", OF_A_CROWD];
const SLOW_DISK: &str = "slow-disk";

pub(crate) struct Chaos {
    rng: Rng,
    faults: Vec<&'static str>,
    target: Box<dyn Target>,
    workers: Vec<Worker>,
    start: Box<dyn Fn() -> Worker>,
    trials: Trials,
    counts: BTreeMap<&'static str, usize>,
}

/// A process, or threads of this one, with the thread that reads its reports or runs it.
struct Worker {
    child: Option<Child>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(work: &Work, history: History) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(work.arguments())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let (output, worker) = (child.stdout.take().expect("its output"), child.id());
        let listener = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                history.read(worker, &line);
            }
        });
        Self { child: Some(child), thread: Some(listener) }
    }

    fn process(&self) -> Option<Pid> {
        self.child.as_ref().map(Pid::from_child)
    }

    fn signal(&self, signal: Signal) {
        // A worker that is gone needs no signal.
        let _ = self.process().map(|pid| kill_process(pid, signal));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Chaos {
    /// Starts the workers.
    ///
    /// # Panics
    /// If the plan names a fault that the store does not have.
    pub(crate) fn new(
        plan: &Plan,
        seed: u64,
        target: Box<dyn Target>,
        resource: &RedisServer,
        history: History,
    ) -> Self {
        let of_workers: &[_] = if target.has_processes() { &OF_WORKERS } else { &[] };
        let of_disks: &[_] = if matches!(target.disk(), Disk::None) { &[] } else { &[SLOW_DISK] };
        let known: Vec<_> = [of_workers, of_disks, &OF_LOCKERS, target.faults()].concat();
        let unknown = plan.faults.iter().find(|name| !known.contains(&name.as_str()));
        assert!(unknown.is_none(), "no fault {unknown:?} with this store: known are {known:?}");
        let wanted = |fault: &&str| plan.faults.is_empty() || plan.faults.iter().any(|name| name == fault);
        let faults = known.into_iter().filter(wanted).collect();
        let work = plan.work(target.url(), resource.url());
        let is_process = target.has_processes();
        let start = move || {
            if is_process {
                return Worker::start(&work, history.clone());
            }
            let (work, history) = (work.clone(), history.clone());
            let thread = thread::spawn(move || {
                let read = move |worker, line: &str| history.read(worker, line);
                record::into(Arc::new(read), || work.run());
            });
            Worker { child: None, thread: Some(thread) }
        };
        let workers = (0..plan.workers).map(|_| start()).collect();
        let rng = Rng::with_seed(seed);
        let trials = Trials::new(target.direct_url(), target.clock_is_late_by());
        Self { rng, faults, target, workers, start: Box::new(start), trials, counts: BTreeMap::new() }
    }

    /// Causes one fault, and waits a little after it.
    pub(crate) fn strike(&mut self) {
        let Some(fault) = self.rng.choice(self.faults.clone()) else {
            return Pauses(&mut self.rng).pause(500, 1_000);
        };
        *self.counts.entry(fault).or_default() += 1;
        let victim = self.rng.usize(..self.workers.len());
        let mut pauses = Pauses(&mut self.rng);
        match fault {
            "kill-worker" => self.workers[victim] = (self.start)(),
            "stop-worker" => {
                self.workers[victim].signal(Signal::STOP);
                pauses.pause(100, 2_500);
                self.workers[victim].signal(Signal::CONT);
            }
            SLOW_DISK => {
                let delay = Duration::from_millis(pauses.0.u64(100..1_500));
                let slow = SlowDisk::of(&self.writers(), delay);
                Pauses(&mut self.rng).pause(500, 2_500);
                drop(slow);
            }
            trial if trial == OF_A_CROWD || OF_LOCKERS.contains(&trial) => {
                self.trials.hold(trial, &mut self.rng);
            }
            fault => self.target.strike(fault, &mut pauses),
        }
        Pauses(&mut self.rng).pause(50, 700);
    }

    /// Returns the processes that write to the disk.
    fn writers(&self) -> Vec<Pid> {
        match self.target.disk() {
            Disk::OfServers(processes) => processes,
            _ => self.workers.iter().filter_map(Worker::process).collect(),
        }
    }

    /// Ends the workers, and returns the store, the counts of the faults, and the problems of the trials.
    pub(crate) fn end(self) -> (Box<dyn Target>, String, Vec<String>) {
        record::end();
        drop(self.workers);
        let counts = format!("faults: {:?}\n{}", self.counts, self.trials);
        (self.target, counts, self.trials.problems)
    }
}
