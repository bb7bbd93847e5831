//! Waiters that do not take their grant: dropped, killed and paused ones.

use crate::support::{
    GENEROUS, MINUTE, clock, commands_run, connect, ghost_run, hold, holder, in_time, queue, queue_permit,
    scripts_run, server_behind_proxy, until, waiting, within_the_grant_window,
};
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;

#[tokio::test]
async fn waiter_of_a_dead_process_is_skipped() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let now: (u64, u64) = server.ask("TIME", &[]);
    let alive = (now.0 + 60) * 1_000_000;
    let _: i64 = server.ask("ZADD", &["{lock:a}:q", "1", "0123456789abcdef0123456789abcdef"]);
    let waiter = format!("60000 {alive} fair locker:push:nobody");
    let _: i64 = server.ask("HSET", &["{lock:a}:w", "0123456789abcdef0123456789abcdef", &waiter]);
    let other = queue(&server, &locker).await;
    let released = clock(&server);
    guard.release().await.unwrap();
    let guard = in_time("the living waiter", other).await.unwrap();
    within_the_grant_window(released, guard.fence());
    guard.release().await.unwrap();
}

/// A paused process receives notifications and does not act on them.
#[tokio::test]
async fn silent_process_is_passed_over() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let (stopped, channel) = ("0123456789abcdef0123456789abcdef", "locker:push:stopped");
    let mut listener = server.connection();
    let mut listener = listener.as_pubsub();
    listener.subscribe(channel).unwrap();
    let guard = hold(&locker, "a").await;
    let now: (u64, u64) = server.ask("TIME", &[]);
    let alive = (now.0 + 600) * 1_000_000;
    let _: i64 = server.ask("ZADD", &["{lock:a}:q", "1", stopped]);
    let waiter = format!("60000 {alive} unfair {channel}");
    let _: i64 = server.ask("HSET", &["{lock:a}:w", stopped, &waiter]);
    let other = queue(&server, &locker).await;
    let (before, released) = (scripts_run(&server), clock(&server));
    guard.release().await.unwrap();
    let guard = in_time("the waiter behind it", other).await.unwrap();
    within_the_grant_window(released, guard.fence());
    assert!(scripts_run(&server) < before + 20, "no client polls");
    guard.release().await.unwrap();
}

/// After the grant window.
#[tokio::test]
async fn silent_unfair_waiter_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = direct.semaphore("a", 1).acquire().await.unwrap();
    // It asks just before the end of the window.
    let soon = Duration::from_millis(1_900);
    let request = behind.semaphore("a", 1).fair(false).timeout(GENEROUS).retry_delay(GENEROUS);
    let silent = tokio::spawn(request.acquire());
    until("the first waiter in the queue", async || waiting(&server, "semaphore:a") == 1).await;
    let next = tokio::spawn(direct.semaphore("a", 1).retry_delay(soon).acquire());
    until("the second waiter in the queue", async || waiting(&server, "semaphore:a") == 2).await;
    proxy.set(Fault::DropReplies);
    let released = clock(&server);
    guard.release().await.unwrap();
    let guard = in_time("the second waiter", next).await.unwrap().unwrap();
    within_the_grant_window(released, guard.fence());
    guard.release().await.unwrap();
    silent.abort();
}

/// After the grant window.
#[tokio::test]
async fn silent_successor_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    direct.keyed_semaphore("a", 1).acquire("first", MINUTE, Duration::ZERO).await.unwrap();
    let silent = queue_permit(&server, &behind, "silent", MINUTE, GENEROUS).await;
    let next = queue_permit(&server, &direct, "next", MINUTE, GENEROUS).await;
    proxy.set(Fault::HoldRequests);
    let released = clock(&server);
    assert!(direct.keyed_semaphore("a", 1).release("first").await.unwrap());
    let grant = in_time("the second waiter", next).await.unwrap().unwrap();
    within_the_grant_window(released, grant.fence);
    silent.abort();
}

/// After the grant window. It is fair: the server has granted it the lock.
#[tokio::test]
async fn silent_fair_waiter_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let guard = hold(&direct, "a").await;
    let silent = queue(&server, &behind).await;
    let next = queue(&server, &direct).await;
    proxy.set(Fault::DropReplies);
    let released = clock(&server);
    guard.release().await.unwrap();
    let guard = in_time("the second waiter", next).await.unwrap();
    within_the_grant_window(released, guard.fence());
    guard.release().await.unwrap();
    silent.abort();
}

/// As long as nobody has confirmed it. A message about a hold that is confirmed ends nothing, whoever sends it.
#[tokio::test]
async fn grant_without_a_waiter_is_released() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let tell = |message: &str| assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], message]), 1);
    tell(&ghost_run(&server, &channels[0], "lock:ghost", 7));
    until("the ghost's end", async || holder(&server, "lock:ghost").is_none()).await;
    let guard = hold(&connect(&server.url()).await, "a").await;
    let waiter = queue(&server, &locker).await;
    guard.release().await.unwrap();
    let guard = in_time("the hand-over", waiter).await.unwrap();
    let (of_another, of_this) = (hold(&connect(&server.url()).await, "b").await, hold(&locker, "c").await);
    for (guard, key) in [(&guard, "lock:a"), (&of_another, "lock:b"), (&of_this, "lock:c")] {
        let (id, fence) = (guard.id(), guard.fence());
        tell(&format!("lock run {id}:6000 {fence} {key}"));
        tell(&format!("lock run {id}:6000 {} {key}", fence + 1));
        tell(&format!("lock run {id}:6000,{id}:7000 {} {key}", fence + 2));
    }
    tell(&ghost_run(&server, &channels[0], "lock:ghost", 8));
    until("a later message having been read", async || holder(&server, "lock:ghost").is_none()).await;
    for (guard, key) in [(&guard, "lock:a"), (&of_another, "lock:b"), (&of_this, "lock:c")] {
        assert_eq!(holder(&server, key).as_deref(), Some(guard.id()));
    }
    for guard in [guard, of_another, of_this] {
        guard.release().await.unwrap();
    }
}

const DEAD: i64 = 50_000;

/// Adds dead waiters before the only waiter for `key`. Their process receives nothing.
fn add_dead(server: &RedisServer, key: &str, record: &str) {
    let (queue, waiters) = (format!("{{{key}}}:q"), format!("{{{key}}}:w"));
    let mut connection = server.connection();
    let living = server.ask::<Vec<String>>("ZRANGE", &[&queue, "0", "0"]).remove(0);
    let _: String = server.ask("ZINCRBY", &[&queue, &DEAD.to_string(), &living]);
    for thousand in 0..DEAD / 1_000 {
        let mut pipe = redis::pipe();
        for number in 0..1_000 {
            let number = thousand * 1_000 + number;
            let id = format!("{number:032x}");
            pipe.cmd("ZADD").arg(&queue).arg(number + 1).arg(&id).ignore();
            pipe.cmd("HSET").arg(&waiters).arg(&id).arg(record).ignore();
        }
        pipe.exec(&mut connection).unwrap();
    }
}

#[tokio::test]
async fn dead_waiters_are_removed_a_thousand_at_a_time() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let now: (u64, u64) = server.ask("TIME", &[]);
    let waiter = format!("10000 {} fair locker:push:gone", (now.0 + 600) * 1_000_000);
    let next = queue(&server, &locker).await;
    add_dead(&server, "lock:a", &waiter);
    let removals = |server: &RedisServer| commands_run(server, |name| name == "zrem");
    let (before, scripts) = (removals(&server), scripts_run(&server));
    let messages = commands_run(&server, |name| name == "publish");
    guard.release().await.unwrap();
    let next = in_time("the living waiter", next).await.unwrap();
    assert_eq!(waiting(&server, "lock:a"), 0);
    let (removals, scripts) = (removals(&server) - before, scripts_run(&server) - scripts);
    assert!(scripts >= 50, "{scripts} calls");
    assert!(removals <= scripts * 32, "{removals} in {scripts} calls");
    let messages = commands_run(&server, |name| name == "publish") - messages;
    assert!(messages <= scripts + 1, "{messages} messages in {scripts} calls");
    next.release().await.unwrap();
}

/// The release removed them all, and stopped the server for 0.7 s.
#[tokio::test]
async fn dead_waiters_for_permits_are_removed_in_parts() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for (end, channel) in [(1, "locker:push:dead"), (u64::MAX >> 12, "locker:push:gone")] {
        let guard = locker.semaphore("a", 1).lease(MINUTE).acquire().await.unwrap();
        let request = locker.semaphore("a", 1).timeout(GENEROUS).retry_delay(GENEROUS);
        let next = tokio::spawn(request.acquire());
        until("a waiter", async || waiting(&server, "semaphore:a") == 1).await;
        add_dead(&server, "semaphore:a", &format!("10000 {end} fair 1 1 {end} {channel}"));
        let removals = || commands_run(&server, |name| name == "zrem");
        let messages = || commands_run(&server, |name| name == "publish");
        let before = (scripts_run(&server), removals(), messages());
        guard.release().await.unwrap();
        let next = in_time("the living waiter", next).await.unwrap().unwrap();
        assert_eq!(waiting(&server, "semaphore:a"), 0);
        let (scripts, removals) = (scripts_run(&server) - before.0, removals() - before.1);
        assert!(scripts >= 50, "{removals} in {scripts} calls");
        let messages = messages() - before.2;
        assert!(messages <= scripts + 1, "{messages} messages in {scripts} calls");
        next.release().await.unwrap();
    }
}
