//! Several servers on one Redis share holds, tokens, order and notifications, and each continues without the
//! others.

use crate::support::{Python, Server, answer, client, in_time, rest, until};
use locker_harness::{Fault, Proxy, RedisServer, Signal};
use std::{
    io::Write,
    net::Shutdown,
    time::{Duration, Instant},
};

/// Starts two servers and their shared Redis. Returns `None` if no Redis is available.
fn two() -> Option<(RedisServer, Server, Server)> {
    let redis = RedisServer::start()?;
    let (one, other) = (on(&redis), on(&redis));
    Some((redis, one, other))
}

fn on(redis: &RedisServer) -> Server {
    Server::start(&["--store", &redis.url()])
}

#[tokio::test]
async fn slots_are_shared_between_servers() {
    let Some((_redis, one, other)) = two() else { return };
    assert_eq!(one.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=b&maxwait=0").await.status, 408);
    let waiter = other.queue("/v1/semaphore/s/acquire?key=b", "semaphore/s", 0).await;
    assert_eq!(other.post("/v1/semaphore/s/release?key=a").await.status, 204, "released at the other one");
    let woken = in_time("the waiter", waiter).await.unwrap();
    assert_eq!((woken.status, woken.body.as_str()), (200, "b"));
    assert_eq!(one.post("/v1/semaphore/s/release?key=b").await.status, 204);
}

#[tokio::test]
async fn order_holds_across_servers() {
    let Some((_redis, one, other)) = two() else { return };
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

#[tokio::test]
async fn tokens_are_shared() {
    let Some((_redis, one, other)) = two() else { return };
    let path = "/v1/tokenbucket/b/acquire?size=3&interval=3600000&maxwait=0";
    let mut statuses = Vec::new();
    for server in [&one, &other, &one, &other, &one] {
        statuses.push(server.post(path).await.status);
    }
    assert_eq!(statuses, [204, 204, 204, 408, 408]);
}

#[tokio::test]
async fn events_reach_waiters_of_other_servers() {
    let Some((_redis, one, other)) = two() else { return };
    let waiter = other.queue("/v1/event/e/wait", "event/e", 0).await;
    assert_eq!(one.post("/v1/event/e/send?message=now").await.status, 204);
    let told = in_time("the event", waiter).await.unwrap();
    assert_eq!((told.status, told.body.as_str()), (200, "now"));
    assert_eq!(other.post("/v1/event/e/send").await.status, 409);
}

#[tokio::test]
async fn holds_outlive_their_killed_server() {
    let Some((_redis, mut one, other)) = two() else { return };
    assert_eq!(one.post("/v1/semaphore/s/acquire?key=a&expires=1000").await.status, 200);
    assert_eq!(one.post("/v1/semaphore/t/acquire?key=a&expires=0").await.status, 200);
    one.signal(Signal::KILL);
    one.ended();
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=b").await.status, 200, "once the hold has expired");
    assert_eq!(other.post("/v1/semaphore/t/release?key=a").await.status, 204, "the key is all it takes");
}

#[tokio::test]
async fn waiter_of_a_killed_server_is_skipped() {
    let Some((_redis, mut one, other)) = two() else { return };
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    let dead = one.queue("/v1/semaphore/s/acquire?key=dead", "semaphore/s", 0).await;
    let alive = other.queue("/v1/semaphore/s/acquire?key=alive", "semaphore/s", 1).await;
    one.signal(Signal::KILL);
    one.ended();
    assert!(dead.await.is_err(), "its connection broke");
    assert_eq!(other.post("/v1/semaphore/s/release?key=a").await.status, 204);
    assert_eq!(in_time("the one behind the dead one", alive).await.unwrap().body, "alive");
}

/// Each call takes a round trip to Redis, but few of them wait.
#[tokio::test]
async fn caps_on_waits_refuse_only_waits() {
    let Some(redis) = RedisServer::start() else { return };
    let caps = ["--max-waits-per-name", "1", "--max-waits", "2"];
    let server = Server::start(&[&["--store", &redis.url()][..], &caps].concat());
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

/// The store is distant, so that the client disconnects before the reply.
#[tokio::test]
async fn nonwaiting_calls_outlive_their_client() {
    let Some(redis) = RedisServer::start() else { return };
    let far = Proxy::to(redis.port());
    let (server, near) = (Server::start(&["--store", &far.url()]), on(&redis));
    let send = |path: &str, pipelined: &str| {
        let mut stream = server.connect();
        let request = format!("POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n{pipelined}");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    assert_eq!(near.post("/v1/semaphore/s/acquire?key=k").await.status, 200);
    far.set(Fault::Delay(Duration::from_millis(30)));
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

/// Replies arrive late: the server has to wait for them before it ends.
#[tokio::test]
async fn ending_server_removes_its_waiters() {
    let Some(redis) = RedisServer::start() else { return };
    let far = Proxy::to(redis.port());
    let (mut ending, other) = (Server::start(&["--store", &far.url()]), on(&redis));
    assert_eq!(other.post("/v1/semaphore/s/acquire?key=a").await.status, 200);
    let waiter = ending.queue("/v1/semaphore/s/acquire?key=b", "semaphore/s", 0).await;
    far.set(Fault::Delay(Duration::from_millis(200)));
    ending.signal(Signal::TERM);
    assert_eq!(in_time("the end of the wait", waiter).await.unwrap().status, 503);
    assert_eq!(ending.ended().code(), Some(0));
    assert!(other.get("/v1/semaphore/s").await.body.contains("\"waiting\":0"));
}

/// Redis remembers such names for another minute.
#[tokio::test]
async fn names_of_expired_holds_are_not_in_use() {
    let Some(redis) = RedisServer::start() else { return };
    let server = Server::start(&["--store", &redis.url(), "--max-names", "1"]);
    assert_eq!(server.post("/v1/semaphore/s/acquire?expires=50").await.status, 200);
    until("another name may be used", async || {
        server.post("/v1/semaphore/t/acquire?expires=50").await.status == 200
    })
    .await;
    until("no name is in use", async || server.get("/v1").await.body == "[]").await;
}

/// The times are those of docs/server.md.
#[tokio::test]
async fn calls_without_store_end_within_seconds() {
    let Some(mut redis) = RedisServer::start() else { return };
    let server = on(&redis);
    redis.kill();
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

#[tokio::test]
async fn server_recovers_when_its_store_is_back() {
    let Some(mut redis) = RedisServer::start() else { return };
    let server = on(&redis);
    assert_eq!(server.get("/readyz").await.status, 200);
    redis.kill();
    until("the loss to be noticed", async || server.get("/readyz").await.status == 503).await;
    assert_eq!(server.get("/healthz").await.status, 200, "the server itself is well");
    for kind in ["semaphore", "tokenbucket"] {
        for maxwait in [0, 300] {
            let path = format!("/v1/{kind}/s/acquire?maxwait={maxwait}");
            assert_eq!(server.post(&path).await.status, 503, "{path}");
        }
    }
    redis.restart();
    until("the store to be back", async || server.get("/readyz").await.status == 200).await;
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}

/// There may be many calls, and the log must stay readable.
#[tokio::test]
async fn missing_store_does_not_fill_the_log() {
    let Some(mut redis) = RedisServer::start() else { return };
    let server = on(&redis);
    redis.kill();
    let started = Instant::now();
    let calls = (0..100)
        .map(async |number| server.post(&format!("/v1/semaphore/s{number}/acquire?maxwait=0")).await.status);
    assert_eq!(futures_util::future::join_all(calls).await, [503; 100]);
    let told = server.errors().lines().filter(|line| line.contains("WARN locker_server")).count();
    let most = 1 + started.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&u64::try_from(told).unwrap()), "{}", server.errors());
}

/// A short `maxwait` must not give a worse result than `maxwait=0`, however long a round trip takes.
#[tokio::test]
async fn distant_store_is_not_unavailable() {
    let Some(redis) = RedisServer::start() else { return };
    let far = Proxy::to(redis.port());
    far.set(Fault::Delay(Duration::from_millis(30)));
    let server = Server::start(&["--store", &far.url()]);
    for maxwait in [0, 1, 20] {
        for (call, status) in [("semaphore/s/acquire?size=9", 200), ("tokenbucket/b/acquire?size=9", 204)] {
            assert_eq!(server.post(&format!("/v1/{call}&maxwait={maxwait}")).await.status, status, "{call}");
        }
        for call in ["semaphore/full/acquire?size=0", "event/e/wait?id=x"] {
            assert_eq!(server.post(&format!("/v1/{call}&maxwait={maxwait}")).await.status, 408, "{call}");
        }
    }
}
