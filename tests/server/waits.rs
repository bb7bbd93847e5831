//! Waiting: in order, with immediate wake-ups, abandoned without a trace.

use crate::support::{Server, in_time, rest, until};
use std::io::{Read, Write};

#[tokio::test]
async fn semaphore_slots_are_given_in_order() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=first").await.status, 200);
    let mut waiters = Vec::new();
    for number in 0..10 {
        let path = format!("/v1/semaphore/s/acquire?key=k{number}");
        waiters.push(server.queue(&path, "semaphore/s", number).await);
    }
    let mut holder = "first".to_owned();
    for waiter in waiters {
        assert_eq!(server.post(&format!("/v1/semaphore/s/release?key={holder}")).await.status, 204);
        holder = in_time("the next in line", waiter).await.unwrap().body;
    }
    assert_eq!(holder, "k9");
}

#[tokio::test]
async fn tokens_are_given_in_order() {
    let server = Server::start(&[]);
    let path = "/v1/tokenbucket/b/acquire?interval=150";
    assert_eq!(server.post(path).await.status, 204);
    let first = server.queue(path, "tokenbucket/b", 0).await;
    let second = tokio::spawn({
        let url = server.url(path);
        async move { crate::support::answer(crate::support::client().post(url)).await.status }
    });
    let started = std::time::Instant::now();
    assert_eq!(in_time("the first", first).await.unwrap().status, 204);
    let between = started.elapsed();
    assert_eq!(in_time("the second", second).await.unwrap(), 204);
    assert!(started.elapsed() > between);
}

#[tokio::test]
async fn a_larger_size_wakes_waiters() {
    let server = Server::start(&[]);
    for (kind, more) in [("semaphore", ""), ("tokenbucket", "&interval=3600000")] {
        let path = |size| format!("/v1/{kind}/n/acquire?size={size}{more}&maxwait=50000");
        assert!(server.post(&path(1)).await.status < 300);
        let waiter = server.queue(&path(1), &format!("{kind}/n"), 0).await;
        assert!(server.post(&path(3)).await.status < 300);
        assert!(in_time("the one woken", waiter).await.unwrap().status < 300, "{kind}");
    }
}

#[tokio::test]
async fn size_zero_blocks_all_callers() {
    let server = Server::start(&[]);
    for kind in ["semaphore", "tokenbucket"] {
        let path = |more| format!("/v1/{kind}/n/acquire?{more}");
        assert_eq!(server.post(&path("size=0&maxwait=0")).await.status, 408);
        assert_eq!(server.post(&path("size=0&maxwait=20")).await.status, 408);
        let waiter = server.queue(&path("size=0"), &format!("{kind}/n"), 0).await;
        assert!(server.post(&path("size=2")).await.status < 300);
        assert!(in_time("the one parked", waiter).await.unwrap().status < 300, "{kind}");
    }
}

#[tokio::test]
async fn a_smaller_semaphore_evicts_nobody() {
    let server = Server::start(&[]);
    for key in ["a", "b"] {
        assert_eq!(server.post(&format!("/v1/semaphore/s/acquire?size=2&key={key}")).await.status, 200);
    }
    let waiter = server.queue("/v1/semaphore/s/acquire?size=1&key=c", "semaphore/s", 0).await;
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 204);
    server.until_waiting("semaphore/s", 1).await;
    assert_eq!(server.post("/v1/semaphore/s/release?key=b").await.status, 204);
    assert_eq!(in_time("the slot", waiter).await.unwrap().body, "c");
}

#[tokio::test]
async fn send_reaches_all_waiters() {
    let server = Server::start(&[]);
    let mut waiters = Vec::new();
    for number in 0..20 {
        waiters.push(server.queue("/v1/event/e/wait", "event/e", number).await);
    }
    assert_eq!(server.post("/v1/event/e/send?message=now").await.status, 204);
    for waiter in waiters {
        assert_eq!(in_time("the event", waiter).await.unwrap().body, "now");
    }
}

#[tokio::test]
async fn expired_watchdog_reaches_all_waiters() {
    let server = Server::start(&[]);
    let waiters = [
        server.queue("/v1/watchdog/w/wait", "watchdog/w", 0).await,
        server.queue("/v1/watchdog/w/wait", "watchdog/w", 1).await,
    ];
    assert_eq!(server.post("/v1/watchdog/w/kick?expires=50").await.status, 204);
    for waiter in waiters {
        assert_eq!(in_time("the watchdog", waiter).await.unwrap().status, 204);
    }
}

#[tokio::test]
async fn deleting_a_name_ends_its_waits_with_409() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/semaphore/n/acquire").await.status, 200);
    assert_eq!(server.post("/v1/tokenbucket/n/acquire?interval=3600000").await.status, 204);
    for path in
        ["semaphore/n/acquire", "tokenbucket/n/acquire?interval=3600000", "event/n/wait", "watchdog/n/wait"]
    {
        let name = path.rsplit_once('/').unwrap().0;
        let waiter = server.queue(&format!("/v1/{path}"), name, 0).await;
        assert_eq!(server.delete(&format!("/v1/{name}")).await.status, 204);
        let ended = in_time("the end of the wait", waiter).await.unwrap();
        assert_eq!(
            (ended.status, ended.body.as_str()),
            (409, "the name was deleted during the wait"),
            "{path}"
        );
    }
}

/// A raw request that waits on its own connection.
async fn hanging(server: &Server, path: &str, more: &[u8], name: &str, number: u64) -> std::net::TcpStream {
    let mut stream = server.connect();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(more).unwrap();
    server.until_waiting(name, number).await;
    stream
}

#[tokio::test]
async fn disconnected_clients_take_nothing() {
    let server = Server::start(&[]);
    let next = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (pipelined, reset) in
        [(&b""[..], false), (&b""[..], true), (next, false), (next, true), (&b"rubbish"[..], false)]
    {
        assert_eq!(server.post("/v1/semaphore/s/acquire?key=k").await.status, 200);
        let waiter = hanging(&server, "/v1/semaphore/s/acquire", pipelined, "semaphore/s", 1).await;
        if reset {
            socket2::SockRef::from(&waiter).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        drop(waiter);
        server.until_waiting("semaphore/s", 0).await;
        assert_eq!(server.post("/v1/semaphore/s/release?key=k").await.status, 204);
        let free = server.post("/v1/semaphore/s/acquire?key=k&maxwait=0").await;
        assert_eq!(free.status, 200, "a disconnected client took the slot");
        assert_eq!(server.post("/v1/semaphore/s/release?key=k").await.status, 204);
    }
    let line = r#"locker_requests_total{call="semaphore/acquire",status="gone",transport="http"} 5"#;
    until("each is counted", async || server.get("/metrics").await.body.contains(line)).await;
}

/// A call that does not wait is carried out for a client that has gone. Only a deletion frees such a slot.
#[tokio::test]
async fn endless_hold_outlives_a_client_that_missed_it() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let request = "POST /v1/semaphore/s/acquire?expires=0&maxwait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    drop(client);
    let used = async || server.get("/v1/semaphore/s").await.body.contains("\"used\":1");
    until("the hold", used).await;
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 408);
    assert!(used().await);
    assert_eq!(server.delete("/v1/semaphore/s").await.status, 204);
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}

#[tokio::test]
async fn disconnected_waiter_does_not_delay_the_next() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/tokenbucket/b/acquire?interval=300").await.status, 204);
    let gone = hanging(&server, "/v1/tokenbucket/b/acquire?interval=300", b"", "tokenbucket/b", 1).await;
    let next = server.queue("/v1/tokenbucket/b/acquire?interval=300", "tokenbucket/b", 1).await;
    drop(gone);
    assert_eq!(in_time("a token", next).await.unwrap().status, 204);
    assert_eq!(server.post("/v1/tokenbucket/b/acquire?interval=300&maxwait=0").await.status, 408);
}

#[tokio::test]
async fn a_long_wait_gets_its_answer() {
    let server = Server::start(&["--header-timeout", "100ms"]);
    let mut waiter = hanging(&server, "/v1/event/e/wait", b"", "event/e", 1).await;
    let started = std::time::Instant::now();
    until("many header time-outs have passed", async || started.elapsed().as_millis() > 1000).await;
    assert_eq!(server.post("/v1/event/e/send?message=late").await.status, 204);
    let answer = rest(&mut waiter);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nlate"), "{answer}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(&[]);
    let next = b"GET /v1/event/e HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut waiter = hanging(&server, "/v1/event/e/wait", next, "event/e", 1).await;
    assert_eq!(server.post("/v1/event/e/send?message=one").await.status, 204);
    let answers = rest(&mut waiter);
    assert!(answers.find("\r\n\r\none").unwrap() < answers.find("\"sent\":true").unwrap(), "{answers}");
}

/// The end of the connection would stay behind bytes for which the server has no room.
#[tokio::test]
async fn many_unread_bytes_end_a_wait() {
    let server = Server::start(&[]);
    let requests = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500);
    let last = format!("{requests}GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut waiter = hanging(&server, "/v1/event/e/wait", last.as_bytes(), "event/e", 1).await;
    assert_eq!(server.post("/v1/event/e/send").await.status, 204);
    assert_eq!(rest(&mut waiter).matches("HTTP/1.1 20").count(), 502, "some are served after the wait");

    assert_eq!(server.post("/v1/lock/l/acquire").await.status, 200);
    let mut endless = hanging(&server, "/v1/lock/l/acquire", b"", "lock/l", 1).await;
    endless.set_nonblocking(true).unwrap();
    while endless.write(requests.as_bytes()).is_ok() {}
    server.until_waiting("lock/l", 0).await;
    endless.set_nonblocking(false).unwrap();
    assert_eq!(rest(&mut endless), "");
}

/// The body of a `GET` is ignored. It is not a request, even if it arrives while the call waits.
#[tokio::test]
async fn late_body_is_not_a_request() {
    let server = Server::start(&[]);
    for before in ["/healthz", "/nowhere"] {
        let mut stream = server.connect();
        write!(stream, "GET {before} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        // As long as its own head.
        let head = "GET /v1/event/e/wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70\r\n\r\n";
        assert_eq!(head.len(), 70);
        stream.write_all(head.as_bytes()).unwrap();
        server.until_waiting("event/e", 1).await;
        let body = format!("{:68}\r\n", "POST /v1/event/body/send HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(body.as_bytes()).unwrap();
        assert_eq!(server.post("/v1/event/e/send").await.status, 204);
        assert_eq!(rest(&mut stream).matches("HTTP/1.1 ").count(), 1, "{before}");
        assert_eq!(server.get("/v1/event/body").await.status, 404, "{before}");
        assert_eq!(server.delete("/v1/event/e").await.status, 204);
    }
}
