//! Helpers: lockers on a server, waiters, and the state of the server.

use locker::{ErrorKind, Grant, Guard, Locker, LockerBuilder};
use locker_harness::RedisServer;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::task::JoinHandle;

pub(crate) use locker_harness::{GENEROUS, in_time, until};

/// Long enough not to end early, short enough for the fall-back timers to fire.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Long enough for a waiter that is notified, too short for one that rechecks on its own.
pub(crate) const PROMPT: Duration = Duration::from_secs(8);

pub(crate) fn builder(url: &str) -> LockerBuilder {
    Locker::builder().url(url).lease(LEASE).timeout(GENEROUS).command_timeout(Duration::from_millis(300))
}

pub(crate) async fn connect(url: &str) -> Locker {
    connected(&builder(url)).await
}

/// A busy machine may need longer than one attempt has.
async fn connected(builder: &LockerBuilder) -> Locker {
    let mut locker = None;
    until("a connection to the test's server", async || {
        match builder.clone().build().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            built => locker = Some(built.expect("a connection to the test's server")),
        }
        locker.is_some()
    })
    .await;
    locker.expect("it is connected")
}

/// Connects a locker for tests in which the server replies, however late it does so on a busy machine: no command is
/// sent twice.
pub(crate) async fn connect_patiently(url: &str) -> Locker {
    connected(&builder(url).command_timeout(GENEROUS)).await
}

pub(crate) async fn hold(locker: &Locker, name: &str) -> Guard {
    in_time("the lock", locker.lock(name).acquire()).await.expect("the lock")
}

/// The record of the last fence of all names.
pub(crate) const LAST_FENCE: &str = "{locker}:fence";

/// Returns the id of the holder of the lock at `key`, as the server has it.
pub(crate) fn holder(server: &RedisServer, key: &str) -> Option<String> {
    let held = server.ask::<Option<String>>("GET", &[key])?;
    held.split(' ').next().map(str::to_owned)
}

/// Returns how many ids the lock at `key` refuses.
pub(crate) fn refused_ids(server: &RedisServer, key: &str) -> u64 {
    server.ask("ZCOUNT", &[&format!("{{{key}}}:q"), "-inf", "(0"])
}

/// Starts a waiter for the lock `a`, and returns when it is queued behind the others.
pub(crate) async fn queue(server: &RedisServer, locker: &Locker) -> JoinHandle<Guard> {
    let (locker, before) = (locker.clone(), waiting(server, "lock:a"));
    let waiter = tokio::spawn(async move { hold(&locker, "a").await });
    until("the waiter in the queue", async || waiting(server, "lock:a") > before).await;
    waiter
}

/// Starts a wait for the only permit of `a`, and returns when it is queued.
pub(crate) async fn queue_permit(
    server: &RedisServer,
    locker: &Locker,
    holder: &'static str,
    expires: Duration,
    timeout: Duration,
) -> JoinHandle<locker::Result<Grant>> {
    let (permits, before) = (locker.keyed_semaphore("a", 1), waiting(server, "semaphore:a"));
    let joined = tokio::spawn(async move { permits.acquire(holder, expires, timeout).await });
    until("its place in the queue", async || waiting(server, "semaphore:a") > before).await;
    joined
}

/// Returns the number of waiters at `key`.
pub(crate) fn waiting(server: &RedisServer, key: &str) -> usize {
    server.ask("ZCOUNT", &[&format!("{{{key}}}:q"), "0", "+inf"])
}

/// Returns the version that the server reports to its clients.
pub(crate) fn version(server: &RedisServer) -> String {
    let mut facts: HashMap<String, redis::Value> = server.ask("HELLO", &[]);
    redis::from_redis_value(facts.remove("version").unwrap()).unwrap()
}

/// Returns how often the server has run a script.
pub(crate) fn scripts_run(server: &RedisServer) -> u64 {
    commands_run(server, |name| matches!(name, "evalsha" | "eval"))
}

/// Returns how often the server has run these commands, also in scripts.
pub(crate) fn commands_run(server: &RedisServer, counts: impl Fn(&str) -> bool) -> u64 {
    let statistics: String = server.ask("INFO", &["commandstats"]);
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse::<u64>().ok()?;
        counts(name).then_some(count)
    };
    statistics.lines().filter_map(calls).sum()
}

/// Returns the names of all keys that do not expire.
pub(crate) fn eternal_keys(server: &RedisServer) -> Vec<String> {
    let keys: Vec<String> = server.ask("KEYS", &["*"]);
    let stays = |key: &String| key != LAST_FENCE && server.ask::<i64>("PTTL", &[key]) == -1;
    keys.into_iter().filter(stays).collect()
}

pub(crate) fn nobody_is_left(server: &RedisServer) {
    assert_eq!((holder(server, "lock:a"), waiting(server, "lock:a")), (None, 0));
    assert_eq!(eternal_keys(server), [""; 0]);
}

/// Returns the time of the server.
pub(crate) fn clock(server: &RedisServer) -> Duration {
    let (seconds, micros): (u64, u64) = server.ask("TIME", &[]);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Checks that a dead or silent waiter ahead has delayed a hold by the grant window at most. The fence is the server's
/// time of the grant.
pub(crate) fn within_the_grant_window(released: Duration, fence: u64) {
    let took = Duration::from_micros(fence).checked_sub(released).expect("a grant after the release");
    assert!(took <= Duration::from_secs(2) + ROUND_TRIP, "granted {took:?} after the release");
}

/// What a busy machine takes to send a request and its reply.
pub(crate) const ROUND_TRIP: Duration = Duration::from_secs(1);

static NEXT_FENCE: AtomicU64 = AtomicU64::new(1);

/// Sends a message to the only process that listens, and waits until the process has read it and acted on it.
pub(crate) async fn tell_late(server: &RedisServer, message: &str) {
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let fence = NEXT_FENCE.fetch_add(1, Ordering::Relaxed);
    let run = ghost_run(server, &channels[0], "lock:ghost", fence);
    for message in [message, &run] {
        assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], message]), 1);
    }
    until("a later message having been read", async || holder(server, "lock:ghost").is_none()).await;
}

/// Grants a lock at the server to a waiter of the process of `channel`, which does not know it and therefore does not
/// confirm it. Returns the message about it.
pub(crate) fn ghost_run(server: &RedisServer, channel: &str, key: &str, fence: u64) -> String {
    const GHOST: &str = "0123456789abcdef0123456789abcdef";
    let record = format!("{fence} {GHOST}:60000 ?{channel} {GHOST}");
    let _: String = server.ask("SET", &[&format!("{{{key}}}:f"), &record, "PX", "120000"]);
    let _: String = server.ask("SET", &[key, &format!("{GHOST} {fence} *"), "PX", "60000"]);
    format!("lock run {GHOST}:60000 {fence} {key}")
}

/// A server, a proxy before it, and a locker behind that.
macro_rules! server_behind_proxy {
    () => {{
        let Some(server) = locker_harness::RedisServer::start() else { return };
        let proxy = locker_harness::Proxy::to(server.port());
        let locker = crate::support::connect(&proxy.url()).await;
        // From here on the server knows the scripts: the first reply to a call is its result.
        crate::support::hold(&locker, "known").await.release().await.unwrap();
        (server, proxy, locker)
    }};
}
pub(crate) use server_behind_proxy;

/// Grants the lock `a` to `holder` as a script does that publishes no message, and empties its queue.
pub(crate) fn grant_at_the_server(server: &RedisServer, holder: &str, record: &str) {
    let fence = record.split(' ').next().unwrap_or_default();
    let held = format!("{holder} {fence} *");
    let _: () = redis::pipe()
        .atomic()
        .del(&["{lock:a}:q", "{lock:a}:w"])
        .cmd("SET")
        .arg(&["{lock:a}:f", record, "PX", "60000"])
        .cmd("SET")
        .arg(&["lock:a", &held, "PX", "6000"])
        .query(&mut server.connection())
        .unwrap();
}
