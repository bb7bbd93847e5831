//! `locker health`.

use crate::{
    stores::Store,
    support::{GENEROUS, Server, binary, free_port},
};
use locker_harness::{RedisServer, Signal, eventually};
use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

/// Returns the exit code and the log.
fn ended(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn health(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = binary();
    command.arg("health").args(arguments);
    ended(command)
}

#[test]
fn health_is_that_of_the_server_and_its_store() {
    let Some(redis) = RedisServer::start() else { return };
    let mut server = Store::of(&redis).server(&[]);
    let url = server.url("");
    assert_eq!(health(&["--url", &url]), (Some(0), String::new()));
    redis.signal(Signal::STOP);
    let (code, log) = health(&["--url", &url]);
    assert!(code == Some(69) && log.contains("is not ready: 503"), "{code:?} {log}");
    redis.signal(Signal::CONT);
    eventually("a server that is ready", || (health(&["--url", &url]).0 == Some(0)).then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let (code, log) = health(&["--url", &url]);
    assert!(code == Some(69) && log.contains("is not ready"), "{code:?} {log}");
}

/// As in a container: the variable of the server is that of its health check.
#[test]
fn health_asks_where_the_server_listens() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "0123456789abcdef0123456789abcdef").unwrap();
    for all in ["0.0.0.0", "[::]"] {
        let more = ["--token-file", tokens.to_str().unwrap()];
        let server = Server::start_at(&format!("{all}:0"), "off", &more);
        let address = format!("{all}:{}", server.http().port());
        let mut command = binary();
        command.arg("health").env("LOCKER_HTTP", &address).env("LOCKER_URL", "redis://127.0.0.1:1");
        assert_eq!(ended(command), (Some(0), String::new()), "{address}");
        assert_eq!(health(&["--http", &address]).0, Some(0));
        assert_eq!(health(&["--http", &format!("localhost:{}", server.http().port())]).0, Some(0));
    }
}

#[test]
fn wrong_urls_are_refused_without_being_repeated() {
    for (url, named) in [
        ("https://127.0.0.1:5505", "no TLS"),
        ("redis://:sekret@127.0.0.1", "http://HOST:PORT"),
        ("http://me:sekret@127.0.0.1:5505", "without a login"),
        ("http://127.0.0.1:5505/?sekret", "without parameters"),
        ("127.0.0.1:5505", "http://HOST:PORT"),
        ("http://", "http://HOST:PORT"),
        ("http://127.0.0.1:99999", "http://HOST:PORT"),
        ("", "http://HOST:PORT"),
    ] {
        let (code, log) = health(&["--url", url]);
        assert!(code == Some(64) && log.contains(named) && !log.contains("sekret"), "{url}: {code:?} {log}");
    }
    let (code, log) = health(&["--http", "off"]);
    assert!(code == Some(64) && log.contains("--url"), "{code:?} {log}");
}

/// Accepts one connection, answers it, and returns what was asked.
fn answering(answer: &'static [u8]) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        let (mut asked, mut bytes) = (String::new(), [0; 1024]);
        while !asked.ends_with("\r\n\r\n") {
            let length = stream.read(&mut bytes).unwrap();
            asked += std::str::from_utf8(&bytes[..length]).unwrap();
        }
        stream.write_all(answer).unwrap();
        if answer.is_empty() {
            // Until the client has given up.
            drop(stream.read(&mut bytes));
        }
        asked
    });
    (url, asked)
}

/// Of a proxy, another program, a server of TLS, and a server that is silent.
#[test]
fn only_the_answer_200_is_ready() {
    for (answer, named) in [
        (&b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\na\x1bb"[..], "404 Not Found: a\\u{1b}b"),
        (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", "302 Found"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "204 No Content"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\nhalf", "is not ready"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "is not ready"),
        (b"HTTP/1.1 ", "is not ready"),
        (b"", "no answer within 5s"),
    ] {
        let (url, asked) = answering(answer);
        let since = Instant::now();
        let (code, log) = health(&["--url", &url]);
        assert!(code == Some(69) && log.contains(named), "{named}: {code:?} {log}");
        assert!(!log.contains('\x1b'), "{log:?}");
        assert!(!answer.is_empty() || since.elapsed() >= Duration::from_secs(5));
        assert!(asked.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
    }
    let (url, asked) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready");
    assert_eq!(health(&["--url", &format!("{url}/below/")]), (Some(0), String::new()));
    let asked = asked.join().unwrap();
    let host = format!("\r\nhost: {}\r\n", url.trim_start_matches("http://"));
    assert!(asked.starts_with("GET /below/readyz ") && asked.contains(&host), "{asked}");
    assert_eq!(health(&["--url", &format!("http://127.0.0.1:{}", free_port())]).0, Some(69));
}
