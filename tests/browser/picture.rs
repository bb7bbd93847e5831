//! The picture of the page in the docs, with what a stub tells it.

use crate::{stub::Stub, support::Browser};
use serde_json::{Value, json};

fn row(kind: &str, name: &str, used: [u64; 2], waits: [u64; 2], age_ms: u64, left_ms: u64) -> Value {
    let [used, size] = used;
    let [waiting, longest_ms] = waits;
    let longest_ms = (waiting > 0).then_some(longest_ms);
    json!({
        "key": format!("{kind}:{name}"), "kind": kind, "name": name, "function": null, "file": null, "line": null,
        "used": used, "size": size, "waiting": waiting, "longest_ms": longest_ms, "left_ms": left_ms, "age_ms": age_ms,
    })
}

/// Makes the row of a name that of a call of a function.
fn of_function(mut row: Value, arguments: &str, file: &str, line: u64) -> Value {
    row["key"] = json!(format!("e7d1e70120eddf339445617f6b481243:lock|{arguments}"));
    row["function"] = row["name"].take();
    (row["file"], row["line"]) = (json!(file), json!(line));
    row
}

fn rows() -> Vec<Value> {
    let withdraw = |waits, age, left| row("lock", "bank.withdraw", [1, 1], waits, age, left);
    vec![
        row("semaphore", "database", [10, 10], [7, 4_400], 125_000, 28_000),
        of_function(withdraw([3, 41_000], 42_000, 8_200), "3733c69536a04d53", "src/bank.rs", 12),
        row("lock", "invoice 7", [1, 1], [2, 9_300], 65_000, 54_000),
        of_function(withdraw([1, 700], 1_900, 9_400), "98f13708210194c4", "src/bank.rs", 12),
        row("lock", "leader of reports", [1, 1], [1, 3_723_000], 3_724_000, 13_000),
        row("semaphore", "uploads", [2, 5], [0, 0], 3_100, 57_000),
        row("lock", "configuration", [1, 1], [0, 0], 18_000, 41_000),
        of_function(
            row("lock", "mail.send", [1, 1], [0, 0], 800, 29_000),
            "d3d9446802a44259",
            "src/mail.rs",
            40,
        ),
        row("lock", "nightly backup", [1, 1], [0, 0], 780_000, 120_000),
    ]
}

/// A wave of values with some noise, the same at each run.
fn past(middle: u64, height: u64) -> Vec<u64> {
    let noise = |at: u64| (at * at * 31 + at * 17) % 97 * height / 97;
    let wave = |at: u64| (at % 120).abs_diff(60) * height / 60;
    (0..300).map(|at| middle + wave(at) + noise(at)).collect()
}

#[tokio::test]
#[ignore = "makes a picture: scripts/screenshot.sh"]
async fn page_is_pictured() {
    let file = std::env::var_os("LOCKER_TEST_PICTURE").expect("the file to write");
    let totals = json!({
        "at": 0, "names": 1_284, "holds": 1_311, "waiting": 14, "grants": 214, "refusals": 3, "store": "redis",
        "round_trip_ms": 0.4, "seen_ms_ago": 800, "matching": 1_284, "shown": 200,
    });
    let past =
        json!({ "every_ms": 1000, "grants": past(120, 60), "refusals": past(0, 2), "waiting": past(6, 8) });
    let events = [("past", past), ("rows", json!({ "rows": rows() })), ("totals", totals)];
    let stub = Stub::start(&events).await;
    let browser = Browser::with("--window-size=1080,690").await.expect("a browser");
    browser.open(&stub.url("/")).await;
    browser.until_text("#count", "200 of 1,284 shown").await;
    std::fs::write(file, browser.picture().await).unwrap();
    browser.close().await;
}
