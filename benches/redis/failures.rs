//! Connections that are cut, and processes that are killed.

use super::{
    commands::calls,
    support::{median, title},
    waiters::{Holder, Waiters, name, queue, queued},
};
use locker_harness::RedisServer;
use redis::Connection;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;

/// The calls and bytes that the server received.
#[derive(Clone, Copy)]
struct Received {
    eval: u64,
    evalsha: u64,
    script_load: u64,
    bytes: u64,
}

impl Received {
    fn so_far(server: &RedisServer) -> Self {
        let count = |wanted: &str| calls(server, |name| name == wanted);
        let statistics: String = server.ask("INFO", &["stats"]);
        let bytes = statistics.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
        Self {
            eval: count("eval"),
            evalsha: count("evalsha"),
            script_load: count("script|load"),
            bytes: bytes.and_then(|bytes| bytes.trim().parse().ok()).expect("a number of bytes"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            eval: self.eval - before.eval,
            evalsha: self.evalsha - before.evalsha,
            script_load: self.script_load - before.script_load,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// All connections are cut at once. If the queue is lost with them, as in a fail-over, it is complete when all waiters
/// have queued again. If it is kept, only the calls show that they are back.
pub(crate) fn reconnect(server: &RedisServer) {
    const WAITERS: usize = 3_000;
    title(&format!("{WAITERS} waiters on one name after CLIENT KILL of all connections"));
    for lost in [false, true] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let holder = Holder::of(server, 1);
            let process = Waiters::start(server, WAITERS, 1);
            std::thread::sleep(Duration::from_millis(300));
            rounds.push(cut(server, WAITERS, lost));
            drop(process);
            holder.end(server);
        }
        let of_rounds = |value: &dyn Fn(&(Received, f64)) -> f64| median(rounds.iter().map(value).collect());
        println!(
            "  queue {}: EVAL {}, EVALSHA {}, SCRIPT LOAD {}, {:.0} kB in; {} after {:.0} ms",
            if lost { "lost" } else { "kept" },
            of_rounds(&|(received, _)| received.eval as f64),
            of_rounds(&|(received, _)| received.evalsha as f64),
            of_rounds(&|(received, _)| received.script_load as f64),
            of_rounds(&|(received, _)| received.bytes as f64 / 1e3),
            if lost { "ZCARD complete" } else { "a call per waiter, or 3 s," },
            of_rounds(&|(_, milliseconds)| *milliseconds),
        );
    }
}

/// Cuts all connections, and returns the calls and bytes until every waiter is back, or for 3 s.
fn cut(server: &RedisServer, waiters: usize, lost: bool) -> (Received, f64) {
    let before = Received::so_far(server);
    let mut pipeline = redis::pipe();
    for kind in ["pubsub", "normal"] {
        pipeline.cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).ignore();
    }
    if lost {
        let queue = queue(0);
        pipeline.del(&queue).del(queue.replace("}:q", "}:w"));
    }
    let mut connection: Connection = server.connection();
    pipeline.exec(&mut connection).expect("cut connections");
    let started = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let received = Received::so_far(server).since(before);
        let complete = if lost {
            queued(server, 1) >= waiters
        } else {
            received.eval + received.evalsha >= waiters as u64
        };
        if complete || started.elapsed() > Duration::from_secs(3) {
            return (received, started.elapsed().as_secs_f64() * 1e3);
        }
    }
}

/// A killed process has left its waiters in the queue. A living waiter is behind them.
pub(crate) fn purge(server: &RedisServer) {
    const DEAD: usize = 50_000;
    let (mut longest, mut handed_off) = (Vec::new(), Vec::new());
    title(&format!("release with {DEAD} waiters of a killed process before a living one"));
    for _ in 0..ROUNDS {
        let mut holder = Holder::of(server, 1);
        let process = Waiters::start(server, DEAD, 1);
        let request = holder.locker.lock(&name(0)).timeout(Duration::from_secs(100));
        let dead = queued(server, 1);
        let live = holder.runtime.spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            (Instant::now(), guard)
        });
        while queued(server, 1) <= dead {
            std::thread::sleep(Duration::from_millis(5));
        }
        process.kill(server);
        let _: String =
            server.ask("CONFIG", &["SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000"]);
        let _: String = server.ask("SLOWLOG", &["RESET"]);
        let started = Instant::now();
        let released = holder.runtime.block_on(holder.guards.remove(0).release());
        let (entered, guard) = holder.runtime.block_on(live).expect("a task");
        if let Err(error) = released {
            println!("  the release failed: {error}");
        }
        handed_off.push((entered - started).as_secs_f64() * 1e3);
        longest.push(longest_script(server) as f64 / 1e3);
        drop(guard);
        holder.end(server);
    }
    println!(
        "  longest script call {:.1} ms, from the release to the hand-off {:.1} ms",
        median(longest),
        median(handed_off)
    );
}

/// Returns the longest script call in the slow log, in microseconds.
fn longest_script(server: &RedisServer) -> u64 {
    let entries: Vec<Vec<redis::Value>> = server.ask("SLOWLOG", &["GET", "-1"]);
    let script = |entry: &Vec<redis::Value>| {
        let words: Vec<String> = redis::from_redis_value(entry.get(3)?.clone()).ok()?;
        let is_script = words.first().is_some_and(|word| word.to_uppercase().starts_with("EVAL"));
        is_script.then(|| redis::from_redis_value::<u64>(entry.get(2)?.clone()).ok())?
    };
    entries.iter().filter_map(script).max().unwrap_or(0)
}
