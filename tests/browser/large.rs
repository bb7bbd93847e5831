//! The page beside many names.

use crate::{
    server::{Server, rest},
    support::Browser,
};
use std::{
    io::Write,
    time::{Duration, Instant},
};

const NAMES: usize = 100_000;
const AT_ONCE: usize = 1_000;

fn hold(server: &Server) {
    for first in (0..NAMES).step_by(AT_ONCE) {
        let request = |number: usize| {
            let end = if number + 1 == first + AT_ONCE { "Connection: close\r\n" } else { "" };
            let path = format!("/v1/lock/name-{number}/acquire?expires=3600000");
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{end}\r\n")
        };
        let requests: String = (first..first + AT_ONCE).map(request).collect();
        let mut stream = server.connect();
        stream.write_all(requests.as_bytes()).unwrap();
        assert_eq!(rest(&mut stream).matches("HTTP/1.1 200 ").count(), AT_ONCE);
    }
}

/// Returns the time that a process has been on a processor.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Prints figures, which say something of a release build on an idle machine.
#[tokio::test]
#[ignore = "by hand: cargo test --release -p locker-server --test browser many_names -- --ignored --nocapture"]
async fn many_names_are_measured() {
    let Some(browser) = Browser::start().await else { return };
    let server = Server::start(&["--max-names", "200000"]);
    hold(&server);
    browser.open(&server.url("/")).await;
    browser.until_text("#count", "200 of 100,000 shown").await;
    let first = browser
        .value("performance.getEntriesByType('mark').find((mark) => mark.name === 'rows').startTime")
        .await;
    println!("first rows: {first} ms after the page was asked for");
    let (before, started) = (processor_time(server.pid()), Instant::now());
    tokio::time::sleep(Duration::from_mins(1)).await;
    let used = processor_time(server.pid()).saturating_sub(before).as_secs_f64();
    let used = used / started.elapsed().as_secs_f64();
    println!("the server: {:.1} % of a processor", used * 100.0);
    println!("the browser: {} rows", browser.value("document.querySelectorAll('#rows tr').length").await);
    browser.close().await;
}
