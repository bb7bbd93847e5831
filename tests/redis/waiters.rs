//! Waiters on other connections: messages about grants, early and late, and processes that are gone or stand still.

use crate::support::{
    GENEROUS, LEASE, builder, connect, eternal_keys, hold, holder, in_time, scripts_run, server_behind_proxy,
    tell_late, until, waiting,
};
use futures_util::FutureExt;
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;

#[tokio::test]
async fn grant_without_a_waiter_is_released() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let ghost = "0123456789abcdef0123456789abcdef";
    let message = format!("lock run {ghost}:60000 7 lock:ghost");
    let _: String = server.ask("SET", &["lock:ghost", ghost, "PX", "60000"]);
    assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], &message]), 1);
    until("the ghost's end", async || holder(&server, "lock:ghost").is_none()).await;
    // The same message about a hold that is in use does not end it: it came before.
    let guard = hold(&connect(&server.url()).await, "a").await;
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    guard.release().await.unwrap();
    let guard = in_time("the hand-over", waiter).await.unwrap();
    let message = format!("lock run {}:6000 {} lock:a", guard.id(), guard.fence());
    assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], &message]), 1);
    let message = format!("lock run {ghost}:60000 8 lock:ghost");
    let _: String = server.ask("SET", &["lock:ghost", ghost, "PX", "60000"]);
    assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], &message]), 1);
    until("a later message having been read", async || holder(&server, "lock:ghost").is_none()).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(guard.id()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn settled_waits_for_returned_grants() {
    let (server, proxy, locker) = server_behind_proxy!();
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let ghost = "0123456789abcdef0123456789abcdef";
    let _: String = server.ask("SET", &["lock:ghost", ghost, "PX", "60000"]);
    proxy.set(Fault::HoldRequests);
    let message = format!("lock run {ghost}:60000 7 lock:ghost");
    assert_eq!(server.ask::<i64>("PUBLISH", &[&channels[0], &message]), 1);
    until("it is on its way back", async || locker.settled().now_or_never().is_none()).await;
    proxy.set(Fault::None);
    in_time("the end of all errands", locker.settled()).await;
    assert_eq!(holder(&server, "lock:ghost"), None);
}

/// Redis 7.2 and later send a client its own messages after the answer; an old connection may bring one even later.
#[tokio::test]
async fn message_after_the_reply_keeps_the_hold() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn({
        let request = locker.lock("a").retry_delay(Duration::from_millis(50));
        async move { request.acquire().await }
    });
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let fence = guard.fence() + 1;
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let record = format!("{fence} {id}:6000 {} {id}", channels[0]);
    let _: () = redis::pipe()
        .atomic()
        .del(&["{lock:a}:q", "{lock:a}:w"])
        .cmd("SET")
        .arg(&["{lock:a}:f", &record, "PX", "60000"])
        .cmd("SET")
        .arg(&["lock:a", &id, "PX", "6000"])
        .query(&mut server.connection())
        .unwrap();
    let granted = in_time("the answer to asking again", waiter).await.unwrap().unwrap();
    assert_eq!((granted.fence(), granted.id()), (fence, id.as_str()));
    let ghost = "0123456789abcdef0123456789abcdef";
    let _: String = server.ask("SET", &["lock:ghost", ghost, "PX", "60000"]);
    for message in
        [format!("lock run {id}:6000 {fence} lock:a"), format!("lock run {ghost}:60000 8 lock:ghost")]
    {
        let _: i64 = server.ask("PUBLISH", &[&channels[0], &message]);
    }
    until("a later message having been read", async || holder(&server, "lock:ghost").is_none()).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
}

/// What is given to the one who asks, by the very call with which he asks.
#[tokio::test]
async fn grant_by_a_recheck_lasts() {
    let (server, _proxy, locker) = server_behind_proxy!();
    for _ in 0..10 {
        let (short, long) = (Duration::from_millis(60), LEASE);
        locker.keyed_semaphore("a").acquire(1, "first", short, GENEROUS).await.unwrap();
        locker.keyed_semaphore("a").acquire(1, "second", long, GENEROUS).await.unwrap();
        hold(&locker, "later").await.release().await.unwrap();
        assert!(locker.keyed_semaphore("a").release("second").await.unwrap());
    }
    assert_eq!(eternal_keys(&server), [""; 0]);
}

/// Granted, not confirmed in time, queued again, granted again: the first message may come after all that.
#[tokio::test]
async fn late_notification_lends_no_old_fence() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let (old, new) = (guard.fence() + 1, guard.fence() + 2);
    let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w"]);
    let _: String = server.ask("SET", &["{lock:a}:f", &format!("{new} {id}"), "PX", "60000"]);
    let _: String = server.ask("SET", &["lock:a", &id, "PX", "6000"]);
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let _: i64 = server.ask("PUBLISH", &[&channels[0], &format!("lock run {id}:6000 {old} lock:a")]);
    let granted = in_time("the waiter's turn", waiter).await.unwrap();
    assert_eq!((granted.fence(), granted.id()), (new, id.as_str()));
    granted.release().await.unwrap();
}

/// A connection stands still, and is replaced; what it was to bring comes all the same.
#[tokio::test]
async fn old_connection_does_not_end_a_new_hold() {
    let seconds = Duration::from_secs;
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let direct = connect(&server.url()).await;
    let locker = builder(&proxy.url()).command_timeout(seconds(4)).build().await.unwrap();
    let before = hold(&direct, "a").await;
    let waiter = tokio::spawn(locker.lock("a").lease(seconds(1)).acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    // Whose renewal finds out that the connection stands still, when the waiter has not come in time.
    let _other = locker.lock("b").lease(seconds(2)).acquire().await.unwrap();
    let waiters: Vec<String> = server.ask("HVALS", &["{lock:a}:w"]);
    let channel = waiters[0].rsplit(' ').next().unwrap();
    proxy.set_for_open(Fault::Delay(seconds(2)));
    // Who waits for an answer over the old connection keeps it.
    let keeper = tokio::spawn(locker.lock("c").acquire());
    before.release().await.unwrap();
    let granted = in_time("the lock", waiter).await.unwrap().unwrap();
    let connections = || server.ask::<(String, i64)>("PUBSUB", &["NUMSUB", channel]).1;
    until("the end of the old connection", async || connections() == 1).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
    in_time("the other's lock", keeper).await.unwrap().unwrap().release().await.unwrap();
}

/// Granted, not confirmed in time, asked again and granted at once: the message, held up on an old connection, comes when
/// nobody waits any more.
#[tokio::test]
async fn late_notification_spares_a_new_hold() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let before = hold(&locker, "a").await;
    let request = locker.lock("a").retry_delay(Duration::from_millis(50));
    let waiter = tokio::spawn(request.acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w", "lock:a"]);
    let granted = in_time("the answer to asking again", waiter).await.unwrap().unwrap();
    let permit = locker.semaphore("a", 1).acquire().await.unwrap();
    tell_late(&server, &format!("lock run {}:6000 {} lock:a", granted.id(), before.fence() + 1)).await;
    tell_late(&server, &format!("semaphore granted {} {} semaphore:a", permit.id(), permit.fence() - 1))
        .await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
    permit.release().await.unwrap();
}

/// Two connections bring the same messages for a while: one that is older comes between two copies of the last.
#[tokio::test]
async fn older_notification_spares_the_hold() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let direct = connect(&server.url()).await;
    let locker = builder(&proxy.url()).command_timeout(GENEROUS).build().await.unwrap();
    let before = hold(&direct, "a").await;
    let waiter = tokio::spawn(locker.lock("a").acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let channel = server.ask::<String>("HGET", &["{lock:a}:w", &id]).rsplit(' ').next().unwrap().to_owned();
    // The grant is told of, but not confirmed.
    proxy.set(Fault::HoldRequests);
    before.release().await.unwrap();
    let record: String = server.ask("GET", &["{lock:a}:f"]);
    let fence: u64 = record.split(' ').next().unwrap().parse().unwrap();
    let older = format!("lock run {id}:6000 {} lock:a", fence - 1);
    assert_eq!(server.ask::<i64>("PUBLISH", &[&channel, &older]), 1);
    proxy.set(Fault::None);
    let granted = in_time("the lock", waiter).await.unwrap().unwrap();
    drop(direct);
    until("one process", async || {
        server.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "locker:push:*"]).len() == 1
    })
    .await;
    tell_late(&server, &format!("lock run {id}:6000 {fence} lock:a")).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
}

#[tokio::test]
async fn waiter_of_a_dead_process_is_skipped() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let now: (u64, u64) = server.ask("TIME", &[]);
    let alive = (now.0 + 60) * 1_000_000;
    let _: i64 = server.ask("ZADD", &["{lock:a}:q", "1", "0123456789abcdef0123456789abcdef"]);
    let waiter = format!("60000 {alive} fair locker:push:nobody");
    let _: i64 = server.ask("HSET", &["{lock:a}:w", "0123456789abcdef0123456789abcdef", &waiter]);
    let other = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("both in line", async || waiting(&server, "lock:a") == 2).await;
    guard.release().await.unwrap();
    let guard = in_time("the living waiter", other).await.unwrap();
    guard.release().await.unwrap();
}

/// A process that stands still takes messages, and does nothing about them.
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
    let other = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await }
    });
    until("both in line", async || waiting(&server, "lock:a") == 2).await;
    let before = scripts_run(&server);
    guard.release().await.unwrap();
    let guard = in_time("the waiter behind it", other).await.unwrap();
    assert!(scripts_run(&server) < before + 20, "nobody looks again and again");
    guard.release().await.unwrap();
}
