//! The faults: one after the other.

use crate::{
    Plan,
    history::History,
    record,
    targets::{Pauses, Target},
    worker::Work,
};
use fastrand::Rng;
use locker_harness::{RedisServer, Signal};
use rustix::process::{Pid, kill_process};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// The faults that every store has whose workers are processes.
const OF_WORKERS: [&str; 2] = ["kill-worker", "stop-worker"];

pub(crate) struct Chaos {
    rng: Rng,
    faults: Vec<&'static str>,
    target: Box<dyn Target>,
    workers: Vec<Worker>,
    start: Box<dyn Fn() -> Worker>,
    counts: BTreeMap<&'static str, usize>,
}

/// A process, or threads of this one, with the thread that reads its reports or runs it.
struct Worker {
    child: Option<Child>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn process(work: &Work, history: History) -> Self {
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

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        // A worker that is gone needs no signal.
        let _ = pid.map(|pid| kill_process(pid, signal));
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
        let known: Vec<_> = if target.has_processes() {
            [&OF_WORKERS, target.faults()].concat()
        } else {
            target.faults().to_vec()
        };
        let unknown = plan.faults.iter().find(|name| !known.contains(&name.as_str()));
        assert!(unknown.is_none(), "no fault {unknown:?} with this store: known are {known:?}");
        let wanted = |fault: &&str| plan.faults.is_empty() || plan.faults.iter().any(|name| name == fault);
        let faults = known.into_iter().filter(wanted).collect();
        let work = plan.work(target.url(), resource.url());
        let is_process = target.has_processes();
        let start = move || {
            if is_process {
                return Worker::process(&work, history.clone());
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
        Self { rng, faults, target, workers, start: Box::new(start), counts: BTreeMap::new() }
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
            fault => self.target.strike(fault, &mut pauses),
        }
        pauses.pause(50, 700);
    }

    /// Ends the workers, and returns the store and the counts of the faults.
    pub(crate) fn end(self) -> (Box<dyn Target>, String) {
        record::end();
        drop(self.workers);
        (self.target, format!("faults: {:?}", self.counts))
    }
}
