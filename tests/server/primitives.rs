//! Locks, read/write locks, elections, barriers, latches and counters over HTTP, and what the server counts.

use crate::support::{Server, in_time};
use serde_json::Value;
use std::io::Write;

async fn json(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.get(path).await.body).unwrap()
}

#[tokio::test]
async fn lock_is_held_under_one_key() {
    let server = Server::start(&[]);
    let held = server.post("/v1/lock/l/acquire?key=a").await;
    assert_eq!((held.status, held.body.as_str()), (200, "a"));
    let fence = held.header("locker-fence").unwrap().to_owned();
    let again = server.post("/v1/lock/l/acquire?key=a&expires=900000&maxwait=0").await;
    assert_eq!((again.status, again.header("locker-fence")), (200, Some(fence.as_str())));
    let state = json(&server, "/v1/lock/l").await;
    let holders = state["holders"].as_array().unwrap();
    assert_eq!((holders.len(), holders[0]["fence"].to_string()), (1, fence));
    assert!(holders[0]["time_left"].as_u64().unwrap() <= 60_000, "the expiry stays: {state}");
    assert_eq!(server.post("/v1/lock/l/acquire?key=b&maxwait=0").await.status, 408);
    assert_eq!(server.post("/v1/lock/l/acquire?key=b&maxwait=20").await.status, 408);
    for call in ["release?key=b", "renew?key=b"] {
        assert_eq!(server.post(&format!("/v1/lock/l/{call}")).await.status, 409, "{call}");
    }
    assert_eq!(server.post("/v1/lock/l/renew?key=a&expires=900000").await.status, 204);
    assert!(json(&server, "/v1/lock/l").await["holders"][0]["time_left"].as_u64().unwrap() > 800_000);
    assert_eq!(server.post("/v1/lock/l/release?key=a").await.status, 204);
    assert_eq!(server.post("/v1/lock/l/release?key=a").await.status, 409);
    let next = server.post("/v1/lock/l/acquire?expires=20").await;
    assert_eq!((next.status, next.body.len()), (200, 36), "a UUID");
    assert_eq!(server.post("/v1/lock/l/acquire?key=b").await.body, "b", "once the hold has expired");
}

#[tokio::test]
async fn endless_locks_are_refused_by_name() {
    let server = Server::start(&[]);
    for path in [
        "lock/l/acquire?expires=0",
        "lock/l/renew?key=k&expires=0",
        "rwlock/l/acquire?mode=read&expires=0",
        "leader/l/acquire?expires=0",
    ] {
        let refused = server.post(&format!("/v1/{path}")).await;
        assert!(
            refused.status == 400 && refused.body.contains("a lock always ends"),
            "{path}: {}",
            refused.body
        );
    }
    let decades = server.post("/v1/lock/l/acquire?expires=9223372036854775807").await;
    assert_eq!(decades.status, 200);
    let left = json(&server, "/v1/lock/l").await["holders"][0]["time_left"].as_u64().unwrap();
    assert!(left > 300_000_000_000, "10 years: {left}");
}

#[tokio::test]
async fn lock_is_passed_on_in_order() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/lock/l/acquire?key=first").await.status, 200);
    let mut waiters = Vec::new();
    for number in 0..8 {
        waiters.push(server.queue(&format!("/v1/lock/l/acquire?key=k{number}"), "lock/l", number).await);
    }
    let mut holder = "first".to_owned();
    for waiter in waiters {
        assert_eq!(server.post(&format!("/v1/lock/l/release?key={holder}")).await.status, 204);
        holder = in_time("the next in line", waiter).await.unwrap().body;
    }
    assert_eq!(holder, "k7");
}

/// A client that disconnects while it waits takes nothing, and nothing from another call under its key.
#[tokio::test]
async fn disconnected_lock_waiters_take_nothing() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/lock/l/acquire?key=a").await.status, 200);
    let mut gone = server.connect();
    gone.write_all(b"POST /v1/lock/l/acquire?key=b HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    server.until_waiting("lock/l", 1).await;
    let stays = server.queue("/v1/lock/l/acquire?key=b", "lock/l", 1).await;
    drop(gone);
    server.until_waiting("lock/l", 1).await;
    assert_eq!(server.post("/v1/lock/l/release?key=a").await.status, 204);
    assert_eq!(in_time("the other call", stays).await.unwrap().body, "b");
    assert_eq!(server.post("/v1/lock/l/acquire?key=a&maxwait=0").await.status, 408);
    assert_eq!(server.post("/v1/lock/l/release?key=b").await.status, 204);
    assert_eq!(server.post("/v1/lock/l/acquire?key=a&maxwait=0").await.status, 200);
}

#[tokio::test]
async fn readers_share_and_a_writer_is_alone() {
    let server = Server::start(&[]);
    let take = async |mode, key| {
        server.post(&format!("/v1/rwlock/r/acquire?mode={mode}&key={key}&maxwait=0")).await.status
    };
    assert_eq!([take("read", "a").await, take("read", "b").await, take("write", "c").await], [200, 200, 408]);
    let state = json(&server, "/v1/rwlock/r").await;
    assert_eq!((&state["holders"][1]["mode"], &state["size"]), (&"read".into(), &Value::Null), "{state}");
    let writer = server.queue("/v1/rwlock/r/acquire?mode=write&key=c", "rwlock/r", 0).await;
    assert_eq!(take("read", "d").await, 408, "behind the writer");
    for key in ["a", "b"] {
        assert_eq!(server.post(&format!("/v1/rwlock/r/release?key={key}")).await.status, 204);
    }
    assert_eq!(in_time("the writer", writer).await.unwrap().body, "c");
    assert_eq!(json(&server, "/v1/rwlock/r").await["holders"][0]["mode"], "write");
    assert_eq!(server.post("/v1/rwlock/r/renew?key=c&expires=5000").await.status, 204);
    assert_eq!(take("read", "d").await, 408);
    assert_eq!(server.post("/v1/rwlock/r/release?key=c").await.status, 204);
}

#[tokio::test]
async fn one_client_leads_at_a_time() {
    let server = Server::start(&[]);
    let held = server.post("/v1/leader/l/acquire?key=a").await;
    assert_eq!((held.status, held.body.as_str()), (200, "a"));
    let fence: u64 = held.header("locker-fence").unwrap().parse().unwrap();
    let again = server.post("/v1/leader/l/acquire?key=a&maxwait=0").await;
    assert_eq!((again.status, again.header("locker-fence")), (200, held.header("locker-fence")));
    assert_eq!(server.post("/v1/leader/l/acquire?key=b&maxwait=0").await.status, 408);
    assert_eq!(server.post("/v1/lock/l/acquire?key=b&maxwait=0").await.status, 200, "another name");
    assert_eq!(server.post("/v1/leader/l/renew?key=a&expires=900000").await.status, 204);
    let state = json(&server, "/v1/leader/l").await;
    let (kind, holder) = (&state["kind"], &state["holders"][0]);
    assert_eq!((kind, &holder["fence"], &state["waiting"]), (&"leader".into(), &fence.into(), &0.into()));
    assert!(holder["time_left"].as_u64().unwrap() > 800_000, "{state}");
    let next = server.queue("/v1/leader/l/acquire?key=b", "leader/l", 0).await;
    assert_eq!(server.delete(&format!("/v1/leader/l?fence={}", fence - 1)).await.status, 409);
    assert_eq!(server.delete(&format!("/v1/leader/l?fence={fence}")).await.status, 204);
    let next = in_time("the next leader", next).await.unwrap();
    assert_eq!(next.body, "b");
    assert!(next.header("locker-fence").unwrap().parse::<u64>().unwrap() > fence);
    for call in ["renew?key=a", "release?key=a"] {
        assert_eq!(server.post(&format!("/v1/leader/l/{call}")).await.status, 409, "{call}");
    }
    assert_eq!(server.post("/v1/leader/l/release?key=b").await.status, 204);
    let counts = json(&server, "/v1/leader/l/stats").await;
    assert_eq!((&counts["acquired"], &counts["timed_out"]), (&2.into(), &1.into()), "{counts}");
}

/// Otherwise a path of a lock would reach other kinds, and two paths would be one lock.
#[tokio::test]
async fn key_of_a_name_is_no_lock_by_key() {
    let server = Server::start(&["--prefix", "app/"]);
    let lock = "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1";
    assert_eq!(server.post(&format!("/v1/semaphore/{lock}/acquire?key=a")).await.status, 200);
    let by_key = format!("/v1/lock/by-key/app%2Fsemaphore:{lock}");
    assert_eq!(server.delete(&by_key).await.status, 400);
    for path in ["", "/stats", "/acquire", "/release?key=a", "/renew?key=a"] {
        let refused = server.get(&format!("{by_key}{path}")).await;
        assert!(refused.status == 400 && refused.body.contains("belongs to a name"), "{path}: {refused:?}");
    }
    assert_eq!(server.post(&format!("/v1/lock/by-key/app%2F{lock}/acquire")).await.status, 200);
    let refused = server.post("/v1/lock/by%2Dkey/acquire").await;
    assert_eq!((refused.status, &*refused.body), (400, "a lock cannot be called by-key"));
}

/// As with bouncer: two by default, and never again until the name is deleted.
#[tokio::test]
async fn barrier_opens_once() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/barrier/b/wait?maxwait=0").await.status, 408);
    let first = server.queue("/barrier/b/wait", "barrier/b", 0).await;
    assert_eq!(server.get("/barrier/b/wait").await.status, 204);
    assert_eq!(in_time("the first", first).await.unwrap().status, 204);
    let late = server.get("/barrier/b/wait?size=1").await;
    assert_eq!((late.status, late.body.is_empty()), (409, false));
    let state = json(&server, "/v1/barrier/b").await;
    assert_eq!((&state["open"], &state["waiting"]), (&true.into(), &0.into()));
    assert_eq!(server.delete("/barrier/b").await.status, 204);
    assert_eq!(server.get("/barrier/b/wait?maxwait=0").await.status, 408);
    let waiter = server.queue("/barrier/b/wait?size=3", "barrier/b", 0).await;
    assert_eq!(server.delete("/barrier/b").await.status, 204);
    assert_eq!(in_time("the end of the wait", waiter).await.unwrap().status, 409);
}

#[tokio::test]
async fn latch_opens_when_it_is_counted_down() {
    let server = Server::start(&[]);
    let waiter = server.queue("/v1/latch/l/wait?size=2", "latch/l", 0).await;
    let down = async || server.post("/v1/latch/l/countdown?size=2").await.body;
    assert_eq!(down().await, "1");
    assert_eq!(server.post("/v1/latch/l/wait?size=2&maxwait=0").await.status, 408);
    assert_eq!(json(&server, "/v1/latch/l").await["open"], false);
    assert_eq!([down().await, down().await], ["0", "0"]);
    assert_eq!(in_time("the latch", waiter).await.unwrap().status, 204);
    assert_eq!(server.post("/v1/latch/l/wait?size=2&maxwait=0").await.status, 204);
    let state = json(&server, "/v1/latch/l").await;
    assert_eq!((&state["open"], &state["size"]), (&true.into(), &2.into()));
}

#[tokio::test]
async fn counter_counts_and_is_reset() {
    let server = Server::start(&[]);
    let get = async |call: &str| {
        let answer = server.get(&format!("/counter/c/{call}")).await;
        (answer.status, answer.body)
    };
    let value = |number: i64| (200, number.to_string());
    assert_eq!(get("value").await, value(0));
    assert_eq!(get("count").await, value(1));
    assert_eq!(get("count?amount=5").await, value(6));
    assert_eq!(get("count?amount=-10").await, value(-4));
    assert_eq!(get("value").await, value(-4));
    assert_eq!(json(&server, "/v1/counter/c").await["value"], -4);
    assert_eq!(get("reset?value=9007199254740991").await, (204, String::new()));
    assert_eq!(get("count").await.0, 409, "beyond 2^53-1");
    assert_eq!(get("count?amount=9007199254740992").await.0, 400);
    assert_eq!(get("reset").await.0, 204);
    assert_eq!(get("value").await, value(0));
}

#[tokio::test]
async fn names_of_all_kinds_are_listed_and_deleted() {
    let server = Server::start(&[]);
    let calls = [
        ("lock", "acquire"),
        ("rwlock", "acquire?mode=write"),
        ("leader", "acquire"),
        ("once", "begin?keep=1000"),
        ("barrier", "wait?size=1"),
        ("latch", "countdown?size=2"),
        ("counter", "count"),
    ];
    for (kind, call) in calls {
        assert!(server.post(&format!("/v1/{kind}/n/{call}")).await.status < 300, "{kind}");
    }
    let listed = json(&server, "/v1").await;
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(listed, ["barrier", "counter", "latch", "leader", "lock", "once", "rwlock"]);
    for (kind, _) in calls {
        assert_eq!(server.get(&format!("/v1/{kind}/n")).await.status, 200, "{kind}");
        assert_eq!(server.delete(&format!("/v1/{kind}/n")).await.status, 204, "{kind}");
        assert_eq!(server.delete(&format!("/v1/{kind}/n")).await.status, 404, "{kind}");
    }
    assert_eq!(server.get("/v1").await.body, "[]");
}

#[tokio::test]
async fn stats_have_the_fields_of_bouncer() {
    let server = Server::start(&[]);
    let stats = async |kind: &str| json(&server, &format!("/{kind}/n/stats")).await;
    let counted = |stats: &Value, expected: &[(&str, i64)]| {
        for (field, number) in expected {
            assert_eq!(stats[*field], *number, "{field} in {stats}");
        }
        assert!(stats["created_at"].as_str().unwrap().ends_with('Z'), "{stats}");
    };
    for kind in ["tokenbucket", "semaphore", "event", "watchdog", "counter", "barrier", "lock", "leader"] {
        assert_eq!(server.get(&format!("/{kind}/n/stats")).await.status, 404, "{kind}");
    }
    for query in ["size=2&key=a", "size=2&key=a", "size=2&key=b", "size=2&key=c&maxwait=0"] {
        server.get(&format!("/semaphore/n/acquire?{query}")).await;
    }
    server.get("/semaphore/n/release?key=a").await;
    server.get("/semaphore/n/release?key=unknown").await;
    server.get("/semaphore/n/acquire?size=2&key=short&expires=1").await;
    server.get("/semaphore/n/acquire?size=2&key=d&maxwait=5000").await;
    assert_eq!(server.get("/semaphore/n/release?key=short").await.status, 409);
    let expected = [
        ("acquired", 4),
        ("reacquired", 1),
        ("released", 3),
        ("expired", 1),
        ("timed_out", 1),
        ("max_ever_held", 2),
    ];
    let semaphore = stats("semaphore").await;
    counted(&semaphore, &expected);
    assert!(semaphore["total_wait_time"].is_u64() && semaphore["average_wait_time"].is_f64(), "{semaphore}");
    for _ in 0..3 {
        server.get("/tokenbucket/n/acquire?size=2&interval=3600000&maxwait=0").await;
    }
    counted(&stats("tokenbucket").await, &[("acquired", 2), ("timed_out", 1)]);
    server.get("/event/n/wait?maxwait=0").await;
    server.get("/event/n/send").await;
    server.get("/event/n/send").await;
    server.get("/event/n/wait").await;
    counted(&stats("event").await, &[("waited", 1), ("timed_out", 1), ("triggered", 1)]);
    server.get("/watchdog/n/wait?maxwait=0").await;
    let idle = stats("watchdog").await;
    counted(&idle, &[("waited", 0), ("timed_out", 1), ("kicks", 0)]);
    assert_eq!(idle["last_kick"], "");
    server.get("/watchdog/n/kick").await;
    assert!(stats("watchdog").await["last_kick"].as_str().unwrap().ends_with('Z'));
    server.get("/counter/n/count?amount=7").await;
    server.get("/counter/n/count").await;
    counted(&stats("counter").await, &[("value", 8), ("increments", 2), ("resets", 0)]);
    server.get("/barrier/n/wait?size=1").await;
    counted(&stats("barrier").await, &[("size", 1), ("waiting", 0), ("total_waited", 1), ("triggered", 1)]);
    server.post("/v1/lock/n/acquire?key=a&expires=1").await;
    server.post("/v1/lock/n/acquire?key=b&size=9").await;
    let expected = [("acquired", 2), ("released", 0), ("expired", 1), ("max_ever_held", 1)];
    counted(&stats("lock").await, &expected);
    for key in ["a", "b", "c"] {
        server.post(&format!("/v1/rwlock/n/acquire?mode=read&key={key}")).await;
    }
    counted(&stats("rwlock").await, &[("acquired", 3), ("max_ever_held", 3)]);
    assert_eq!(server.delete("/semaphore/n").await.status, 204);
    assert_eq!(server.get("/semaphore/n/stats").await.status, 404);
}

#[tokio::test]
async fn bouncers_ready_path_is_answered() {
    let server = Server::start(&[]);
    let ready = server.get("/.well-known/ready").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "I'm ready!\n"));
    assert_eq!(server.post("/.well-known/ready").await.status, 405);
}
