//! Notifications of grants that arrive early, late or twice: they do not end a hold or lend it an old fence.

use crate::support::{
    GENEROUS, MINUTE, builder, connect, grant_at_the_server, hold, holder, in_time, queue, queue_permit,
    server_behind_proxy, tell_late, until, waiting,
};
use locker::ErrorKind;
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;

/// Redis 7.2 and later send a client its own messages after the reply. An old connection may deliver one even later.
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
    grant_at_the_server(&server, &id, &record);
    let granted = in_time("the reply to the recheck", waiter).await.unwrap().unwrap();
    assert_eq!((granted.fence(), granted.id()), (fence, id.as_str()));
    tell_late(&server, &format!("lock run {id}:6000 {fence} lock:a")).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
}

/// A waiter is granted the lock, does not confirm it in time, queues again and is granted it again. The first message
/// may arrive after all that.
#[tokio::test]
async fn late_notification_lends_no_old_fence() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let guard = hold(&locker, "a").await;
    let waiter = queue(&server, &locker).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &["{lock:a}:q", "0", "0"]).remove(0);
    let (old, new) = (guard.fence() + 1, guard.fence() + 2);
    let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w"]);
    let _: String = server.ask("SET", &["lock:a", &format!("{id} {new}"), "PX", "6000"]);
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let _: i64 = server.ask("PUBLISH", &[&channels[0], &format!("lock run {id}:6000 {old} lock:a")]);
    let granted = in_time("the grant", waiter).await.unwrap();
    assert_eq!((granted.fence(), granted.id()), (new, id.as_str()));
    granted.release().await.unwrap();
}

/// A connection stalls and is replaced. Its messages arrive nevertheless.
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
    // Its renewal finds that the connection stalls, after the waiter has missed its grant window.
    let _other = locker.lock("b").lease(seconds(2)).acquire().await.unwrap();
    let waiters: Vec<String> = server.ask("HVALS", &["{lock:a}:w"]);
    let channel = waiters[0].rsplit(' ').next().unwrap();
    proxy.set_for_open(Fault::Delay(seconds(2)));
    // A call that waits for a reply keeps the old connection open.
    let keeper = tokio::spawn(locker.lock("c").acquire());
    before.release().await.unwrap();
    let granted = in_time("the lock", waiter).await.unwrap().unwrap();
    let connections = || server.ask::<(String, i64)>("PUBSUB", &["NUMSUB", channel]).1;
    until("the end of the old connection", async || connections() == 1).await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
    in_time("the other's lock", keeper).await.unwrap().unwrap().release().await.unwrap();
}

/// A waiter is granted the lock, does not confirm it in time, and gets it by a recheck. The first message, delayed on
/// an old connection, arrives when the wait is over.
#[tokio::test]
async fn late_notification_spares_a_new_hold() {
    let (server, _proxy, locker) = server_behind_proxy!();
    let before = hold(&locker, "a").await;
    let request = locker.lock("a").retry_delay(Duration::from_millis(50));
    let waiter = tokio::spawn(request.acquire());
    until("the waiter", async || waiting(&server, "lock:a") == 1).await;
    let _: i64 = server.ask("DEL", &["{lock:a}:q", "{lock:a}:w", "lock:a"]);
    let granted = in_time("the reply to the recheck", waiter).await.unwrap().unwrap();
    let permit = locker.semaphore("a", 1).acquire().await.unwrap();
    tell_late(&server, &format!("lock run {}:6000 {} lock:a", granted.id(), before.fence() + 1)).await;
    tell_late(&server, &format!("semaphore granted {} {} semaphore:a", permit.id(), permit.fence() - 1))
        .await;
    assert_eq!(holder(&server, "lock:a").as_deref(), Some(granted.id()));
    granted.release().await.unwrap();
    permit.release().await.unwrap();
}

/// Two connections deliver the same messages for a while. An older message arrives between two copies of the last one.
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
    // The grant is sent, but not confirmed.
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

/// As above, for a hold by name.
#[tokio::test]
async fn late_notification_spares_a_keyed_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    locker.keyed_semaphore("a", 1).acquire("first", MINUTE, Duration::ZERO).await.unwrap();
    let second = queue_permit(&server, &locker, "second", MINUTE, GENEROUS).await;
    let attempt = server.ask::<Vec<String>>("ZRANGE", &["{semaphore:a}:q", "0", "0"]).remove(0);
    let keys: Vec<String> = server.ask("KEYS", &["*semaphore:a*"]);
    let _: i64 = server.ask("DEL", &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let _: i64 = server.ask("PUBLISH", &[&channels[0], &format!("semaphore wake {attempt} 0 semaphore:a")]);
    in_time("the reply to the recheck", second).await.unwrap().unwrap();
    tell_late(&server, &format!("semaphore granted {attempt} 1 semaphore:a")).await;
    let third = locker.keyed_semaphore("a", 1).acquire("third", MINUTE, Duration::ZERO).await;
    assert_eq!(third.unwrap_err().kind(), ErrorKind::TimedOut);
}
