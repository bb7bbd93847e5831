//! A limited API, called over HTTP.

use crate::{Running, example, exchange, listening};
use std::thread;

fn start(options: &[&str]) -> (Running, String) {
    let mut command = example("rate_limited_api");
    command.args(["--listen", "127.0.0.1:0"]).args(options);
    let mut running = Running::start(command);
    let address = listening(&mut running);
    (running, address)
}

fn quote(address: &str, client: &str) -> String {
    exchange(address, &format!("GET /quote HTTP/1.1\r\nx-api-key: {client}\r\n")).to_lowercase()
}

/// Returns the value of a header field.
fn field<'a>(response: &'a str, name: &str) -> &'a str {
    let line = response.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {response}"))
}

/// A refused client gets a `retry-after`.
#[test]
fn clients_have_separate_limits() {
    let (_running, address) = start(&["--size", "3", "--interval", "600"]);
    for left in ["2", "1", "0"] {
        let response = quote(&address, "one");
        assert!(response.starts_with("http/1.1 200 ") && response.ends_with("42\n"), "{response}");
        assert_eq!(field(&response, "ratelimit-remaining"), left);
        assert_eq!(field(&response, "ratelimit-limit"), "3");
        assert_eq!(field(&response, "ratelimit-policy"), "\"default\";q=3;w=600");
        assert!(field(&response, "ratelimit").starts_with(&format!("\"default\";r={left};t=")), "{response}");
    }
    let refused = quote(&address, "one");
    assert!(refused.starts_with("http/1.1 429 "), "{refused}");
    let after: u64 = field(&refused, "retry-after").parse().unwrap();
    assert!((1..=600).contains(&after), "{refused}");
    assert_eq!(field(&refused, "ratelimit-remaining"), "0");
    assert_eq!(field(&refused, "ratelimit-reset"), after.to_string());
    assert!(quote(&address, "two").starts_with("http/1.1 200 "), "another client has its own limit");
}

#[test]
fn client_is_admitted_after_retry_after() {
    let (_running, address) = start(&["--size", "1", "--interval", "1"]);
    // The second request is admitted as well if a new interval has begun before it.
    let refused =
        (0..50).map(|_| quote(&address, "me")).find(|response| response.starts_with("http/1.1 429 "));
    let after: u64 = field(&refused.expect("a refusal"), "retry-after").parse().unwrap();
    // A client waits as long as `retry-after` says.
    thread::sleep(std::time::Duration::from_secs(after));
    assert!(quote(&address, "me").starts_with("http/1.1 200 "));
}

#[test]
fn an_order_is_shipped_once_at_a_time() {
    let (_running, address) = start(&[]);
    let ship = |order: &str| {
        let (address, request) = (address.clone(), format!("POST /ship/{order} HTTP/1.1\r\n"));
        thread::spawn(move || exchange(&address, &request))
    };
    let together: Vec<_> = ["7", "7", "07"].map(ship).into();
    let other = ship("8").join().unwrap();
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
    let responses: Vec<String> = together.into_iter().map(|ship| ship.join().unwrap()).collect();
    let refused: Vec<_> = responses.iter().filter(|response| response.starts_with("HTTP/1.1 503 ")).collect();
    assert_eq!(refused.len(), 2, "{responses:?}");
    assert!(
        refused.iter().all(|response| response.to_lowercase().contains("\r\nretry-after: ")),
        "{responses:?}"
    );
    assert!(ship("7").join().unwrap().starts_with("HTTP/1.1 200 "), "it is free again");
    assert!(
        ship("%37").join().unwrap().starts_with("HTTP/1.1 404 "),
        "another spelling of the order would have another lock"
    );
}
