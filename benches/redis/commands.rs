//! The number of commands that clients send.

use super::{
    rivals::{Rival, spread},
    support::title,
    tasks::runtime,
    waiters::{Holder, Waiters},
};
use locker_harness::RedisServer;
use std::time::Duration;

/// Commands that scripts cannot call (or never do, such as `PING`), so that a client has sent each counted call.
///
/// The server counts other commands, such as `GET`, also if a script calls them. The locker and this measurement send
/// the commands of this list for nothing else.
const SENT: [&str; 14] = [
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "script",
    "multi",
    "exec",
    "ping",
    "hello",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
];

/// Returns how often the server has run the wanted commands. Failed calls count.
pub(crate) fn calls(server: &RedisServer, wanted: impl Fn(&str) -> bool) -> u64 {
    let statistics: String = server.ask("INFO", &["commandstats"]);
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        wanted(name).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    };
    statistics.lines().filter_map(count).sum()
}

/// Returns the number of commands that clients have sent.
pub(crate) fn sent(server: &RedisServer) -> u64 {
    calls(server, |name| SENT.contains(&name.split('|').next().unwrap_or_default()))
}

pub(crate) fn per_grant(server: &RedisServer) {
    const GRANTS: u32 = 6_400;
    let runtime = runtime();
    let locker = Rival::locker(&runtime, server);
    title("commands per grant");
    for tasks in [1, 16, 64] {
        let before = sent(server);
        spread(&runtime, &locker, tasks, GRANTS, |_| "one name".to_owned());
        let commands = (sent(server) - before) as f64 / f64::from(GRANTS);
        println!("  {tasks:>2} tasks on one name {commands:>26.3}");
    }
}

/// Waiters of one process, with the holder in another one.
pub(crate) fn idle(server: &RedisServer) {
    title("commands per second while nothing happens");
    for (waiters, names) in [(1_000, 1), (1_000, 1_000), (100_000, 1)] {
        let holder = Holder::of(server, names);
        let without = rate(server, Duration::from_secs(10));
        let process = Waiters::start(server, waiters, names);
        let with = rate(server, Duration::from_secs(20));
        println!(
            "  {waiters:>7} waiters on {names:>5} names {with:>8.0}   ({without:.0} without the waiters: renewals)"
        );
        drop(process);
        holder.end(server);
    }
}

fn rate(server: &RedisServer, watched: Duration) -> f64 {
    let before = sent(server);
    std::thread::sleep(watched);
    (sent(server) - before) as f64 / watched.as_secs_f64()
}
