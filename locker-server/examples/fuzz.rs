//! Feeds mutated requests to what reads them: `fuzz <query|frames> <seconds> [seed]`.
//!
//! It ends with a panic at the first request that is neither read nor refused in order, and tells the seed that leads
//! to it. `scripts/fuzz-server.sh` runs all targets.

use locker_server::{
    calls::{Answer, Method, Parameters, decode},
    zeromq::frames::{self, Ask},
};
use std::time::{Duration, Instant};

const WORDS: [&str; 36] = [
    "/v1/", "tokenbucket", "semaphore", "event", "watchdog", "/acquire", "/release", "/renew", "/wait", "/send", "/kick",
    "/name", "size", "interval", "expires", "maxwait", "key", "message", "id", "=", "&", "?", "%", "%2F", "%00", "%ff",
    "%zz", "+", "#", "-1", "0", "9223372036854775807", "18446744073709551616", "GET ", "DELETE ", "\u{202e}é€",
];

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, target, seconds, rest @ ..] = &arguments[..] else { panic!("give a target and a number of seconds") };
    let seed = rest.first().map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    let check = match target.as_str() {
        "query" => query,
        "frames" => messages,
        other => panic!("no target {other}: give query or frames"),
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
    println!("{target}: {runs} requests, {} of them well-formed and kept", corpus.len());
}

/// Another text made of one that was well-formed.
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

/// Whether it is well-formed.
fn query(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let methods = [Method::Get, Method::Post, Method::Delete, Method::Other];
    let read = methods.map(|method| decode(method, path, query, "").map_err(in_order));
    // Where a parameter stands makes no difference.
    assert_eq!(Parameters::parse(query, "").is_ok(), Parameters::parse("", query).is_ok());
    if query.contains('=') && Parameters::parse(query, "").is_ok_and(|parameters| parameters != Parameters::default()) {
        assert!(Parameters::parse(query, query).is_err(), "given twice");
    }
    read.iter().any(Result::is_ok)
}

/// Zero bytes separate frames here.
fn messages(text: &[u8]) -> bool {
    let all: Vec<&[u8]> = text.split(|&byte| byte == 0).collect();
    let envelope = frames::envelope(&all);
    assert!(envelope <= all.len());
    match frames::read(&all[envelope..]) {
        Ok(Ask::Call { method, path, query }) => {
            assert!(path.starts_with("/v1"));
            decode(method, path, query, "").map_err(in_order).is_ok()
        }
        Ok(Ask::Slot) => true,
        Err(answer) => {
            in_order(answer);
            false
        }
    }
}

/// A refusal is one of four, and its reason one short line.
fn in_order(answer: Answer) {
    assert!(matches!(answer.status, 400 | 404 | 405), "{answer:?}");
    assert!(!answer.body.is_empty() && answer.body.len() < 1500 && !answer.body.contains(['\n', '\r']), "{answer:?}");
    assert_eq!(answer.allow.is_some(), answer.status == 405);
}
