//! Another process with many waiters, which can be killed as in a crash.

use super::tasks::runtime;
use locker::{Guard, Locker};
use locker_harness::RedisServer;
use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinSet};

/// The longest time until all waiters are queued.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of waiters that start within 100 ms.
const AT_ONCE: usize = 1_000;

/// A process whose waiters want held names. Dropping it kills the process (`kill -9`).
pub(crate) struct Waiters {
    process: Child,
}

impl Waiters {
    /// Starts `count` waiters, spread over `names` held names, and returns when all of them are queued.
    ///
    /// After two minutes it prints how many are, and returns.
    pub(crate) fn start(server: &RedisServer, count: usize, names: usize) -> Self {
        let started = Instant::now();
        let process = Command::new(std::env::current_exe().expect("this program"))
            .arg(format!("waiters={count};{names};{}", server.url()))
            .stdout(Stdio::null())
            .spawn()
            .expect("another process");
        let waiters = Self { process };
        while queued(server, names) < count {
            if started.elapsed() > PATIENCE {
                println!("  only {} of {count} are queued after {PATIENCE:?}:", queued(server, names));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        waiters
    }

    /// Kills the process, and returns when the server has closed its connections.
    pub(crate) fn kill(self, server: &RedisServer) {
        let clients = || server.ask::<String>("CLIENT", &["LIST"]).lines().count();
        let before = clients();
        drop(self);
        while clients() >= before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.process.kill().expect("a signal");
        self.process.wait().expect("its end");
    }
}

/// Returns the name with this number.
pub(crate) fn name(number: usize) -> String {
    format!("wanted:{number}")
}

/// Returns the number of waiters in the queues of the server.
pub(crate) fn queued(server: &RedisServer, names: usize) -> usize {
    let mut pipeline = redis::pipe();
    for number in 0..names {
        pipeline.zcard(queue(number));
    }
    let lengths: Vec<usize> = pipeline.query(&mut server.connection()).expect("lengths");
    lengths.iter().sum()
}

/// Returns the key of the queue of a name.
pub(crate) fn queue(number: usize) -> String {
    format!("{{lock:{}}}:q", name(number))
}

/// Holds names that waiters want.
pub(crate) struct Holder {
    pub(crate) runtime: Runtime,
    pub(crate) locker: Locker,
    pub(crate) guards: Vec<Guard>,
}

impl Holder {
    /// Holds the first `names` names. The leases are long: their renewals are few.
    pub(crate) fn of(server: &RedisServer, names: usize) -> Self {
        let runtime = runtime();
        let (locker, guards) = runtime.block_on(async {
            let builder = Locker::builder().url(server.url()).lease(Duration::from_secs(300));
            let locker = builder.build().await.expect("a connection");
            let mut guards = Vec::new();
            for number in 0..names {
                guards.push(locker.lock(&name(number)).acquire().await.expect("a free name"));
            }
            (locker, guards)
        });
        Self { runtime, locker, guards }
    }

    /// Empties the server, and waits for the background calls.
    pub(crate) fn end(self, server: &RedisServer) {
        let _: String = server.ask("FLUSHALL", &[]);
        drop(self.guards);
        self.runtime.block_on(self.locker.settled());
    }
}

/// Runs the other process.
pub(crate) fn wait(role: &str) {
    let mut words = role.splitn(3, ';');
    let mut word = || words.next().expect("three words");
    let (count, names, url) = (word(), word(), word());
    let number = |word: &str| word.parse::<usize>().expect("a number");
    let (count, names) = (number(count), number(names));
    runtime().block_on(async {
        let locker = Locker::connect(url).await.expect("a connection");
        let mut waiters = JoinSet::new();
        for waiter in 0..count {
            let request = locker.lock(&name(waiter % names)).timeout(Duration::from_secs(300));
            waiters.spawn(async move { request.acquire().await.map(drop) });
            if waiter % AT_ONCE == AT_ONCE - 1 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        if let Some(first) = waiters.join_next().await {
            eprintln!("a waiter has ended, perhaps more: {:?}", first.expect("a task"));
        }
        while waiters.join_next().await.is_some() {}
    });
}
