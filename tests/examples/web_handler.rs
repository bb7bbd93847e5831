//! A locked web handler, called over HTTP.

use crate::{Running, example, listening, send};
use locker_harness::{RedisServer, eventually};
use std::thread::{self, JoinHandle};

/// Starts the example on a free port and returns its address.
fn start(options: &[&str]) -> (Running, String) {
    let mut command = example("web_handler");
    command.args(["--listen", "127.0.0.1:0"]).args(options);
    let mut running = Running::start(command);
    let address = listening(&mut running);
    (running, address)
}

/// Sends one request and returns the whole response.
fn post(address: &str, path: &str, body: &str) -> String {
    send(address, &format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\n"), body)
}

/// A withdrawal of 30 from card 4001 during which the bank takes this long.
fn slow(address: &str, takes_ms: u64) -> JoinHandle<String> {
    let (address, body) = (address.to_owned(), format!(r#"{{"amount":30,"takes_ms":{takes_ms}}}"#));
    thread::spawn(move || post(&address, "/withdraw/4001", &body))
}

/// No response shows the key, whose halves are joined by this.
fn hides_the_key(response: &str) -> bool {
    !response.contains(":lock|")
}

#[test]
fn second_withdrawal_from_a_card_gets_409() {
    let (_running, address) = start(&[]);
    let slow = slow(&address, 2500);
    // The card is free until the slow request has arrived.
    let conflict = loop {
        let response = post(&address, "/withdraw/4001", r#"{"amount":0}"#);
        if !response.starts_with("HTTP/1.1 200") {
            break response;
        }
    };
    assert!(conflict.starts_with("HTTP/1.1 409 "), "{conflict}");
    assert!(conflict.to_lowercase().contains("\r\nretry-after: "), "{conflict}");
    assert!(hides_the_key(&conflict), "{conflict}");
    let other = post(&address, "/withdraw/4002", r#"{"amount":1}"#);
    assert!(other.starts_with("HTTP/1.1 200 ") && other.contains(r#""balance":999"#), "{other}");
    let first = slow.join().unwrap();
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains(r#""balance":970"#), "{first}");
    let after = post(&address, "/withdraw/4001", r#"{"amount":70}"#);
    assert!(after.contains(r#""balance":900"#), "{after}");
    let empty = post(&address, "/withdraw/4001", r#"{"amount":5000}"#);
    assert!(empty.starts_with("HTTP/1.1 422 "), "{empty}");
}

/// A client that is asked to repeat a request whose outcome is unknown may pay twice.
#[test]
fn lost_lock_is_500_without_retry_after() {
    let Some(server) = RedisServer::start() else { return };
    let (_running, address) = start(&["--store", &server.url()]);
    let slow = slow(&address, 60_000);
    eventually("the lock", || {
        let keys: Vec<String> = server.ask("KEYS", &["*:lock|*"]);
        (!keys.is_empty()).then_some(())
    });
    let _: String = server.ask("FLUSHALL", &[]);
    let lost = slow.join().unwrap();
    assert!(lost.starts_with("HTTP/1.1 500 "), "{lost}");
    assert!(!lost.to_lowercase().contains("\r\nretry-after: "), "{lost}");
    assert!(lost.contains("the outcome is unknown") && hides_the_key(&lost), "{lost}");
    let after = post(&address, "/withdraw/4001", r#"{"amount":0}"#);
    assert!(after.contains(r#""balance":1000"#), "the handler was cancelled: {after}");
}
