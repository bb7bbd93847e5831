//! Many waiters for an event, a latch or a barrier.

use crate::support::{GENEROUS, MINUTE, commands_run, connect_patiently, in_time, until, waiting};
use locker::{ErrorKind, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::time::Duration;
use tokio::task::JoinSet;

const CROWD: usize = 200;

/// Lets waiters of two processes wait for `what`, ends their wait, and checks that the server writes nothing and sends
/// nothing for each of them.
async fn check_end<W: Future<Output = bool> + Send + 'static>(
    what: &str,
    wait: impl Fn(Locker) -> W,
    end: impl AsyncFn(&Locker),
) {
    let Some(server) = RedisServer::start() else { return };
    let lockers =
        [connect_patiently(&server.url()).await, connect_patiently(&format!("{}/0", server.url())).await];
    let mut crowd = JoinSet::new();
    for number in 0..CROWD {
        crowd.spawn(wait(lockers[number % 2].clone()));
    }
    until("all waiters", async || waiting(&server, &format!("{what}:a")) == CROWD).await;
    let messages = || commands_run(&server, |name| name == "publish");
    let writes = || commands_run(&server, |name| matches!(name, "zadd" | "hset" | "hget" | "zrem" | "hdel"));
    let before = (messages(), writes());
    end(&lockers[0]).await;
    while let Some(told) = in_time("the crowd", crowd.join_next()).await {
        assert!(told.unwrap());
    }
    assert_eq!(messages() - before.0, 2, "one for each process");
    let writes = writes() - before.1;
    assert!(writes < CROWD as u64 / 2, "{writes} writes for a {what}");
}

/// A send wrote an answer and published a message for each waiter: 20,000 waiters stopped the server for 0.28 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn send_does_no_work_for_each_waiter() {
    let wait = |locker: Locker| async move { locker.event("a").wait(MINUTE).await.unwrap() == "go" };
    check_end("event", wait, async |locker| locker.event("a").send("go").await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opened_latch_does_no_work_for_each_waiter() {
    let wait = |locker: Locker| async move { locker.latch("a", 1).wait(MINUTE).await.is_ok() };
    check_end("latch", wait, async |locker| assert_eq!(locker.latch("a", 1).count_down().await.unwrap(), 0))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_arrival_does_no_work_for_each_waiter() {
    let parties = CROWD as u64 + 1;
    let wait = move |locker: Locker| async move { locker.barrier("a", parties).wait(MINUTE).await.is_ok() };
    check_end("barrier", wait, async |locker| locker.barrier("a", parties).wait(MINUTE).await.unwrap()).await;
}

/// The waiter asks again only after the event was deleted and sent anew.
#[tokio::test]
async fn waiter_gets_its_message_after_a_deletion() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, direct) = (connect_patiently(&proxy.url()).await, connect_patiently(&server.url()).await);
    let waiter = tokio::spawn(async move { ours.event("a").wait(GENEROUS).await });
    until("the waiter", async || waiting(&server, "event:a") == 1).await;
    proxy.set(Fault::HoldRequests);
    let (event, admin) = (direct.event("a"), direct.admin());
    event.send("go").await.unwrap();
    assert!(admin.delete(&admin.key("event", "a")).await.unwrap());
    assert!(!admin.delete(&admin.key("event", "a")).await.unwrap(), "it is deleted");
    assert_eq!(event.wait(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    event.send("anew").await.unwrap();
    proxy.set(Fault::None);
    assert_eq!(in_time("the message", waiter).await.unwrap().unwrap(), "go");
    assert_eq!(event.wait(Duration::ZERO).await.unwrap(), "anew");
}

/// What is kept of waiters whose process is gone is removed by later calls, a part by each.
#[tokio::test]
async fn waiters_that_never_ask_are_removed_in_parts() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    let (queue, rounds) = ("{event:a}:q", "{event:a}:z");
    let mut pipe = redis::pipe();
    for ticket in 1..=2_500 {
        pipe.zadd(queue, format!("{ticket:032x}"), ticket).ignore();
    }
    pipe.zadd(rounds, "2500 1 a message", 2_500).ignore();
    pipe.exec(&mut server.connection()).unwrap();
    let refused = async || locker.event("a").wait(Duration::ZERO).await.unwrap_err();
    for left in [1_500, 500, 0] {
        assert_eq!(refused().await.kind(), ErrorKind::TimedOut);
        assert_eq!(waiting(&server, "event:a"), left);
    }
    assert!(!server.ask::<bool>("EXISTS", &[rounds]));
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { locker.event("a").wait(GENEROUS).await }
    });
    until("the waiter", async || waiting(&server, "event:a") == 1).await;
    locker.event("a").send("go").await.unwrap();
    assert_eq!(in_time("the message", waiter).await.unwrap().unwrap(), "go");
}

/// They stayed as long as one waiter lived: 100,000 killed processes left 100,000 ids and channels.
#[tokio::test]
async fn dead_watchers_are_removed_while_one_lives() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect_patiently(&server.url()).await;
    let wait = |timeout| {
        let locker = locker.clone();
        tokio::spawn(async move { locker.event("a").wait(timeout).await })
    };
    let waiter = wait(GENEROUS);
    until("the waiter", async || waiting(&server, "event:a") == 1).await;
    let mut pipe = redis::pipe();
    for number in 1..=2_500 {
        pipe.zadd("{event:a}:q", format!("{number:032x}"), -number).ignore();
        pipe.zadd("{event:a}:e", format!("{number:032x}"), number).ignore();
        pipe.zadd("{event:a}:w", format!("locker:push:{number}"), number).ignore();
    }
    pipe.exec(&mut server.connection()).unwrap();
    let admin = locker.admin();
    let seen = admin.inspect(&admin.key("event", "a")).await.unwrap().unwrap();
    assert_eq!(seen.waiting, 1);
    let mut answered = 0;
    until("three waits that redis has answered in time", async || {
        let error = wait(Duration::from_millis(1)).await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unavailable), "{error}");
        answered += u32::from(error.kind() == ErrorKind::TimedOut);
        answered == 3
    })
    .await;
    until("the cancels", async || waiting(&server, "event:a") == 1).await;
    let channels: usize = server.ask("ZCARD", &["{event:a}:w"]);
    assert_eq!(channels, 1);
    let messages = commands_run(&server, |name| name == "publish");
    locker.event("a").send("go").await.unwrap();
    assert_eq!(in_time("the message", waiter).await.unwrap().unwrap(), "go");
    assert_eq!(commands_run(&server, |name| name == "publish") - messages, 1);
}
