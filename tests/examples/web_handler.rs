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

/// Checks a response: its status, whether it invites a repetition, and that it does not show the lock's key.
fn check(response: &str, status: &str, retry: bool) {
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert_eq!(response.to_lowercase().contains("\r\nretry-after: "), retry, "{response}");
    // The halves of the key are joined by this.
    assert!(!response.contains(":lock|"), "{response}");
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
    check(&conflict, "409", true);
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
    check(&lost, "500", false);
    assert!(lost.contains("the outcome is unknown"), "{lost}");
    let after = post(&address, "/withdraw/4001", r#"{"amount":0}"#);
    assert!(after.contains(r#""balance":1000"#), "the handler was cancelled: {after}");
}

/// The list stands where another program's data would.
#[test]
fn foreign_key_is_500_without_retry_after() {
    let Some(server) = RedisServer::start() else { return };
    let (_running, address) = start(&["--store", &server.url()]);
    let slow = slow(&address, 2500);
    let key = eventually("the lock", || {
        let keys: Vec<String> = server.ask("KEYS", &["*:lock|*"]);
        keys.into_iter().find(|key| !key.starts_with('{'))
    });
    check(&slow.join().unwrap(), "200", false);
    let _: i64 = server.ask("LPUSH", &[&key, "not a lock"]);
    check(&post(&address, "/withdraw/4001", r#"{"amount":0}"#), "500", false);
}

#[test]
fn refused_command_is_500_without_retry_after() {
    let Some(server) = RedisServer::start() else { return };
    let (_running, address) = start(&["--store", &server.url()]);
    check(&post(&address, "/withdraw/4001", r#"{"amount":0}"#), "200", false);
    let _: String = server.ask("ACL", &["SETUSER", "default", "-@all", "+acl"]);
    check(&post(&address, "/withdraw/4001", r#"{"amount":0}"#), "500", false);
}

#[test]
fn unreachable_store_is_503_with_retry_after() {
    let Some(mut server) = RedisServer::start() else { return };
    let (_running, address) = start(&["--store", &server.url()]);
    server.kill();
    check(&post(&address, "/withdraw/4001", r#"{"amount":0}"#), "503", true);
}
