//! Servers whose store is distant, does not answer or is gone.

use crate::{
    stores::{Store, on_each_store},
    support::{Python, Server, answer, client, in_time, rest, until},
};
use futures_util::future::join_all;
use locker_harness::{Fault, RedisServer, SentinelSetup, Signal};
use std::{
    io::Write,
    net::Shutdown,
    time::{Duration, Instant},
};

on_each_store!(
    on etcd, postgres, redis:
    nonwaiting_calls_outlive_their_client,
    ending_server_removes_its_waiters,
    calls_without_store_end_within_seconds,
    server_recovers_when_its_store_is_back,
    waits_at_a_frozen_store_end_with_503,
    distant_store_is_not_unavailable,
);

/// The store is distant, so that the client disconnects before the reply.
async fn nonwaiting_calls_outlive_their_client(store: &Store) {
    let (network, far) = store.far();
    let (server, near) = (far.server(&[]), store.server(&[]));
    let send = |path: &str, pipelined: &str| {
        let mut stream = server.connect();
        let request = format!("POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n{pipelined}");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    assert_eq!(near.post("/v1/semaphore/s/acquire?key=k").await.status, 200);
    network.set(Fault::Delay(Duration::from_millis(30)));
    let mut half = send("semaphore/s/release?key=k", "");
    half.shutdown(Shutdown::Write).unwrap();
    let answer = rest(&mut half);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    for (name, pipelined) in [("alone", ""), ("pipelined", "GET /healthz HTTP/1.1\r\n")] {
        drop(send(&format!("event/{name}/send"), pipelined));
        let wait = format!("/v1/event/{name}/wait?maxwait=0");
        until("it is sent", async || near.get(&wait).await.status == 204).await;
    }
    let mut waiting = send("event/e/wait", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    near.until_waiting("event/e", 1).await;
    waiting.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut waiting), "", "which waits is ended without an answer");
    until("nobody waits", async || near.get("/v1/event/e").await.status == 404).await;
}

/// The client disconnects before the store's reply. Nobody else could end the hold. On the other stores a write may
/// need the reply to an earlier request, so that no hold begins while replies are lost.
#[tokio::test]
async fn disconnect_during_endless_acquire_holds_nothing() {
    let Some(store) = Store::redis() else { return };
    let (network, far) = store.far();
    let (server, near) = (far.server(&[]), store.server(&[]));
    // Afterwards the connection needs one request only.
    assert_eq!(server.post("/v1/semaphore/known/acquire?maxwait=0").await.status, 200);
    network.set(Fault::DropReplies);
    let mut client = server.connect();
    client.write_all(b"POST /v1/semaphore/s/acquire?expires=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let used =
        async |count: u32| near.get("/v1/semaphore/s").await.body.contains(&format!("\"used\":{count}"));
    until("the hold", async || used(1).await).await;
    drop(client);
    let gone = r#"locker_requests_total{call="semaphore/acquire",status="gone",transport="http"} 1"#;
    until("the disconnect", async || server.get("/metrics").await.body.contains(gone)).await;
    network.set(Fault::None);
    until("the end of the hold", async || !used(1).await).await;
    assert_eq!(near.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}

/// Replies arrive late: the server has to wait for them before it ends.
async fn ending_server_removes_its_waiters(store: &Store) {
    let (network, far) = store.far();
    let (mut ending, other) = (far.server(&[]), store.server(&[]));
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    let waiter = ending.queue("/v1/semaphore/s/acquire?key=b", "semaphore/s", 0).await;
    network.set(Fault::Delay(Duration::from_millis(200)));
    ending.signal(Signal::TERM);
    assert_eq!(in_time("the end of the wait", waiter).await.unwrap().status, 503);
    assert_eq!(ending.ended().code(), Some(0));
    assert!(other.get("/v1/semaphore/s").await.body.contains("\"waiting\":0"));
}

/// The times are those of docs/reference/server-options.md.
async fn calls_without_store_end_within_seconds(store: &Store) {
    let (network, far) = store.far();
    let server = far.server(&[]);
    network.set(Fault::Reset);
    let started = Instant::now();
    let mut asker = Python::start(&["relays", &server.zmq()]);
    asker.line();
    asker.tell("let me go");
    let call = async |method: &str, path: &str| {
        let request = client().request(method.parse().unwrap(), server.url(path));
        assert_eq!(answer(request).await.status, 503, "{method} {path}");
        started.elapsed()
    };
    let took = tokio::join!(
        call("POST", "/v1/semaphore/s/release?key=k"),
        call("POST", "/v1/semaphore/s/renew?key=k"),
        call("POST", "/v1/event/e/send"),
        call("POST", "/v1/watchdog/w/kick"),
        call("GET", "/v1/event/e"),
        call("DELETE", "/v1/event/e"),
    );
    for took in <[Duration; 6]>::from(took) {
        // The last pause between two tries is left out if no further try would fit.
        assert!((4..9).contains(&took.as_secs()), "{took:?}");
    }
    assert_eq!(asker.line(), "sorry");
}

async fn server_recovers_when_its_store_is_back(store: &Store) {
    let (network, far) = store.far();
    let server = far.server(&[]);
    assert_eq!(server.get("/readyz").await.status, 200);
    network.set(Fault::Reset);
    until("the loss to be noticed", async || server.get("/readyz").await.status == 503).await;
    assert_eq!(server.get("/healthz").await.status, 200, "the server itself is well");
    for kind in ["semaphore", "tokenbucket"] {
        for maxwait in [0, 300] {
            let path = format!("/v1/{kind}/s/acquire?maxwait={maxwait}");
            assert_eq!(server.post(&path).await.status, 503, "{path}");
        }
    }
    network.set(Fault::None);
    until("the store to be back", async || server.get("/readyz").await.status == 200).await;
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}

/// There may be many calls, and the log must stay readable.
#[tokio::test]
async fn missing_store_does_not_fill_the_log() {
    let Some(mut redis) = RedisServer::start() else { return };
    let server = Store::of(&redis).server(&[]);
    redis.kill();
    let started = Instant::now();
    let calls = (0..100)
        .map(async |number| server.post(&format!("/v1/semaphore/s{number}/acquire?maxwait=0")).await.status);
    assert_eq!(join_all(calls).await, [503; 100]);
    let told = server.errors().lines().filter(|line| line.contains("WARN locker_server")).count();
    let most = 1 + started.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&u64::try_from(told).unwrap()), "{}", server.errors());
}

/// Nothing was unanswered before the ends of the waits, which are those of docs/reference/server-options.md.
async fn waits_at_a_frozen_store_end_with_503(store: &Store) {
    let (network, far) = store.far();
    let server = far.server(&[]);
    let tokens = "tokenbucket/s/acquire?interval=3600000";
    for path in ["semaphore/s/acquire", tokens] {
        assert!(server.post(&format!("/v1/{path}")).await.status < 300);
    }
    let started = Instant::now();
    let mut waiters = Vec::new();
    for path in ["semaphore/s/acquire?key=k", tokens, "event/s/wait?", "watchdog/s/wait?"] {
        let (name, _) = path.rsplit_once('/').unwrap();
        waiters.push(server.queue(&format!("/v1/{path}&maxwait=2000"), name, 0).await);
    }
    network.set(Fault::HoldRequests);
    for waiter in waiters {
        let ended = in_time("the end of the wait", waiter).await.unwrap();
        assert_eq!((ended.status, ended.body.as_str()), (503, "the store is unavailable"));
    }
    assert!(started.elapsed() >= Duration::from_secs(2));
    network.set(Fault::None);
    for name in ["semaphore/s", "tokenbucket/s"] {
        server.until_waiting(name, 0).await;
    }
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=k&maxwait=0").await.status, 408, "it is still held");
}

/// A short `maxwait` must not give a worse result than `maxwait=0`, however long a round trip takes.
async fn distant_store_is_not_unavailable(store: &Store) {
    let (network, far) = store.far();
    network.set(Fault::Delay(Duration::from_millis(30)));
    let server = far.server(&[]);
    for maxwait in [0, 1, 20] {
        for (call, status) in [("semaphore/s/acquire?size=9", 200), ("tokenbucket/b/acquire?size=9", 204)] {
            let answer = server.post(&format!("/v1/{call}&maxwait={maxwait}")).await;
            assert_eq!(answer.status, status, "{call}, {maxwait}: {}", answer.body);
        }
        for call in ["semaphore/full/acquire?size=0", "event/e/wait?id=x"] {
            let answer = server.post(&format!("/v1/{call}&maxwait={maxwait}")).await;
            assert_eq!(answer.status, 408, "{call}, {maxwait}: {}", answer.body);
        }
    }
}

/// The replicas have the hold and the place of the waiter.
#[tokio::test]
async fn holds_and_waits_of_clients_survive_a_failover() {
    let Some(setup) = SentinelSetup::start() else { return };
    let server = Server::start(&["--store", &setup.url()]);
    assert_eq!(server.post("/v1/lock/a/acquire?key=one&expires=60000").await.status, 200);
    let waiter = server.queue("/v1/lock/a/acquire?key=two&expires=60000", "lock/a", 0).await;
    let place = |redis: &RedisServer| {
        (redis.ask::<Option<String>>("GET", &["lock:a"]), redis.ask::<u64>("ZCARD", &["{lock:a}:q"]))
    };
    let [old, replicas @ ..] = setup.servers() else { unreachable!("three servers") };
    let known = place(old);
    assert!(known.0.is_some() && known.1 == 1, "{known:?}");
    until("both at the replicas", async || replicas.iter().all(|replica| place(replica) == known)).await;
    let new = &setup.servers()[setup.fail_over()];
    let probe = async || server.post("/v1/lock/probe/acquire?key=me&expires=1000&maxwait=0").await.status;
    until("a lock at the new master", async || {
        probe().await == 200 && new.ask::<u64>("EXISTS", &["lock:probe"]) == 1
    })
    .await;
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(place(new).0, known.0);
    assert_eq!(server.post("/v1/lock/a/renew?key=one&expires=60000").await.status, 204);
    assert_eq!(server.post("/v1/lock/a/release?key=one").await.status, 204);
    assert_eq!(in_time("the waiter", waiter).await.unwrap().status, 200);
    assert_eq!(server.post("/v1/lock/a/release?key=two").await.status, 204);
}
