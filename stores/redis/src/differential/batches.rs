//! The batch scripts agree with the step in the calls that they carry out, and change nothing in the others.

use super::{
    comparison::{Bug, Comparison, KEYS, Side, seed, send, settings, shows},
    requests::{self, Draw, START, milliseconds},
};
use crate::script::Invocation;
use locker_core::primitives::Request;
use locker_harness::RedisServer;
use redis::Value;
use std::{collections::HashSet, iter, ptr};

fn first(side: &Side, request: &Request) -> Invocation {
    let call = side.invocation(request);
    call.first().unwrap_or(call)
}

/// Returns how many requests had the same result in a batch, or the first difference.
pub(super) fn run(mut comparison: Comparison, draw: Draw, rounds: usize) -> Result<usize, String> {
    let (mut taken, mut now) = (0, START);
    for round in 0..rounds {
        let Comparison { connection, texts, rng, sides, is_strict, .. } = &mut comparison;
        let begins = *is_strict && (round == 0 || rng.u8(..25) == 0);
        let steps = [0, 0, 0, 0, 1, 1, 2, 5, 5, 50, 50, 900, 2_001, 61_000];
        now = now + milliseconds(rng, &steps);
        // Some keys get two requests at the same time.
        let mut calls: Vec<(usize, Request)> = Vec::new();
        for (at, side) in sides.iter_mut().enumerate() {
            (side.now, side.shares_fences) = (now, true);
            if begins {
                side.begin_epoch(connection, "");
            } else if round == 0 {
                side.settings = settings("", None);
            }
            calls.push((at, draw(&side.ids, rng)));
            if rng.u8(..4) == 0 {
                calls.push((at, draw(&side.ids, rng)));
            }
        }

        let mut single = Vec::new();
        while !calls.is_empty() {
            let batch = first(&sides[calls[0].0], &calls[0].1).batch();
            let fits = |call: &(usize, Request)| match (first(&sides[call.0], &call.1).batch(), batch) {
                (Some(one), Some(other)) => ptr::eq(one, other),
                _ => false,
            };
            let (batched, rest): (Vec<_>, Vec<_>) = calls.drain(..).partition(fits);
            calls = rest;
            let Some(batch) = batch else {
                single.push(calls.remove(0));
                continue;
            };
            let invocations: Vec<_> =
                batched.iter().map(|(at, request)| first(&sides[*at], request)).collect();
            let command = batch.changed(
                &invocations.iter().collect::<Vec<_>>(),
                |text| texts.change(text),
                now.as_micros(),
            );
            let answers: Vec<Value> = command.query(connection).map_err(|error| error.to_string())?;
            assert_eq!(answers.len(), batched.len());
            for ((at, request), answer) in batched.into_iter().zip(answers) {
                if answer == Value::BulkString(Vec::new()) {
                    single.push((at, request));
                } else {
                    sides[at].agree(&request, answer, &[])?;
                    taken += 1;
                }
            }
        }
        // A call may take two scripts, and the next call at its key comes after both.
        while !single.is_empty() {
            let mut keys = HashSet::new();
            let (sent, rest): (Vec<_>, Vec<_>) = single.drain(..).partition(|(at, _)| keys.insert(*at));
            let answers = send(connection, texts, sent.iter().map(|(at, request)| (&sides[*at], request)));
            for ((at, request), (answer, published)) in sent.iter().zip(answers) {
                sides[*at].agree(request, answer, &published)?;
            }
            single = rest;
        }
    }
    comparison.end();
    Ok(taken)
}

fn assert_agreement(draw: Draw, rounds: usize) {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let taken = run(Comparison::start(&server, None, seed), draw, rounds);
    let taken = taken.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert!(taken > rounds * KEYS / 100, "only {taken} calls were carried out in batches");
}

#[test]
fn locks() {
    assert_agreement(requests::lock, 300);
}

#[test]
fn rate_limiters() {
    assert_agreement(requests::rate_limiter, 300);
}

/// The script skips limiters with a queue.
#[test]
fn rate_limiters_without_a_queue() {
    assert_agreement(requests::rate_limiter_without_a_queue, 300);
}

#[test]
fn rate_limiters_with_large_numbers() {
    assert_agreement(requests::rate_limiter_with_large_numbers, 300);
}

/// The comparison has keys of one kind only.
#[test]
fn limiter_leaves_a_key_of_another_kind_alone() {
    let Some(server) = RedisServer::start() else { return };
    let mut comparison = Comparison::start(&server, None, seed());
    let Comparison { connection, texts, sides, rng, .. } = &mut comparison;
    let side = &sides[0];
    let request = iter::repeat_with(|| requests::rate_limiter_without_a_queue(&side.ids, rng))
        .find(|request| first(side, request).batch().is_some());
    let request = request.expect("an admission");
    let counter = [("kind".to_owned(), "counter".to_owned()), ("value".to_owned(), "7".to_owned())];
    redis::cmd("HSET").arg(side.key.as_str()).arg(&counter).exec(connection).expect("a counter");

    let call = first(side, &request);
    let batch = call.batch().expect("a batch");
    let command = batch.changed(&[&call], |text| texts.change(text), START.as_micros());
    assert_eq!(command.query(connection), Ok(vec![String::new()]));
    let (answer, _) = send(connection, texts, [(side, &request)].into_iter()).remove(0);
    assert_eq!(answer, Value::Array(vec![Value::BulkString(b"wrong_kind".into())]));
    let kept: Vec<(String, String)> = redis::cmd("HGETALL").arg(side.key.as_str()).query(connection).unwrap();
    assert_eq!(kept, counter);
}

/// Plausible bugs of the batch scripts for locks.
const LOCK_BUGS: [Bug; 6] = [
    ("free lock taken past the queue", "(clear or redis.call('EXISTS', queues[i]) == 0)", "true"),
    ("every lock counts as free", "redis.call('EXISTS', unpack(queues)) == 0", "true"),
    ("fence not above the last", "type(before) == 'string' and before >= fence", "false"),
    ("last fence is not kept", "if any then\n  redis", "if false then\n  redis"),
    ("release of the hold of another id", "string.sub(found, 1, 32) == ARGV[i] and", ""),
    ("release past the queue", "and string.byte(found, -1) > 47", ""),
];

/// Plausible bugs of the batch script for limiters.
const LIMITER_BUGS: [Bug; 11] = [
    ("settings not compared", "limiter.words == words", "limiter.words"),
    ("earlier admissions of the batch are not counted", "limiters[key] = limiter", ""),
    (
        "only the first change is written",
        "for _, limiter in pairs(limiters) do",
        "for _, limiter in pairs({select(2, next(limiters))}) do",
    ),
    ("a queue is ignored", "(found[1] ~= words or found[3])", "found[1] ~= words"),
    (
        "a bucket that was new keeps no beat",
        "settings.interval * (algorithm == 'b' and 2 or 1)",
        "settings.interval",
    ),
    ("a full window refuses callers that would wait", "till > patience and", ""),
    ("gcra refuses callers that would wait", "elseif wait <= patience then", "elseif false then"),
    ("patience of another caller", "ARGV[2 * many + i]", "ARGV[2 * many + 1]"),
    ("a refusal by gcra takes tokens", "  if fits then\n", "  if fits or wait > patience then\n"),
    (
        "a full window returns its start",
        "return till > patience",
        "till = interval\n    return till > patience",
    ),
    ("gcra counts the refused tokens as used", "fits and after or debt", "after"),
];

#[test]
fn seeded_bugs_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let found = |draw: Draw, bug: &Bug| {
        shows(&server, |seed| run(Comparison::start(&server, Some(*bug), seed), draw, 100))
    };
    let locks = LOCK_BUGS.iter().filter(|bug| !found(requests::lock, bug));
    let limiters = LIMITER_BUGS.iter().filter(|bug| !found(requests::rate_limiter, bug));
    let missed: Vec<_> = locks.chain(limiters).map(|(name, _, _)| name).collect();
    assert_eq!(missed, [&""; 0]);
}
