//! Clients that do not read their answers.

use crate::support::{Server, rest, until};
use std::{
    io::{Read, Write},
    time::Duration,
};

#[tokio::test]
async fn client_that_reads_nothing_is_closed() {
    let server = Server::start(&["--header-timeout", "100ms"]);
    server.fill_the_list();
    let mut stuck = server.asking_for_much(150);
    until("only the requesting client is connected", async || {
        server.get("/metrics").await.body.contains("\nlocker_connections 1\n")
    })
    .await;
    let answers = rest(&mut stuck);
    assert!(answers.matches("HTTP/1.1 200 ").count() < 150, "all was taken by the system");
}

/// Waits until no list is made: all clients that ask for one have stopped reading.
async fn until_stuck(server: &Server) {
    let line = r#"locker_requests_total{call="list",status="200",transport="http"} "#;
    let mut before = String::new();
    until("stuck clients", async || {
        // Long beside the time in which a list is made.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let metrics = server.get("/metrics").await.body;
        let made = metrics.lines().find(|metric| metric.starts_with(line)).unwrap_or_default();
        !made.is_empty() && std::mem::replace(&mut before, made.to_owned()) == made
    })
    .await;
}

#[tokio::test]
async fn unread_long_answers_are_capped() {
    let server = Server::start(&["--max-unread-bytes", "1048576", "--header-timeout", "6s"]);
    server.fill_the_list();
    // One list fits. The system takes some others before it.
    let _stuck = server.asking_for_much(20);
    until_stuck(&server).await;
    let refused = server.get("/v1").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("--max-unread-bytes"), "{}", refused.body);
    assert!(server.errors().contains("--max-unread-bytes is reached"), "{}", server.errors());
    assert_eq!(server.get("/v1?limit=1").await.status, 200, "short answers are not");
    // Refusals close the stuck client, which would otherwise have 36 s.
    until("only the requesting client is connected", async || {
        server.get("/v1").await;
        server.get("/metrics").await.body.contains("\nlocker_connections 1\n")
    })
    .await;
    assert_eq!(server.get("/v1").await.status, 200, "there is room again");
}

/// The highest resident memory of the server so far, in bytes.
fn peak_memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}

/// All were made before the first one counted.
#[tokio::test]
async fn long_answers_count_when_they_are_made() {
    const CLIENTS: usize = 30;
    let server = Server::start(&["--max-unread-bytes", "1048576"]);
    server.fill_the_list();
    let length = server.get("/v1").await.body.len();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.asking_for("/healthz", 1)).collect();
    for client in &mut clients {
        client.read_exact(&mut [0]).expect("it is connected");
    }
    let before = peak_memory(&server);
    for client in &mut clients {
        client.write_all(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    }
    for client in &mut clients {
        assert_eq!(rest(client).matches("HTTP/1.1 ").count(), 1);
    }
    let grown = peak_memory(&server) - before;
    assert!(grown < CLIENTS * length / 2, "{CLIENTS} clients took {grown} bytes");
}

/// The document is in memory once, and its readers need no token.
#[tokio::test]
async fn unread_documents_do_not_count_as_long_answers() {
    let server = Server::start(&["--max-unread-bytes", "1048576"]);
    server.fill_the_list();
    let mut stuck = [(); 5].map(|()| server.asking_for("/openapi.json", 40));
    for stream in &mut stuck {
        stream.read_exact(&mut [0]).expect("the beginning of the first one");
    }
    for _ in 0..5 {
        assert_eq!(server.get("/v1").await.status, 200);
    }
}

/// The HTTP library drains the body of a request before it knows whether the answer was sent.
#[test]
fn client_that_reads_nothing_is_not_read_on() {
    let server = Server::start(&[]);
    let mut stuck = server.connect();
    let request =
        "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx";
    // More than the system has room for.
    let requests = request.repeat(1_000);
    stuck.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    let written = (0..1_000).take_while(|_| stuck.write_all(requests.as_bytes()).is_ok()).count();
    assert!(written < 1_000, "the server has read 90 MB of requests, and keeps the answers");
}

/// The HTTP library serves the pipelined requests of a connection without a pause.
#[tokio::test]
async fn pipelined_long_answers_let_others_through() {
    let server = Server::start(&[]);
    server.fill_the_list();
    let cores = std::thread::available_parallelism().unwrap().get();
    let readers: Vec<_> = (0..=cores)
        .map(|_| server.asking_for_much(40))
        .map(|mut asking| std::thread::spawn(move || drop(asking.read_exact(&mut vec![0; 40 * 300_000]))))
        .collect();
    let mut others = 0;
    while !readers.iter().all(std::thread::JoinHandle::is_finished) {
        assert_eq!(server.get("/healthz").await.status, 200);
        others += 1;
    }
    assert!(others >= 5, "only {others} answers in between");
}

/// The client reads a little at a time, for longer than it may read nothing.
#[test]
fn slow_reader_gets_its_whole_answer() {
    let server = Server::start(&["--header-timeout", "400ms"]);
    server.fill_the_list();
    let mut slow = server.asking_for_much(30);
    let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
    for _ in 0..100 {
        let read = slow.read(&mut piece).unwrap();
        answers.extend_from_slice(&piece[..read]);
        // Under test: a client that reads now and then, for longer than the server's write timeout.
        std::thread::sleep(Duration::from_millis(50));
    }
    slow.read_to_end(&mut answers).unwrap();
    assert_eq!(String::from_utf8(answers).unwrap().matches("HTTP/1.1 200 ").count(), 30);
}
