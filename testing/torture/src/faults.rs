//! The faults: one after the other.

use crate::{
    Plan,
    history::History,
    record::Record,
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
    /// Starts the worker of this number.
    start: Box<dyn Fn(u64) -> Worker>,
    history: History,
    trials: Trials,
    counts: BTreeMap<&'static str, usize>,
}

/// A process, or threads of this one, with the thread that reads its reports or runs it.
struct Worker {
    number: u64,
    child: Option<Child>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a process.
    fn start(work: &Work, history: History) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(work.arguments())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let output = child.stdout.take().expect("its output");
        let listener = thread::spawn(move || {
            let (mut output, mut line) = (BufReader::new(output), String::new());
            while output.read_line(&mut line).is_ok_and(|length| length > 0) {
                history.take(&line);
                line.clear();
            }
        });
        Self { number: work.worker, child: Some(child), thread: Some(listener) }
    }

    /// Starts threads of this process.
    fn inside(work: Work, history: History) -> Self {
        let (number, record) = (work.worker, Record::new(work.worker, Some(history)));
        let thread = thread::spawn(move || work.run(&record));
        Self { number, child: None, thread: Some(thread) }
    }

    fn process(&self) -> Option<Pid> {
        self.child.as_ref().map(Pid::from_child)
    }

    fn signal(&self, signal: Signal) {
        // A worker that is gone needs no signal.
        let _ = self.process().map(|pid| kill_process(pid, signal));
    }

    /// Ends the worker, and returns when all that it reported was taken.
    fn end(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
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
        let of_store = [target.faults(), target.faults_of_network()].concat();
        let known: Vec<_> = [of_workers, of_disks, &OF_LOCKERS, &of_store].concat();
        let unknown = plan.faults.iter().find(|name| !known.contains(&name.as_str()));
        assert!(unknown.is_none(), "no fault {unknown:?} with this store: known are {known:?}");
        let wanted = |fault: &&str| plan.faults.is_empty() || plan.faults.iter().any(|name| name == fault);
        let faults = known.into_iter().filter(wanted).collect();
        let work = plan.work(target.url(), resource.url());
        let (is_process, writing) = (target.has_processes(), history.clone());
        let start = move |worker| {
            let (work, history) = (Work { worker, ..work.clone() }, writing.clone());
            if is_process { Worker::start(&work, history) } else { Worker::inside(work, history) }
        };
        let workers = (1..=plan.workers as u64).map(&start).collect();
        let rng = Rng::with_seed(seed);
        let trials = Trials::new(target.direct_url(), target.clock_is_late_by());
        let (start, counts) = (Box::new(start), BTreeMap::new());
        Self { rng, faults, target, workers, start, history, trials, counts }
    }

    /// Causes one fault, and waits a little after it.
    pub(crate) fn strike(&mut self) {
        let Some(fault) = self.rng.choice(self.faults.clone()) else {
            return Pauses(&mut self.rng).pause(500, 1_000);
        };
        *self.counts.entry(fault).or_default() += 1;
        let victim = self.rng.usize(..self.workers.len());
        match fault {
            "kill-worker" => self.kill(victim),
            "stop-worker" => self.stop(victim),
            fault => {
                self.history.fault(fault, None);
                self.strike_store(fault);
                self.history.fault("mend", None);
            }
        }
        Pauses(&mut self.rng).pause(50, 700);
    }

    fn kill(&mut self, victim: usize) {
        let worker = &mut self.workers[victim];
        worker.end();
        // It has asked for nothing since.
        self.history.fault("kill", Some(worker.number));
        let newest = self.workers.iter().map(|worker| worker.number).max().unwrap_or(0);
        self.workers[victim] = (self.start)(newest + 1);
    }

    fn stop(&mut self, victim: usize) {
        let worker = &self.workers[victim];
        self.history.fault("stop", Some(worker.number));
        worker.signal(Signal::STOP);
        Pauses(&mut self.rng).pause(100, 2_500);
        worker.signal(Signal::CONT);
        self.history.fault("continue", Some(worker.number));
    }

    fn strike_store(&mut self, fault: &'static str) {
        let mut pauses = Pauses(&mut self.rng);
        match fault {
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
        self.history.end();
        drop(self.workers);
        let counts = format!("faults: {:?}\n{}", self.counts, self.trials);
        (self.target, counts, self.trials.problems)
    }
}
