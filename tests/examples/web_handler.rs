//! A locked web handler, called over HTTP.

use crate::{Running, example, listening, send};
use std::thread;

/// Starts the server on a free port and returns where it listens.
fn start() -> (Running, String) {
    let mut command = example("web_handler");
    command.args(["--listen", "127.0.0.1:0"]);
    let mut running = Running::start(command);
    let address = listening(&mut running);
    (running, address)
}

/// One request; the whole answer.
fn post(address: &str, path: &str, body: &str) -> String {
    send(address, &format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\n"), body)
}

/// With a `retry-after`.
#[test]
fn concurrent_withdrawal_gets_409() {
    let (_running, address) = start();
    let slow = {
        let address = address.clone();
        thread::spawn(move || post(&address, "/withdraw/4001", r#"{"amount":30,"takes_ms":2500}"#))
    };
    // Whoever comes while the slow one is at work is told so; before that, the lock is free.
    let conflict = loop {
        let answer = post(&address, "/withdraw/4001", r#"{"amount":0}"#);
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
    };
    assert!(conflict.starts_with("HTTP/1.1 409 "), "{conflict}");
    assert!(conflict.to_lowercase().contains("\r\nretry-after: "), "{conflict}");
    let other = post(&address, "/withdraw/4002", r#"{"amount":1}"#);
    assert!(other.starts_with("HTTP/1.1 200 ") && other.contains(r#""balance":999"#), "{other}");
    let first = slow.join().unwrap();
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains(r#""balance":970"#), "{first}");
    let after = post(&address, "/withdraw/4001", r#"{"amount":70}"#);
    assert!(after.contains(r#""balance":900"#), "{after}");
    let empty = post(&address, "/withdraw/4001", r#"{"amount":5000}"#);
    assert!(empty.starts_with("HTTP/1.1 422 "), "{empty}");
}
