//! Fuzzes the parsers of the server with mutated requests: `fuzz <query|frames> <seconds> [seed]`.
//!
//! It panics at the first request that is neither parsed nor properly refused. The printed seed repeats the run.
//! `scripts/fuzz-server.sh` runs all targets.

use locker_server::internals::{Answer, Method, RawParams, frames, parse};
use std::time::{Duration, Instant};

const WORDS: [&str; 52] = [
    "/v1/",
    "tokenbucket",
    "semaphore",
    "event",
    "watchdog",
    "lock",
    "/by-key/",
    "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1",
    "rwlock",
    "barrier",
    "latch",
    "counter",
    "/countdown",
    "/count",
    "/value",
    "/reset",
    "/stats",
    "/acquire",
    "/release",
    "/renew",
    "/wait",
    "/send",
    "/kick",
    "/name",
    "amount",
    "mode",
    "read",
    "value",
    "size",
    "interval",
    "expires",
    "maxwait",
    "key",
    "message",
    "id",
    "=",
    "&",
    "?",
    "%",
    "%2F",
    "%00",
    "%ff",
    "%zz",
    "+",
    "#",
    "-1",
    "0",
    "9223372036854775807",
    "18446744073709551616",
    "GET ",
    "DELETE ",
    "\u{202e}é€",
];

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, target, seconds, rest @ ..] = &arguments[..] else {
        panic!("usage: fuzz <query|frames> <seconds> [seed]")
    };
    let seed = rest.first().map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    let check = match target.as_str() {
        "query" => query,
        "frames" => message,
        other => panic!("unknown target {other}: give query or frames"),
    };
    println!("{target}: seed {seed}");
    let time = Duration::from_secs(seconds.parse().expect("a number of seconds"));
    let (started, mut random, mut runs) = (Instant::now(), fastrand::Rng::with_seed(seed), 0u64);
    let mut corpus = vec![Vec::new()];
    while started.elapsed() < time {
        let text = mutate(&mut random, &corpus);
        if check(&text) && corpus.len() < 10_000 {
            corpus.push(text);
        }
        runs += 1;
    }
    println!("{target}: {runs} requests, {} well-formed ones in the corpus", corpus.len());
}

/// Returns a mutation of a well-formed text.
fn mutate(random: &mut fastrand::Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut text = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=text.len());
        match random.u8(..6) {
            0 if at < text.len() => text[at] = random.u8(..),
            1 => text.truncate(at),
            2 if at < text.len() => drop(text.remove(at)),
            3 => text.extend_from_within(at..),
            _ => {
                let word = WORDS[random.usize(..WORDS.len())].as_bytes();
                text.splice(at..at, word.iter().copied()).for_each(drop);
            }
        }
    }
    text.truncate(10_000);
    text
}

/// Returns `true` if the text is well-formed.
fn query(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let methods = [Method::Get, Method::Post, Method::Delete, Method::Other];
    let parsed =
        methods.map(|method| parse(method, path, query, "").map_err(|answer| check_refusal(&answer)));
    // Query and form are equivalent.
    assert_eq!(RawParams::parse(query, "").is_ok(), RawParams::parse("", query).is_ok());
    if query.contains('=')
        && RawParams::parse(query, "").is_ok_and(|parameters| parameters != RawParams::default())
    {
        assert!(RawParams::parse(query, query).is_err(), "a parameter given twice is accepted");
    }
    parsed.iter().any(Result::is_ok)
}

/// Returns `true` if the message is well-formed. Zero bytes separate its frames.
fn message(text: &[u8]) -> bool {
    let all: Vec<&[u8]> = text.split(|&byte| byte == 0).collect();
    let envelope = frames::envelope(&all);
    assert!(envelope <= all.len());
    match frames::parse(&all[envelope..]) {
        Ok(frames::Request::Call { method, path, query }) => {
            assert!(path.starts_with("/v1"));
            parse(method, path, query, "").map_err(|answer| check_refusal(&answer)).is_ok()
        }
        Ok(frames::Request::TimeSlot) => true,
        Err(answer) => {
            check_refusal(&answer);
            false
        }
    }
}

/// Checks the status of a refusal, and that its reason is one short line.
fn check_refusal(answer: &Answer) {
    assert!(matches!(answer.status, 400 | 404 | 405), "{answer:?}");
    assert!(
        !answer.body.is_empty() && answer.body.len() < 1500 && !answer.body.contains(['\n', '\r']),
        "{answer:?}"
    );
    assert_eq!(answer.allow.is_some(), answer.status == 405);
}
