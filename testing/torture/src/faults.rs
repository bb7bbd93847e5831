//! What goes wrong, one thing after the other and sometimes together.

use crate::{Plan, history::History};
use fastrand::Rng;
use locker_harness::{Fault, Proxy, RedisServer, Signal};
use rustix::process::{Pid, kill_process};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

const FAULTS: [&str; 10] = [
    "kill-worker",
    "stop-worker",
    "kill-redis",
    "stop-redis",
    "reset",
    "drop-replies",
    "execute-and-reset",
    "half-close",
    "delay",
    "forget-scripts",
];

pub(crate) struct Chaos {
    rng: Rng,
    faults: Vec<&'static str>,
    server: RedisServer,
    proxy: Proxy,
    workers: Vec<Worker>,
    start: Box<dyn Fn() -> Worker>,
    counts: BTreeMap<&'static str, usize>,
}

struct Worker {
    child: Child,
    listener: Option<JoinHandle<()>>,
}

impl Worker {
    fn signal(&self, signal: Signal) {
        // One that has gone needs no signal.
        let _ =
            i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

impl Chaos {
    pub(crate) fn new(
        plan: &Plan,
        seed: u64,
        server: RedisServer,
        proxy: Proxy,
        resource: &RedisServer,
        history: History,
    ) -> Self {
        let (url, resource) = (proxy.url(), resource.url());
        let (names, callers) = (plan.names.to_string(), plan.callers.to_string());
        let kinds: Vec<String> = plan.kinds.iter().map(|kind| kind.text()).collect();
        let kinds = kinds.join(",");
        let start = move || {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .args(["worker", "--url", &url, "--resource", &resource])
                .args(["--kinds", &kinds, "--names", &names, "--callers", &callers])
                .stdout(Stdio::piped())
                .spawn()
                .expect("a worker");
            let (output, worker, history) =
                (child.stdout.take().expect("its output"), child.id(), history.clone());
            let listener = thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    history.read(worker, &line);
                }
            });
            Worker { child, listener: Some(listener) }
        };
        let wanted = |fault: &&str| plan.faults.is_empty() || plan.faults.iter().any(|name| name == fault);
        let workers = (0..plan.workers).map(|_| start()).collect();
        Self {
            rng: Rng::with_seed(seed),
            faults: FAULTS.into_iter().filter(wanted).collect(),
            server,
            proxy,
            workers,
            start: Box::new(start),
            counts: BTreeMap::new(),
        }
    }

    /// One fault, and some time to live with it.
    pub(crate) fn strike(&mut self) {
        let Some(fault) = self.rng.choice(self.faults.clone()) else { return self.pause(500, 1_000) };
        *self.counts.entry(fault).or_default() += 1;
        let victim = self.rng.usize(..self.workers.len());
        match fault {
            "kill-worker" => self.workers[victim] = (self.start)(),
            "stop-worker" => {
                self.workers[victim].signal(Signal::STOP);
                self.pause(100, 2_500);
                self.workers[victim].signal(Signal::CONT);
            }
            "kill-redis" => {
                self.server.kill();
                self.pause(0, 1_500);
                self.server.restart();
            }
            "stop-redis" => {
                self.server.signal(Signal::STOP);
                self.pause(50, 1_500);
                self.server.signal(Signal::CONT);
            }
            "reset" => self.network(Fault::Reset, 1, 300),
            "drop-replies" => self.network(Fault::DropReplies, 50, 1_500),
            "execute-and-reset" => self.network(Fault::ExecuteAndReset, 1, 100),
            "forget-scripts" => {
                for _ in 0..self.rng.u8(1..20) {
                    let _: String = self.server.ask("SCRIPT", &["FLUSH"]);
                    self.pause(0, 20);
                }
            }
            "half-close" => self.network(Fault::HalfClose, 1, 300),
            _ => self.network(Fault::Delay(Duration::from_millis(120)), 100, 1_000),
        }
        self.pause(50, 700);
    }

    fn network(&mut self, fault: Fault, shortest: u64, longest: u64) {
        self.proxy.set(fault);
        self.pause(shortest, longest);
        self.proxy.set(Fault::None);
    }

    /// How long a fault lasts: no condition ends it.
    fn pause(&mut self, shortest: u64, longest: u64) {
        thread::sleep(Duration::from_millis(self.rng.u64(shortest..=longest)));
    }

    /// Mends everything, ends the workers, and says what was done.
    pub(crate) fn end(self) -> (RedisServer, String) {
        self.proxy.set(Fault::None);
        drop(self.workers);
        (self.server, format!("faults: {:?}", self.counts))
    }
}
