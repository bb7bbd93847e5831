//! Payments that are sent again, to two processes.

use crate::{Running, example, listening, send};
use locker_harness::{RedisServer, eventually};
use std::{io::Write, net::TcpStream, path::Path, thread};

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
    assert!(body(&receipt).ends_with(r#","card":4001,"amount":30}"#), "{receipt}");
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
    let other_receipt = pay(&other, "a81b", r#"{"card":4001,"amount":30}"#);
    assert_ne!(body(&other_receipt), body(&receipt));
    assert_eq!(charges(&ledger), 2);
}

/// The most usual reason for a repetition.
#[test]
fn payment_whose_client_went_away_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let (_running, address) = start("memory://", &ledger);
    let slow = r#"{"card":4001,"amount":30,"takes_ms":300}"#;
    let mut client = TcpStream::connect(&address).unwrap();
    let length = slow.len();
    write!(
        client,
        "POST /payments HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nidempotency-key: 9f3c\r\n\
         content-length: {length}\r\n\r\n{slow}"
    )
    .unwrap();
    eventually("the charge", || (charges(&ledger) == 1).then_some(()));
    drop(client);
    let receipt = pay(&address, "9f3c", r#"{"card":4001,"amount":30}"#);
    assert!(body(&receipt).ends_with(r#","card":4001,"amount":30}"#), "{receipt}");
    assert_eq!(charges(&ledger), 1);
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
