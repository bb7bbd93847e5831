//! Payments that are sent again, to two processes.

use crate::{Running, example, listening, send};
use locker_harness::{RedisServer, eventually};
use std::{path::Path, thread};

fn start(url: &str, ledger: &Path) -> (Running, String) {
    let mut command = example("payment");
    command.args(["--listen", "127.0.0.1:0", "--store", url, "--ledger"]).arg(ledger);
    let mut running = Running::start(command);
    let address = listening(&mut running);
    (running, address)
}

fn pay(address: &str, key: &str, payment: &str) -> String {
    let head =
        format!("POST /payments HTTP/1.1\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\n");
    send(address, &head, payment)
}

fn body(response: &str) -> &str {
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    response.split_once("\r\n\r\n").unwrap().1
}

fn charges(ledger: &Path) -> usize {
    std::fs::read_to_string(ledger).map_or(0, |text| text.lines().count())
}

#[test]
fn repeated_payment_charges_once() {
    let Some(server) = RedisServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let (_first, one) = start(&server.url(), &ledger);
    let (_second, other) = start(&server.url(), &ledger);
    let receipt = pay(&one, "9f3c", r#"{"card":4001,"amount":30}"#);
    assert_eq!(body(&receipt), r#"{"number":1,"card":4001,"amount":30}"#);
    for address in [&one, &other] {
        assert_eq!(body(&pay(address, "9f3c", r#"{"card":4001,"amount":30}"#)), body(&receipt));
    }
    let misused = pay(&other, "9f3c", r#"{"card":4001,"amount":31}"#);
    assert!(misused.starts_with("HTTP/1.1 422 ") && !misused.contains(":once|"), "{misused}");
    let keyless = send(
        &one,
        "POST /payments HTTP/1.1\r\ncontent-type: application/json\r\n",
        r#"{"card":1,"amount":1}"#,
    );
    assert!(keyless.starts_with("HTTP/1.1 400 "), "{keyless}");
    assert_eq!(charges(&ledger), 1);
    assert_eq!(
        body(&pay(&other, "a81b", r#"{"card":4001,"amount":30}"#)),
        r#"{"number":2,"card":4001,"amount":30}"#
    );
}

/// The process dies after the charge and before the receipt.
#[test]
fn payment_of_a_process_that_died_is_not_charged_again() {
    let Some(server) = RedisServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let (first, one) = start(&server.url(), &ledger);
    let (_second, other) = start(&server.url(), &ledger);
    let slow = thread::spawn(move || {
        // The connection ends with the process.
        std::panic::catch_unwind(|| pay(&one, "9f3c", r#"{"card":4001,"amount":30,"takes_ms":60000}"#)).ok()
    });
    eventually("the charge", || (charges(&ledger) == 1).then_some(()));
    let under_way = pay(&other, "9f3c", r#"{"card":4001,"amount":30}"#);
    assert!(under_way.starts_with("HTTP/1.1 409 ") && under_way.contains("retry-after: "), "{under_way}");
    drop(first);
    drop(slow.join());
    let refused = eventually("the end of the lease", || {
        let response = pay(&other, "9f3c", r#"{"card":4001,"amount":30}"#);
        (!response.starts_with("HTTP/1.1 409 ")).then_some(response)
    });
    assert!(refused.starts_with("HTTP/1.1 500 ") && refused.contains("nobody knows"), "{refused}");
    assert!(!refused.contains("retry-after: ") && charges(&ledger) == 1, "{refused}");
}
