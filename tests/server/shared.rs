//! Several servers on one store share holds, tokens, order and notifications, and each continues without the others.

use crate::{
    stores::{Store, on_each_store},
    support::{Answer, in_time},
};
use locker_harness::Signal;
use std::time::Duration;

on_each_store!(
    slots_are_shared_between_servers,
    http_locks_exclude_the_library,
    repeated_lock_waits_share_one_hold,
    barriers_and_counters_are_shared,
    order_holds_across_servers,
    tokens_are_shared,
    events_reach_waiters_of_other_servers,
    cap_on_holds_is_shared,
    holds_outlive_a_restart,
    holds_outlive_their_killed_server,
    waiter_of_a_killed_server_is_skipped,
    caps_on_waits_refuse_only_waits,
);

async fn slots_are_shared_between_servers(store: &Store) {
    let [one, other] = store.two_servers();
    assert_eq!(one.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=b&maxwait=0").await.status, 408);
    let waiter = other.queue("/v1/semaphore/s/acquire?key=b", "semaphore/s", 0).await;
    assert_eq!(other.post("/v1/semaphore/s/release?key=a").await.status, 204, "released at the other one");
    let woken = in_time("the waiter", waiter).await.unwrap();
    assert_eq!((woken.status, woken.body.as_str()), (200, "b"));
    assert_eq!(one.post("/v1/semaphore/s/release?key=b").await.status, 204);
}

/// Clients of two servers and a Rust program on one store exclude each other.
async fn http_locks_exclude_the_library(store: &Store) {
    let [one, other] = store.two_servers();
    let locker = store.locker().await;
    let attribute = locker.lock_on("bank.withdraw", &[&6222, &100]);
    let key = locker.admin().key_on("bank.withdraw", &[&6222, &100]).as_str().replace('|', "%7C");
    for (name, request) in [("lock/l", locker.lock("l")), (&*format!("lock/by-key/{key}"), attribute)] {
        let call = |call: &str| format!("/v1/{name}/{call}");
        let guard = request.clone().acquire().await.unwrap();
        assert_eq!(one.post(&call("acquire?key=a&maxwait=0")).await.status, 408, "{name}");
        let first = one.queue(&call("acquire?key=a"), name, 0).await;
        let second = other.queue(&call("acquire?key=b"), name, 1).await;
        guard.release().await.unwrap();
        let first = in_time("the first", first).await.unwrap();
        assert_eq!((first.status, first.body.as_str()), (200, "a"));
        assert!(request.clone().try_acquire().await.unwrap().is_none(), "{name}");
        let again = other.post(&call("acquire?key=a")).await;
        assert_eq!(again.header("locker-fence"), first.header("locker-fence"), "the same hold");
        assert_eq!(other.post(&call("release?key=a")).await.status, 204, "at the other one");
        assert_eq!(in_time("the second", second).await.unwrap().body, "b");
        assert_eq!(one.post(&call("renew?key=b&expires=900000")).await.status, 204);
        assert_eq!(one.delete(&format!("/v1/{name}")).await.status, 204);
        assert_eq!(one.post(&call("release?key=b")).await.status, 409);
        request.try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
    }
}

/// One client waits at two servers under one key, as after a lost connection: either call gets the one hold, and the
/// end of the other one does not end it.
async fn repeated_lock_waits_share_one_hold(store: &Store) {
    let [one, other] = store.two_servers();
    for lost in [true, false] {
        assert_eq!(one.post("/v1/lock/l/acquire?key=a").await.status, 200);
        let first = one.queue("/v1/lock/l/acquire?key=b", "lock/l", 0).await;
        let second = other.queue("/v1/lock/l/acquire?key=b", "lock/l", 1).await;
        if lost {
            first.abort();
            other.until_waiting("lock/l", 1).await;
        }
        assert_eq!(one.post("/v1/lock/l/release?key=a").await.status, 204);
        let held = in_time("the second call", second).await.unwrap();
        if !lost {
            let first = in_time("the first call", first).await.unwrap();
            assert_eq!(first.header("locker-fence"), held.header("locker-fence"));
        }
        assert_eq!(one.post("/v1/lock/l/acquire?key=a&maxwait=0").await.status, 408);
        assert_eq!(one.post("/v1/lock/l/release?key=b").await.status, 204);
    }
}

async fn barriers_and_counters_are_shared(store: &Store) {
    let [one, other] = store.two_servers();
    let locker = store.locker().await;
    let waiter = one.queue("/barrier/b/wait?size=3", "barrier/b", 0).await;
    let barrier = locker.barrier("b", 3).once(true);
    let third = async {
        other.until_waiting("barrier/b", 2).await;
        other.get("/barrier/b/wait?size=3").await.status
    };
    let (passed, third) = tokio::join!(barrier.wait(Duration::from_mins(1)), third);
    passed.unwrap();
    assert_eq!((third, in_time("the first", waiter).await.unwrap().status), (204, 204));
    assert_eq!(one.get("/barrier/b/wait?size=3").await.status, 409);
    assert_eq!(one.get("/counter/c/count?amount=2").await.body, "2");
    assert_eq!(locker.counter("c").add(3).await.unwrap(), 5);
    assert_eq!(other.get("/counter/c/value").await.body, "5");
    assert_eq!(locker.latch("l", 2).count_down().await.unwrap(), 1);
    assert_eq!(other.post("/v1/latch/l/countdown?size=2").await.body, "0");
    let reader = locker.read_lock("r").acquire().await.unwrap();
    assert_eq!(one.post("/v1/rwlock/r/acquire?mode=write&maxwait=0").await.status, 408);
    assert_eq!(one.post("/v1/rwlock/r/acquire?mode=read&key=k&maxwait=0").await.status, 200);
    reader.release().await.unwrap();
}

async fn order_holds_across_servers(store: &Store) {
    let [one, other] = store.two_servers();
    assert_eq!(one.post("/v1/semaphore/s/acquire?key=first").await.status, 200);
    let mut waiters = Vec::new();
    for number in 0..10 {
        let server = if number % 2 == 0 { &one } else { &other };
        let path = format!("/v1/semaphore/s/acquire?key=k{number}");
        waiters.push(server.queue(&path, "semaphore/s", number).await);
    }
    let mut holder = "first".to_owned();
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(one.post(&format!("/v1/semaphore/s/release?key={holder}")).await.status, 204);
        holder = in_time("the next in line", waiter).await.unwrap().body;
        assert_eq!(holder, format!("k{number}"));
    }
}

async fn tokens_are_shared(store: &Store) {
    let [one, other] = store.two_servers();
    let path = "/v1/tokenbucket/b/acquire?size=3&interval=3600000&maxwait=0";
    let mut statuses = Vec::new();
    for server in [&one, &other, &one, &other, &one] {
        statuses.push(server.post(path).await.status);
    }
    assert_eq!(statuses, [204, 204, 204, 408, 408]);
}

async fn events_reach_waiters_of_other_servers(store: &Store) {
    let [one, other] = store.two_servers();
    let waiter = other.queue("/v1/event/e/wait", "event/e", 0).await;
    assert_eq!(one.post("/v1/event/e/send?message=now").await.status, 204);
    let told = in_time("the event", waiter).await.unwrap();
    assert_eq!((told.status, told.body.as_str()), (200, "now"));
    assert_eq!(other.post("/v1/event/e/send").await.status, 409);
}

/// Each server could otherwise grant as many as the cap.
async fn cap_on_holds_is_shared(store: &Store) {
    let options = ["--max-holds", "5"];
    let servers = [store.server(&options), store.server(&options)];
    let calls = (0..40).map(async |number| {
        servers[number % 2].post(&format!("/v1/semaphore/s/acquire?size=100&key=k{number}")).await.status
    });
    let statuses = futures_util::future::join_all(calls).await;
    let number = |status| statuses.iter().filter(|&&answered| answered == status).count();
    assert_eq!((number(200), number(429)), (5, 35), "{statuses:?}");
    let state = servers[0].get("/v1/semaphore/s").await.body;
    assert_eq!(state.matches("\"fence\"").count(), 5, "{state}");
}

/// A store without a server of its own keeps holds, too.
async fn holds_outlive_a_restart(store: &Store) {
    let holds = [
        "semaphore/s",
        "lock/l",
        "lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1",
        "rwlock/r",
    ];
    let fence = |answer: &Answer| answer.header("locker-fence").unwrap().parse::<u64>().unwrap();
    let mut killed = store.server(&[]);
    let mut granted = Vec::new();
    for hold in holds {
        granted.push(killed.post(&format!("/v1/{hold}/acquire?mode=write&key=a")).await);
    }
    killed.signal(Signal::KILL);
    killed.ended();
    let server = store.server(&[]);
    for (hold, granted) in holds.into_iter().zip(granted) {
        let (acquire, before) = (format!("/v1/{hold}/acquire?mode=write"), fence(&granted));
        assert_eq!(server.post(&format!("{acquire}&key=b&maxwait=0")).await.status, 408, "{hold}");
        assert_eq!(server.post(&format!("/v1/{hold}/renew?key=a")).await.status, 204, "{hold}");
        assert_eq!(fence(&server.post(&format!("{acquire}&key=a")).await), before, "{hold}");
        let waiter = server.queue(&format!("{acquire}&key=b"), hold, 0).await;
        assert_eq!(server.post(&format!("/v1/{hold}/release?key=a")).await.status, 204, "{hold}");
        let next = in_time("the waiter", waiter).await.unwrap();
        assert!(next.body == "b" && fence(&next) > before, "{hold}: {next:?}");
        assert_eq!(server.post(&format!("/v1/{hold}/renew?key=a")).await.status, 409, "{hold}");
    }
}

async fn holds_outlive_their_killed_server(store: &Store) {
    let [mut one, other] = store.two_servers();
    assert_eq!(one.post("/v1/semaphore/s/acquire?key=a&expires=1000").await.status, 200);
    assert_eq!(one.post("/v1/semaphore/t/acquire?key=a&expires=0").await.status, 200);
    one.signal(Signal::KILL);
    one.ended();
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=b").await.status, 200, "once the hold has expired");
    assert_eq!(other.post("/v1/semaphore/t/release?key=a").await.status, 204, "the key is all it takes");
}

async fn waiter_of_a_killed_server_is_skipped(store: &Store) {
    let [mut one, other] = store.two_servers();
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    let dead = one.queue("/v1/semaphore/s/acquire?key=dead", "semaphore/s", 0).await;
    let alive = other.queue("/v1/semaphore/s/acquire?key=alive", "semaphore/s", 1).await;
    one.signal(Signal::KILL);
    one.ended();
    assert!(dead.await.is_err(), "its connection broke");
    assert_eq!(other.post("/v1/semaphore/s/release?key=a").await.status, 204);
    assert_eq!(in_time("the one behind the dead one", alive).await.unwrap().body, "alive");
}

/// Each call takes a round trip to the store, but few of them wait.
async fn caps_on_waits_refuse_only_waits(store: &Store) {
    let caps = ["--max-waits-per-name", "1", "--max-waits", "2"];
    let server = store.server(&caps);
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    let waiter = server.queue("/v1/semaphore/s/acquire?key=b", "semaphore/s", 0).await;
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=c").await.status, 429);
    let event = server.queue("/v1/event/e/wait", "event/e", 0).await;
    let watchdog = server.post("/v1/watchdog/w/wait").await;
    assert_eq!((watchdog.status, watchdog.header("retry-after")), (503, Some("1")));
    for (path, status) in [
        ("semaphore/s/acquire?maxwait=0", 408),
        ("semaphore/s/renew?key=a", 204),
        ("semaphore/free/acquire?key=a", 200),
        ("tokenbucket/free/acquire", 204),
        ("watchdog/w/kick", 204),
        ("event/sent/send", 204),
        ("event/sent/wait", 204),
        ("event/e/send", 204),
    ] {
        assert_eq!(server.post(&format!("/v1/{path}")).await.status, status, "{path}");
    }
    assert_eq!(in_time("the event", event).await.unwrap().status, 204);
    let _event = server.queue("/v1/event/other/wait", "event/other", 0).await;
    assert_eq!(server.get("/v1").await.status, 200);
    assert_eq!(server.delete("/v1/semaphore/free").await.status, 204);
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 204);
    assert_eq!(in_time("the slot", waiter).await.unwrap().body, "b", "nothing refused stands in line");
    assert_eq!(server.post("/v1/semaphore/s/release?key=b").await.status, 204);
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}
