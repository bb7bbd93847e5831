//! Copies of requests that come when others have been answered: what they would undo is not theirs any more.

use crate::support::{GENEROUS, builder, connect, eternal_keys, in_time, scripts_run, until};
use locker::{ErrorKind, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A server, a proxy before it, and a locker behind that.
async fn through_a_proxy() -> Option<(RedisServer, Proxy, Locker)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::to(server.port());
    let behind = connect(&proxy.url()).await;
    Some((server, proxy, behind))
}

/// What was held back arrives, and is carried out as far as the server lets it.
async fn let_the_late_copy_through(server: &RedisServer, proxy: &Proxy) {
    let before = scripts_run(server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(server) > before).await;
}

/// A hold by name is released by name: that the attempt was made twice is not known any more by then.
#[tokio::test]
async fn late_keyed_acquire_holds_nothing() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", behind.keyed_semaphore("a").acquire(1, "holder", Duration::MAX, GENEROUS))
        .await
        .unwrap();
    assert!(behind.keyed_semaphore("a").release("holder").await.unwrap());
    in_time("what is sent from the background", behind.settled()).await;
    let_the_late_copy_through(&server, &proxy).await;
    let free = direct.semaphore("a", 1).try_acquire().await.unwrap();
    assert!(free.is_some(), "somebody holds who knows nothing of it, without end");
}

#[tokio::test]
async fn late_keyed_release_spares_the_next_hold() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    behind.keyed_semaphore("a").acquire(1, "holder", Duration::MAX, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    assert!(in_time("a new connection", behind.keyed_semaphore("a").release("holder")).await.unwrap());
    let next = behind.keyed_semaphore("a").acquire(1, "holder", Duration::MAX, GENEROUS).await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    assert!(direct.semaphore("a", 1).try_acquire().await.unwrap().is_none(), "two hold at once");
    assert_eq!(
        behind.keyed_semaphore("a").acquire(1, "holder", Duration::MAX, GENEROUS).await.unwrap(),
        next
    );
    assert!(
        behind.keyed_semaphore("a").release("holder").await.unwrap(),
        "another release is another attempt"
    );
    assert!(!behind.keyed_semaphore("a").release("holder").await.unwrap());
}

#[tokio::test]
async fn late_keyed_renewal_keeps_the_new_expiry() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let admin = behind.admin();
    behind.keyed_semaphore("a").acquire(1, "holder", MINUTE, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    assert!(
        in_time("a new connection", behind.keyed_semaphore("a").renew("holder", Duration::MAX))
            .await
            .unwrap()
    );
    assert!(behind.keyed_semaphore("a").renew("holder", MINUTE).await.unwrap());
    let_the_late_copy_through(&server, &proxy).await;
    let looks = admin.inspect(&admin.key("semaphore", "a")).await.unwrap().unwrap();
    assert!(looks.holders[0].time_left.is_some_and(|left| left <= MINUTE), "{looks:?}");
    assert!(
        behind.keyed_semaphore("a").renew("holder", Duration::MAX).await.unwrap(),
        "another renewal is another attempt"
    );
    let looks = admin.inspect(&admin.key("semaphore", "a")).await.unwrap().unwrap();
    assert_eq!(looks.holders[0].time_left, None);
}

#[tokio::test]
async fn late_send_does_not_undo_a_reset() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    let event = behind.event("a");
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", event.send("x")).await.unwrap();
    event.reset().await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    let not_sent = direct.event("a").wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(not_sent.kind(), ErrorKind::TimedOut);
    event.send("y").await.unwrap();
    assert_eq!(direct.event("a").wait(Duration::ZERO).await.unwrap(), "y");
    assert!(eternal_keys(&server).is_empty());
}

/// Over HTTP, deleting an event is how it is reset.
#[tokio::test]
async fn late_copies_do_nothing_after_a_deletion() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let admin = behind.admin();
    behind.keyed_semaphore("a").acquire(1, "holder", MINUTE, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    let (event, counter) = (behind.event("a"), behind.counter("a"));
    let permits = behind.keyed_semaphore("a");
    let both = async { tokio::join!(event.send("x"), counter.add(1), permits.release("holder")) };
    let (sent, added, released) = in_time("a new connection", both).await;
    assert!(sent.is_ok() && added.is_ok() && released.unwrap());
    for kind in ["event", "counter"] {
        assert!(admin.delete(&admin.key(kind, "a")).await.unwrap(), "{kind}");
    }
    behind.keyed_semaphore("a").acquire(1, "other", MINUTE, GENEROUS).await.unwrap();
    assert!(admin.delete(&admin.key("semaphore", "a")).await.unwrap());
    let held = behind.keyed_semaphore("a").acquire(1, "holder", MINUTE, GENEROUS).await.unwrap();
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("all three", async || scripts_run(&server) >= before + 3).await;
    assert_eq!(event.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(counter.get().await.unwrap(), 0);
    assert_eq!(behind.keyed_semaphore("a").acquire(1, "holder", MINUTE, GENEROUS).await.unwrap(), held);
}

#[tokio::test]
async fn late_reset_does_not_undo_a_send() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    let event = behind.event("a");
    event.send("x").await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", event.reset()).await.unwrap();
    event.send("y").await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    assert_eq!(direct.event("a").wait(Duration::ZERO).await.unwrap(), "y");
    event.reset().await.unwrap();
    assert_eq!(direct.event("a").wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn late_kick_does_not_undo_a_newer_one() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let (watchdog, admin) = (behind.watchdog("a"), behind.admin());
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", watchdog.kick(10 * MINUTE)).await.unwrap();
    watchdog.kick(MINUTE).await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    let looks = admin.inspect(&admin.key("watchdog", "a")).await.unwrap().unwrap();
    assert!(looks.resets_in.is_some_and(|left| left <= MINUTE), "{looks:?}");
}

#[tokio::test]
async fn late_set_does_not_undo_newer_additions() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let counter = behind.counter("a");
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", counter.set(10)).await.unwrap();
    assert_eq!(counter.add(1).await.unwrap(), 11);
    let_the_late_copy_through(&server, &proxy).await;
    assert_eq!(counter.get().await.unwrap(), 11);
    counter.set(10).await.unwrap();
    assert_eq!(counter.get().await.unwrap(), 10);
}

#[tokio::test]
async fn late_deletion_spares_a_new_hold() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let slow = builder(&proxy.url()).command_timeout(Duration::from_secs(2)).build().await.unwrap();
    let (admin, direct) = (slow.admin(), connect(&server.url()).await);
    slow.keyed_semaphore("a").acquire(1, "old", Duration::MAX, GENEROUS).await.unwrap();
    // Two calls look what it is, and that it is in use; the third deletes it.
    let before = scripts_run(&server);
    proxy.set(Fault::Delay(Duration::from_millis(400)));
    let deleting = tokio::spawn({
        let admin = slow.admin();
        async move { admin.delete(&admin.key("semaphore", "a")).await }
    });
    until("both looks", async || scripts_run(&server) == before + 2).await;
    proxy.set_for_open(Fault::HoldRequests);
    assert!(in_time("a new connection", deleting).await.unwrap().unwrap());
    slow.keyed_semaphore("a").acquire(1, "new", Duration::MAX, GENEROUS).await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    assert!(direct.semaphore("a", 1).try_acquire().await.unwrap().is_none(), "two hold at once");
    assert!(admin.delete(&admin.key("semaphore", "a")).await.unwrap(), "another deletion is another attempt");
}

/// A request that is answered at its first try leaves no record that would refuse a late copy.
#[tokio::test]
async fn only_repeated_requests_leave_records() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let (admin, event) = (locker.admin(), locker.event("a"));
    locker.keyed_semaphore("a").acquire(1, "holder", MINUTE, GENEROUS).await.unwrap();
    assert!(locker.keyed_semaphore("a").renew("holder", MINUTE).await.unwrap());
    assert!(locker.keyed_semaphore("a").release("holder").await.unwrap());
    event.send("x").await.unwrap();
    assert!(admin.delete(&admin.key("event", "a")).await.unwrap());
    event.send("x").await.unwrap();
    event.reset().await.unwrap();
    locker.watchdog("a").kick(MINUTE).await.unwrap();
    locker.counter("a").set(1).await.unwrap();
    let mut left: Vec<String> = server.ask("KEYS", &["*"]);
    left.sort();
    assert_eq!(left, ["counter:a", "watchdog:a", "{semaphore:a}:f"]);
}
