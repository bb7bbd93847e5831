//! What is called together is one step each, too: the scripts that make many calls at once agree with the step, in the
//! cases that they take, and do nothing in the others.

use super::{Bug, KEYS, Run, START, milliseconds, requests, seed, send, shows};
use crate::primitives::Request;
use locker_harness::RedisServer;
use redis::Value;
use requests::Draw;
use std::ptr;

/// How many requests were answered alike by a script that makes many; else the first difference.
fn compare(
    server: &RedisServer,
    draw: Draw,
    rounds: usize,
    bug: Option<Bug>,
    seed: u64,
) -> Result<usize, String> {
    let mut run = Run::start(server, bug, seed);
    let (mut taken, mut now) = (0, START);
    for _ in 0..rounds {
        let Run { connection, texts, rng, sides } = &mut run;
        let steps = [0, 0, 0, 0, 1, 1, 2, 5, 5, 50, 50, 900, 2_001, 61_000];
        now = now + milliseconds(rng, &steps);
        // Some are asked twice at the same time.
        let mut calls: Vec<(usize, Request)> = Vec::new();
        for (at, side) in sides.iter_mut().enumerate() {
            side.now = now;
            calls.push((at, draw(&side.ids, rng)));
            if rng.u8(..4) == 0 {
                calls.push((at, draw(&side.ids, rng)));
            }
        }

        let mut apart = Vec::new();
        while !calls.is_empty() {
            let batch = sides[calls[0].0].invocation(&calls[0].1).batch();
            let goes = |call: &(usize, Request)| match (sides[call.0].invocation(&call.1).batch(), batch) {
                (Some(one), Some(other)) => ptr::eq(one, other),
                _ => false,
            };
            let (together, rest): (Vec<_>, Vec<_>) = calls.drain(..).partition(goes);
            calls = rest;
            let Some(batch) = batch else {
                apart.push(calls.remove(0));
                continue;
            };
            let invocations: Vec<_> =
                together.iter().map(|(at, request)| sides[*at].invocation(request)).collect();
            let command = batch.changed(
                &invocations.iter().collect::<Vec<_>>(),
                &mut |text| texts.change(text),
                now.as_micros(),
            );
            let answers: Vec<Value> = command.query(connection).map_err(|error| error.to_string())?;
            assert_eq!(answers.len(), together.len());
            for ((at, request), answer) in together.into_iter().zip(answers) {
                if answer == Value::BulkString(Vec::new()) {
                    apart.push((at, request));
                } else {
                    sides[at].agree(&request, answer, &[])?;
                    taken += 1;
                }
            }
        }
        let answers = send(connection, texts, apart.iter().map(|(at, request)| (&sides[*at], request)));
        for ((at, request), (answer, published)) in apart.iter().zip(answers) {
            sides[*at].agree(request, answer, &published)?;
        }
    }
    run.end();
    Ok(taken)
}

fn alike(draw: Draw, rounds: usize) {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let taken = compare(&server, draw, rounds, None, seed);
    let taken = taken.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert!(taken > rounds * KEYS / 100, "only {taken} were taken together");
}

#[test]
fn locks() {
    alike(requests::lock, 300);
}

#[test]
fn rate_limiters() {
    alike(requests::rate_limiter, 300);
}

/// Callers that are in line make a limiter none of those that the script looks at.
#[test]
fn rate_limiters_that_nobody_waits_at() {
    alike(requests::rate_limiter_without_a_line, 300);
}

#[test]
fn rate_limiters_with_large_numbers() {
    alike(requests::rate_limiter_with_large_numbers, 300);
}

/// What a slip would make of them.
const LOCK_BUGS: [Bug; 6] = [
    (
        "free lock taken past the queue",
        "redis.call('EXISTS', KEYS[2 * many + i], KEYS[3 * many + i])",
        "redis.call('EXISTS', KEYS[3 * many + i])",
    ),
    (
        "tombstone not looked at",
        "redis.call('EXISTS', KEYS[2 * many + i], KEYS[3 * many + i])",
        "redis.call('EXISTS', KEYS[2 * many + i])",
    ),
    ("all taken for clear", "redis.call('EXISTS', unpack(KEYS, 2 * many + 1)) == 0", "true"),
    ("fence not above the last", "if before and before >= fence then", "if false then"),
    ("release without looking whose hold it is", "holders[i] == ARGV[i] and", "holders[i] and"),
    ("release past those who wait", "(clear or redis.call('EXISTS', KEYS[many + i]) == 0)", "true"),
];

const LIMITER_BUGS: [Bug; 10] = [
    ("settings not compared", "limiter.words == words", "limiter.words"),
    ("what was taken before in the call is not counted", "limiters[key] = limiter", ""),
    (
        "only the first change is written",
        "for _, limiter in pairs(limiters) do",
        "for _, limiter in pairs({select(2, next(limiters))}) do",
    ),
    ("a line is not looked at", "if found[1] ~= words or found[3] then", "if found[1] ~= words then"),
    ("a full window refuses callers that would wait", "till > patience and", ""),
    ("gcra refuses callers that would wait", "elseif wait <= patience then", "elseif false then"),
    ("patience of another caller", "ARGV[2 * many + i]", "ARGV[2 * many + 1]"),
    ("a refusal by gcra takes tokens", "  if fits then\n", "  if fits or wait > patience then\n"),
    (
        "a full window says when it began",
        "return till > patience",
        "till = interval\n    return till > patience",
    ),
    ("gcra counts the refused tokens as used", "fits and after or debt", "after"),
];

#[test]
fn seeded_bugs_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let found = |draw: Draw, bug: &Bug| shows(&server, |seed| compare(&server, draw, 100, Some(*bug), seed));
    let locks = LOCK_BUGS.iter().filter(|bug| !found(requests::lock, bug));
    let limiters = LIMITER_BUGS.iter().filter(|bug| !found(requests::rate_limiter, bug));
    let missed: Vec<_> = locks.chain(limiters).map(|(name, _, _)| name).collect();
    assert_eq!(missed, [&""; 0]);
}
