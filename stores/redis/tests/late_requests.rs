//! Copies of requests that arrive after a repetition got its reply: they change nothing.

use crate::support::{
    GENEROUS, LAST_FENCE, MINUTE, connect, eternal_keys, hold, holder, in_time, refused_ids, scripts_run,
    server_behind_proxy, until, waiting,
};
use locker::{ErrorKind, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::{future::Future, pin::pin, time::Duration};

/// A server, a proxy before it, and a locker behind that.
async fn through_a_proxy() -> Option<(RedisServer, Proxy, Locker)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::to(server.port());
    let behind = connect(&proxy.url()).await;
    Some((server, proxy, behind))
}

/// Lets the delayed copy through, and waits until the server has run it.
async fn let_the_late_copy_through(server: &RedisServer, proxy: &Proxy) {
    let before = scripts_run(server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(server) > before).await;
}

/// The release goes by name and does not know that the acquire was sent twice.
#[tokio::test]
async fn late_keyed_acquire_holds_nothing() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", behind.keyed_semaphore("a", 1).acquire("holder", Duration::MAX, GENEROUS))
        .await
        .unwrap();
    assert!(behind.keyed_semaphore("a", 1).release("holder").await.unwrap());
    in_time("the background calls", behind.settled()).await;
    let_the_late_copy_through(&server, &proxy).await;
    let free = direct.semaphore("a", 1).try_acquire().await.unwrap();
    assert!(free.is_some(), "a caller that does not know holds it indefinitely");
}

#[tokio::test]
async fn late_keyed_lock_acquire_holds_nothing() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    let lock = behind.keyed_lock("a");
    proxy.set_for_open(Fault::HoldRequests);
    in_time("a new connection", lock.clone().acquire("holder", MINUTE, GENEROUS)).await.unwrap();
    assert!(lock.release("holder").await.unwrap());
    in_time("the background calls", behind.settled()).await;
    let_the_late_copy_through(&server, &proxy).await;
    assert!(direct.lock("a").try_acquire().await.unwrap().is_some(), "a caller that does not know holds it");
}

/// The late copy is answered with the hold of the other attempt, and must not take that hold away from it.
#[tokio::test]
async fn late_keyed_lock_acquire_shares_no_hold() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    proxy.set_for_open(Fault::HoldRequests);
    let lock = behind.keyed_lock("a");
    in_time("a new connection", lock.clone().acquire("holder", MINUTE, GENEROUS)).await.unwrap();
    assert!(lock.release("holder").await.unwrap());
    in_time("the background calls", behind.settled()).await;
    let held = direct.keyed_lock("a").acquire("holder", MINUTE, GENEROUS).await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    assert_eq!(direct.keyed_lock("a").acquire("holder", MINUTE, GENEROUS).await.unwrap(), held);
    assert!(direct.lock("a").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn late_keyed_lock_changes_spare_the_next_hold() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let (direct, admin) = (connect(&server.url()).await, behind.admin());
    let lock = behind.keyed_lock("a");
    lock.clone().acquire("holder", MINUTE, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    let both = async { tokio::join!(lock.renew("holder", MINUTE * 9), lock.release("holder")) };
    let (_, released) = in_time("a new connection", both).await;
    assert!(released.unwrap());
    let next = lock.clone().acquire("holder", MINUTE, GENEROUS).await.unwrap();
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("both late copies", async || scripts_run(&server) >= before + 2).await;
    assert!(direct.lock("a").try_acquire().await.unwrap().is_none(), "two hold at once");
    let state = admin.inspect(&admin.key("lock", "a")).await.unwrap().unwrap();
    assert!(state.holders[0].time_left.is_some_and(|left| left <= MINUTE), "{state:?}");
    assert_eq!(lock.clone().acquire("holder", MINUTE, GENEROUS).await.unwrap(), next);
    assert!(lock.release("holder").await.unwrap() && !lock.release("holder").await.unwrap());
}

/// The client gives up while the reply to its granted acquire is lost: nobody holds, unless another client of the same
/// name has got the hold.
#[tokio::test]
async fn lost_grant_of_a_keyed_lock_is_returned() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    for is_shared in [false, true] {
        direct.lock("warm").acquire().await.unwrap().release().await.unwrap();
        proxy.set(Fault::DropReplies);
        let before = scripts_run(&server);
        let mut call = Box::pin(behind.keyed_lock("a").acquire("holder", MINUTE, GENEROUS));
        until("the grant", async || {
            assert!(futures_util::poll!(&mut call).is_pending());
            scripts_run(&server) > before
        })
        .await;
        if is_shared {
            direct.keyed_lock("a").acquire("holder", MINUTE, Duration::ZERO).await.unwrap();
        }
        drop(call);
        proxy.set(Fault::None);
        in_time("the cancel", behind.settled()).await;
        let held = direct.lock("a").try_acquire().await.unwrap().is_none();
        assert_eq!(held, is_shared);
        assert_eq!(direct.keyed_lock("a").release("holder").await.unwrap(), is_shared);
    }
}

#[tokio::test]
async fn late_keyed_release_spares_the_next_hold() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let direct = connect(&server.url()).await;
    behind.keyed_semaphore("a", 1).acquire("holder", Duration::MAX, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    assert!(in_time("a new connection", behind.keyed_semaphore("a", 1).release("holder")).await.unwrap());
    let next = behind.keyed_semaphore("a", 1).acquire("holder", Duration::MAX, GENEROUS).await.unwrap();
    let_the_late_copy_through(&server, &proxy).await;
    assert!(direct.semaphore("a", 1).try_acquire().await.unwrap().is_none(), "two hold at once");
    assert_eq!(
        behind.keyed_semaphore("a", 1).acquire("holder", Duration::MAX, GENEROUS).await.unwrap(),
        next
    );
    assert!(
        behind.keyed_semaphore("a", 1).release("holder").await.unwrap(),
        "another release is another attempt"
    );
    assert!(!behind.keyed_semaphore("a", 1).release("holder").await.unwrap());
}

#[tokio::test]
async fn late_keyed_renewal_keeps_the_new_expiry() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let admin = behind.admin();
    behind.keyed_semaphore("a", 1).acquire("holder", MINUTE, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    assert!(
        in_time("a new connection", behind.keyed_semaphore("a", 1).renew("holder", Duration::MAX))
            .await
            .unwrap()
    );
    assert!(behind.keyed_semaphore("a", 1).renew("holder", MINUTE).await.unwrap());
    let_the_late_copy_through(&server, &proxy).await;
    let state = admin.inspect(&admin.key("semaphore", "a")).await.unwrap().unwrap();
    assert!(state.holders[0].time_left.is_some_and(|left| left <= MINUTE), "{state:?}");
    assert!(
        behind.keyed_semaphore("a", 1).renew("holder", Duration::MAX).await.unwrap(),
        "another renewal is another attempt"
    );
    let state = admin.inspect(&admin.key("semaphore", "a")).await.unwrap().unwrap();
    assert_eq!(state.holders[0].time_left, None);
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

/// Over HTTP, an event is reset by deleting it.
#[tokio::test]
async fn late_copies_do_nothing_after_a_deletion() {
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let admin = behind.admin();
    behind.keyed_semaphore("a", 1).acquire("holder", MINUTE, GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    let (event, counter) = (behind.event("a"), behind.counter("a"));
    let permits = behind.keyed_semaphore("a", 1);
    let both = async { tokio::join!(event.send("x"), counter.add(1), permits.release("holder")) };
    let (sent, added, released) = in_time("a new connection", both).await;
    assert!(sent.is_ok() && added.is_ok() && released.unwrap());
    for kind in ["event", "counter"] {
        assert!(admin.delete(&admin.key(kind, "a")).await.unwrap(), "{kind}");
    }
    behind.keyed_semaphore("a", 1).acquire("other", MINUTE, GENEROUS).await.unwrap();
    assert!(admin.delete(&admin.key("semaphore", "a")).await.unwrap());
    let held = behind.keyed_semaphore("a", 1).acquire("holder", MINUTE, GENEROUS).await.unwrap();
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("all three", async || scripts_run(&server) >= before + 3).await;
    assert_eq!(event.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(counter.get().await.unwrap(), 0);
    assert_eq!(behind.keyed_semaphore("a", 1).acquire("holder", MINUTE, GENEROUS).await.unwrap(), held);
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
    let state = admin.inspect(&admin.key("watchdog", "a")).await.unwrap().unwrap();
    assert!(state.resets_in.is_some_and(|left| left <= MINUTE), "{state:?}");
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
    let Some((server, proxy, behind)) = through_a_proxy().await else { return };
    let (admin, direct) = (behind.admin(), connect(&server.url()).await);
    behind.keyed_semaphore("a", 1).acquire("old", Duration::MAX, GENEROUS).await.unwrap();
    // The calls before it, which read the kind of the key and whether it is in use, arrive.
    proxy.set_for_open(Fault::HoldRequestsFrom("\r\ndelete\r\n"));
    assert!(in_time("a new connection", admin.delete(&admin.key("semaphore", "a"))).await.unwrap());
    behind.keyed_semaphore("a", 1).acquire("new", Duration::MAX, GENEROUS).await.unwrap();
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
    locker.keyed_semaphore("a", 1).acquire("holder", MINUTE, GENEROUS).await.unwrap();
    assert!(locker.keyed_semaphore("a", 1).renew("holder", MINUTE).await.unwrap());
    assert!(locker.keyed_semaphore("a", 1).release("holder").await.unwrap());
    event.send("x").await.unwrap();
    assert!(admin.delete(&admin.key("event", "a")).await.unwrap());
    event.send("x").await.unwrap();
    event.reset().await.unwrap();
    locker.watchdog("a").kick(MINUTE).await.unwrap();
    locker.counter("a").set(1).await.unwrap();
    let mut left: Vec<String> = server.ask("KEYS", &["*"]);
    left.sort();
    assert_eq!(left, ["counter:a", "watchdog:a", LAST_FENCE]);
}

#[tokio::test]
async fn late_acquire_meets_its_tombstone() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set_for_open(Fault::HoldRequests);
    // The first copy hangs in the network; the second goes over a new connection.
    let guard = hold(&locker, "a").await;
    guard.release().await.unwrap();
    let before = scripts_run(&server);
    proxy.set(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(holder(&server, "lock:a"), None);
}

#[tokio::test]
async fn acquire_dropped_in_flight_holds_nothing() {
    let (server, proxy, locker) = server_behind_proxy!();
    proxy.set_for_open(Fault::HoldRequests);
    {
        let mut acquire = pin!(locker.lock("a").acquire());
        let first_look =
            std::future::poll_fn(|context| std::task::Poll::Ready(acquire.as_mut().poll(context)));
        assert!(first_look.await.is_pending());
    }
    until("the cancel over a new connection", async || refused_ids(&server, "lock:a") == 1).await;
    let before = scripts_run(&server);
    proxy.set(Fault::None);
    until("the late acquire", async || scripts_run(&server) > before).await;
    assert_eq!((holder(&server, "lock:a"), waiting(&server, "lock:a")), (None, 0));
}

/// Its caller has given up at the barrier.
#[tokio::test]
async fn late_arrival_does_not_count() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    behind.barrier("known", 1).wait(GENEROUS).await.unwrap();
    proxy.set_for_open(Fault::HoldRequests);
    behind.barrier("a", 2).wait(Duration::from_millis(100)).await.unwrap_err();
    until("the caller being taken back", async || server.ask::<usize>("ZCARD", &["{barrier:a}:a"]) == 1)
        .await;
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "barrier:a"), 0);
    let alone = direct.barrier("a", 2).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::TimedOut);
}

/// Its caller has given up at the barrier.
#[tokio::test]
async fn late_final_check_does_not_count() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (behind, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let barrier = behind.barrier("a", 2);
    let gone = tokio::spawn(async move { barrier.wait(Duration::from_secs(1)).await });
    until("the waiter", async || waiting(&server, "barrier:a") == 1).await;
    proxy.set_for_open(Fault::HoldRequests);
    in_time("the time-out", gone).await.unwrap().unwrap_err();
    until("its place being given up", async || waiting(&server, "barrier:a") == 0).await;
    let barrier = direct.barrier("a", 2);
    let alone = tokio::spawn(async move { barrier.wait(GENEROUS).await });
    until("the other waiter", async || waiting(&server, "barrier:a") == 1).await;
    let before = scripts_run(&server);
    proxy.set_for_open(Fault::None);
    until("the late copy", async || scripts_run(&server) > before).await;
    assert_eq!(waiting(&server, "barrier:a"), 1, "it went on alone");
    direct.barrier("a", 2).wait(GENEROUS).await.unwrap();
    in_time("both", alone).await.unwrap().unwrap();
}
