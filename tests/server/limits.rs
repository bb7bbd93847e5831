//! Malformed input, and each cap.

use crate::support::{GENEROUS, Server, answer, client, rest, until};
use std::{
    io::Write,
    time::{Duration, Instant},
};

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn malformed_queries_are_400_with_a_reason() {
    let server = Server::start(&[]);
    for query in [
        "size=",
        "size",
        "size=-1",
        "size=x",
        "size=1.0",
        "size=18446744073709551615",
        "size=9223372036854775808",
        "size=1&SIZE=1",
        "interval=0",
        "interval=-1",
        "unknown=1",
        "token=x",
        "=",
        "size=%",
        "size=%zz",
        "key=%FF",
        "maxwait=9223372036854775808",
        "maxwait=1e3",
        "expires=0x10",
        "size=1;key=2",
    ] {
        let answer = server.get(&format!("/v1/tokenbucket/b/acquire?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(!answer.body.is_empty() && !answer.body.contains('\n'), "{query}: {}", answer.body);
    }
    for query in ["expires=-1", "expires=-9223372036854775808"] {
        assert_eq!(server.get(&format!("/v1/semaphore/s/acquire?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(server.get("/v1/watchdog/w/kick?expires=0").await.status, 400);
    assert_eq!(server.get("/v1/semaphore/s/release").await.status, 400);
    assert_eq!(
        server.get("/v1/tokenbucket/b/acquire?&&size=1&&").await.status,
        204,
        "empty pairs are nothing"
    );
    assert_eq!(
        server.get("/v1").await.body,
        r#"[{"kind":"tokenbucket","name":"b","key":"rate:b"}]"#,
        "and nothing else was done"
    );
}

#[tokio::test]
async fn malformed_requests_count_for_their_path() {
    let server = Server::start(&[]);
    for (path, status) in [
        ("/v1/tokenbucket/b/acquire?nonsense=1", 400),
        ("/v1/event/%00/wait", 400),
        ("/v1/event/%00", 400),
        ("/v1?nonsense=1", 400),
        ("/v1/nothing", 404),
    ] {
        assert_eq!(server.get(path).await.status, status, "{path}");
    }
    assert_eq!(server.delete("/v1/watchdog/w/kick").await.status, 405);
    assert_eq!(server.delete("/v1/event/%00").await.status, 400);
    let metrics = server.get("/metrics").await.body;
    for (call, status) in [
        ("tokenbucket/acquire", 400),
        ("event/wait", 400),
        ("show", 400),
        ("list", 400),
        ("none", 404),
        ("watchdog/kick", 405),
        ("delete", 400),
    ] {
        let line = format!(r#"locker_requests_total{{call="{call}",status="{status}",transport="http"}} 1"#);
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn the_largest_numbers_are_taken() {
    let server = Server::start(&[]);
    let most = i64::MAX;
    let all = format!("size={most}&interval={most}&maxwait={most}&expires={most}");
    for (path, status) in [
        ("tokenbucket/n/acquire", 204),
        ("semaphore/n/acquire", 200),
        ("watchdog/n/kick", 204),
        ("event/n/send", 204),
        ("event/n/wait", 204),
    ] {
        assert_eq!(server.get(&format!("/v1/{path}?{all}")).await.status, status, "{path}");
    }
    let state = async |kind: &str| -> serde_json::Value {
        serde_json::from_str(&server.get(&format!("/v1/{kind}/n")).await.body).unwrap()
    };
    let (most_counted, ten_years): (u64, u64) = ((1 << 53) - 1, 10 * 366 * 24 * 3_600_000);
    let semaphore = state("semaphore").await;
    assert_eq!(
        (&semaphore["size"], &semaphore["holders"][0]["time_left"]),
        (&10_000.into(), &serde_json::Value::Null),
        "the size is that of --max-holds"
    );
    assert_eq!(state("tokenbucket").await["size"], most_counted);
    let left = state("watchdog").await["time_left"].as_u64().unwrap();
    assert!((ten_years - 3_600_000..=ten_years).contains(&left), "{left}");
    let waiter = server.queue(&format!("/v1/watchdog/n/wait?{all}"), "watchdog/n", 0).await;
    assert_eq!(server.post("/v1/watchdog/n/kick?expires=1").await.status, 204);
    assert_eq!(waiter.await.unwrap().status, 204);
}

#[tokio::test]
async fn names_are_short_and_printable() {
    let server = Server::start(&[]);
    let longest = "n".repeat(200);
    for name in ["a b", "ünïcödé", "%E2%82%AC", &longest, "%25", "a+b", "{braces}"] {
        assert_eq!(server.get(&format!("/v1/event/{name}/send")).await.status, 204, "{name}");
    }
    for name in ["", "a%2Fb", "a%00b", "%0A", "%7F", "%E2%80%AE", "%FF", "%zz", &format!("{longest}n")] {
        assert_eq!(server.get(&format!("/v1/event/{name}/send")).await.status, 400, "{name}");
    }
    let listed = server.get("/v1").await.body;
    for name in ["a b", "ünïcödé", "€", "a+b", "{braces}"] {
        assert!(listed.contains(&format!("\"{name}\"")), "{name} in {listed}");
    }
}

#[test]
fn non_http_requests_are_refused() {
    let server = Server::start(&[]);
    for bytes in [
        &b"rubbish\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/event/\xff/send HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\n: x\r\n\r\n",
        b"POST /v1/event/e/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = rest(&mut stream);
        assert!(answer.is_empty() || status(&answer) == 400, "{}: {answer}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn headers_and_bodies_are_capped() {
    let server = Server::start(&[]);
    let head = |padding: usize| {
        let padding = "x".repeat(padding);
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nPadding: {padding}\r\nConnection: close\r\n\r\n")
    };
    assert_eq!(status(&server.raw(head(7 * 1024).as_bytes())), 200);
    assert_eq!(status(&server.raw(head(9 * 1024).as_bytes())), 431);
    let path = format!("GET /v1/event/{}/send HTTP/1.1\r\n", "n".repeat(9 * 1024));
    assert!(matches!(status(&server.raw(path.as_bytes())), 414 | 431));
    let post = "POST /v1/event/e/send HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Type: application/x-www-form-urlencoded\r\n";
    let form = |length: usize| format!("message={}", "m".repeat(length - 8));
    let sent = format!("{post}Content-Length: 8193\r\n\r\n{}", form(8193));
    assert_eq!(status(&server.raw(sent.as_bytes())), 413);
    let announced = format!("{post}Content-Length: 1099511627776\r\n\r\n");
    assert_eq!(status(&server.raw(announced.as_bytes())), 413);
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n2001\r\n{}\r\n0\r\n\r\n", form(8193));
    assert_eq!(status(&server.raw(chunked.as_bytes())), 413);
    let most = format!("{post}Content-Length: 8192\r\n\r\n{}", form(8192));
    assert_eq!(status(&server.raw(most.as_bytes())), 204);
}

/// The HTTP library rejects these requests before the server sees them.
#[test]
fn malformed_requests_get_a_bare_status() {
    let server = Server::start(&[]);
    let with = |headers: &str| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    for (bytes, expected) in [
        (with(&format!("Padding: {}\r\n", "x".repeat(9 * 1024))).as_bytes(), 431),
        (with(&"X: y\r\n".repeat(101)).as_bytes(), 431),
        (b"GET /v1/event/x/wait?key=\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /v1/event/a<b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ] {
        let answer = server.raw(bytes);
        assert_eq!(status(&answer), expected, "{answer}");
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

/// A client must not send its next request over a connection that the server is about to close.
#[test]
fn page_announces_that_an_unread_body_ends_the_connection() {
    let server = Server::start(&[]);
    for page in ["/healthz", "/readyz", "/metrics"] {
        let head = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n");
        let answer = server.raw(head.as_bytes());
        assert_eq!(status(&answer), 200, "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}

#[test]
fn a_larger_header_size_can_be_configured() {
    let server = Server::start(&["--header-size", "16384"]);
    let padding = "x".repeat(12 * 1024);
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nPadding: {padding}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(status(&server.raw(head.as_bytes())), 200);
}

/// Slowloris: an incomplete request is closed, even if bytes keep arriving.
#[tokio::test]
async fn the_header_time_out_fires() {
    let server = Server::start(&["--header-timeout", "300ms"]);
    let started = Instant::now();
    let mut silent = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").unwrap();
    let mut body = server.connect();
    body.write_all(b"POST /v1/event/e/send HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nab").unwrap();
    let mut dripping = server.connect();
    for byte in b"GET /healthz HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x')) {
        if dripping.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(started.elapsed() < GENEROUS, "it may drip for ever");
        // Under test: each byte arrives long before a timeout since the previous byte.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (stream, expected) in [(&mut silent, [0, 408]), (&mut half, [0, 408]), (&mut body, [400, 400])] {
        let answer = rest(stream);
        assert!(expected.contains(&status(&answer)), "{answer}");
    }
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn waits_per_name_are_capped() {
    let server = Server::start(&["--max-waits-per-name", "2"]);
    let waiters = [
        server.queue("/v1/event/e/wait", "event/e", 0).await,
        server.queue("/v1/event/e/wait", "event/e", 1).await,
    ];
    let refused = server.get("/v1/event/e/wait").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(server.get("/v1/event/e/wait?maxwait=0").await.status, 408, "which is no wait");
    server.until_waiting("event/e", 2).await;
    assert_eq!(server.get("/v1/watchdog/e/wait?maxwait=5").await.status, 408, "another kind is another name");
    assert_eq!(server.post("/v1/event/e/send").await.status, 204);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().status, 204);
    }
}

#[tokio::test]
async fn waits_in_all_are_capped() {
    let server = Server::start(&["--max-waits", "2"]);
    let _waiters = [
        server.queue("/v1/event/a/wait", "event/a", 0).await,
        server.queue("/v1/event/b/wait", "event/b", 0).await,
    ];
    let refused = server.get("/v1/event/c/wait").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(server.get("/v1/semaphore/c/acquire").await.status, 200, "which need not wait");
}

#[tokio::test]
async fn names_are_capped() {
    let server = Server::start(&["--max-names", "3"]);
    for name in ["a", "b", "c"] {
        assert_eq!(server.post(&format!("/v1/semaphore/{name}/acquire?key=k")).await.status, 200);
    }
    let refused = server.post("/v1/semaphore/d/acquire").await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(server.post("/v1/semaphore/d/release?key=k").await.status, 409);
    assert_eq!(server.post("/v1/semaphore/a/acquire?size=2").await.status, 200, "known names go on");
    assert_eq!(server.post("/v1/semaphore/b/release?key=k").await.status, 204);
    until("a name has become free", async || server.post("/v1/event/d/send").await.status == 204).await;
}

/// They are in no list of names, but use the store as names do.
#[tokio::test]
async fn locks_by_key_count_as_names() {
    let server = Server::start(&["--max-names", "3"]);
    let key =
        |number: u32| format!("/v1/lock/by-key/app%2F{number:032x}:lock%7C3733c69536a04d53d3607351a4d1c8c1");
    let mut held = 0;
    let refused = async |number: u32| {
        let answer = server.post(&format!("{}/acquire?key=k", key(number))).await;
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        answer.status == 429
    };
    for number in 0..20 {
        held += u32::from(!refused(number).await);
    }
    assert_eq!(held, 3);
    assert_eq!(server.post(&format!("{}/release?key=k", key(0))).await.status, 204);
    until("a key has become free", async || !refused(30).await).await;
}

/// Whatever size the client gives. A call beyond the cap would otherwise wait for a place that it never gets.
#[tokio::test]
async fn holds_of_a_semaphore_are_capped() {
    let server = Server::start(&["--max-holds", "2"]);
    let acquire = async |query: &str| server.post(&format!("/v1/semaphore/s/acquire?{query}")).await;
    for key in ["a", "b", "a"] {
        assert_eq!(acquire(&format!("size=100&key={key}")).await.status, 200, "{key}");
    }
    for maxwait in ["", "&maxwait=0", "&maxwait=60000"] {
        let refused = acquire(&format!("size=100&key=c{maxwait}")).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{maxwait}");
        assert!(refused.body.contains("--max-holds"), "{}", refused.body);
    }
    assert_eq!(acquire("size=2&key=c&maxwait=0").await.status, 408, "the size is the client's own");
    let state = server.get("/v1/semaphore/s").await.body;
    assert!(state.contains(r#""size":2,"used":2,"#) && state.contains(r#""waiting":0"#), "{state}");
    let waiter = server.queue("/v1/semaphore/s/acquire?size=2&key=c", "semaphore/s", 0).await;
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 204);
    assert_eq!(waiter.await.unwrap().status, 200);
}

/// Keys cannot spell these names.
#[tokio::test]
async fn names_with_braces_are_capped_too() {
    let server = Server::start(&["--max-names", "1"]);
    assert_eq!(server.post("/v1/semaphore/%7Ba%7D/acquire?key=k").await.status, 200);
    for name in ["%7Bb%7D", "c"] {
        assert_eq!(server.post(&format!("/v1/semaphore/{name}/acquire")).await.status, 429, "{name}");
    }
    assert_eq!(server.post("/v1/semaphore/%7Ba%7D/release?key=k").await.status, 204);
    until("it has become free", async || server.post("/v1/event/%7Bb%7D/send").await.status == 204).await;
    assert_eq!(
        server.get("/v1").await.body,
        r#"[{"kind":"event","name":"{b}","key":"event:09b94c63eb71025f4fd0a42b9413455f"}]"#
    );
}

#[tokio::test]
async fn connections_are_capped() {
    let server = Server::start(&["--max-connections", "2"]);
    let [mut one, _two] = [server.connect(), server.connect()];
    let refused = server.connect();
    let answer_of = |mut stream: std::net::TcpStream| rest(&mut stream);
    let answer = tokio::task::spawn_blocking(move || answer_of(refused)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1\r\n"), "{answer}");
    one.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(status(&rest(&mut one)), 200);
    let counted = r#"locker_refused_connections_total{transport="http"} "#;
    until("there is room again", async || match client().get(server.url("/metrics")).send().await {
        Ok(answer) => answer.status() == 200 && answer.text().await.is_ok_and(|text| text.contains(counted)),
        Err(_) => false,
    })
    .await;
    assert!(server.errors().contains("--max-connections is reached"), "{}", server.errors());
}

#[tokio::test]
async fn keys_are_never_logged() {
    let server = Server::launch("127.0.0.1:0", "off", &[], "trace");
    server.post("/v1/semaphore/s/acquire?key=hidden-key").await;
    server.post("/v1/semaphore/s/release?key=hidden-key").await;
    answer(
        client().post(server.url("/v1/semaphore/s/release")).header("authorization", "Bearer hidden-token"),
    )
    .await;
    server.post("/v1/semaphore/s/acquire?key=hidden-key&key=hidden-key").await;
    let log = server.errors();
    assert!(log.contains("release") && !log.contains("hidden"), "{log}");
}
