//! The Lua and the Rust of each primitive are one step: the same random requests at the same times, answered by a
//! real server and by [`State::step`], give the same replies and the same pushes.

use super::{lock, pushes::Message, script::Answer};
use crate::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{Context, Holding, Push, Reply, State, Wait, lock::Request},
};
use fastrand::Rng;
use locker_harness::RedisServer;
use redis::{Connection, Value};
use std::{collections::HashMap, time::Duration};

const CLOCK: &str = include_str!("differential_clock.lua");
const KEYS: usize = 100;
const ROUNDS: usize = 1_200;

/// One key on both sides, with a time of its own.
struct Side {
    key: Key,
    state: crate::primitives::lock::State,
    ids: Vec<Id>,
    now: Timestamp,
    history: Vec<String>,
}

impl Side {
    fn new(number: usize, rng: &mut Rng) -> Self {
        let ids = (0..2 + number % 6).map(|_| Id::from(rng.u128(..))).collect();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        Self {
            key: Key::new(&format!("k{number}")),
            state: crate::primitives::lock::State::default(),
            ids,
            now,
            history: Vec::new(),
        }
    }

    fn request(&mut self, rng: &mut Rng) -> Request {
        let steps = [0, 0, 0, 1, 1, 2, 5, 50, 900, 2_000, 2_001, 30_000, 61_000];
        self.now = self.now + milliseconds(rng, &steps);
        let id = self.ids[rng.usize(..self.ids.len())];
        let lease = milliseconds(rng, &[1, 2, 5, 50, 1_000, 2_500, 10_000]);
        let live = Some(milliseconds(rng, &[1, 5, 50, 1_000, 30_000]));
        match rng.u8(..10) {
            0 => Holding::Acquire { id, lease, wait: None, ask: () },
            1..=4 => {
                Holding::Acquire { id, lease, wait: Some(Wait { live, fair: rng.u8(..4) > 0 }), ask: () }
            }
            5 | 6 => Holding::Renew { id, lease },
            7 | 8 => Holding::Release { id, tombstone: rng.u8(..8) == 0 },
            _ => Holding::Cancel { id, tombstone: rng.u8(..8) == 0 },
        }
    }

    fn step(&mut self, request: &Request) -> (Reply, Vec<Push>) {
        let mut pushes = Vec::new();
        let mut context = Context { key: &self.key, now: self.now, pushes: &mut pushes };
        let reply = self.state.step(request, &mut context);
        (reply, pushes)
    }
}

fn milliseconds(rng: &mut Rng, choices: &[u64]) -> Duration {
    Duration::from_millis(choices[rng.usize(..choices.len())])
}

/// The scripts as they are run here: moved in time, and perhaps with a bug.
struct Texts {
    bug: Option<Bug>,
    /// By the original text: the changed one and its digest.
    known: HashMap<String, (String, String)>,
    seeded: bool,
}

/// A name, what to look for in the scripts, and what to put there.
type Bug = (&'static str, &'static str, &'static str);

impl Texts {
    fn change(&mut self, original: &str) -> (String, String) {
        if let Some(known) = self.known.get(original) {
            return known.clone();
        }
        let mut body = CLOCK.to_owned() + original;
        if let Some((_, old, new)) = self.bug.filter(|(_, old, _)| body.contains(old)) {
            (body, self.seeded) = (body.replace(old, new), true);
        }
        let digest = redis::Script::new(&body).get_hash().to_owned();
        self.known.insert(original.to_owned(), (body.clone(), digest.clone()));
        (body, digest)
    }
}

/// Sends one call per side in one go; every call is followed by a look at what it published.
fn send(
    connection: &mut Connection,
    texts: &mut Texts,
    sides: &[Side],
    requests: &[Request],
) -> Vec<(Value, Vec<String>)> {
    let mut pipeline = redis::pipe();
    for (side, request) in sides.iter().zip(requests) {
        let call = lock::invocation(&side.key, request, "channel");
        let (by_digest, in_full) = call.changed(&mut |text| texts.change(text), side.now.as_micros());
        let pushes = format!("{{{}}}:pushes", side.key);
        pipeline.add_command(if side.history.len() < 10 { in_full } else { by_digest });
        pipeline.cmd("LRANGE").arg(&pushes).arg(0).arg(-1).cmd("DEL").arg(&pushes).ignore();
    }
    pipeline.ignore_errors();
    let answers: Vec<Value> =
        redis::from_redis_value(pipeline.query(connection).expect("answers")).expect("a list");
    let read = |pair: &[Value]| {
        let published = redis::from_redis_value(pair[1].clone()).unwrap_or_default();
        (pair[0].clone(), published)
    };
    answers.chunks_exact(2).map(read).collect()
}

/// How many requests were answered alike; else the first difference and what led to it.
fn compare(server: &RedisServer, bug: Option<Bug>, rounds: usize, seed: u64) -> Result<usize, String> {
    let mut connection = server.connection();
    let mut texts = Texts { bug, known: HashMap::new(), seeded: false };
    let mut rng = Rng::with_seed(seed);
    let mut sides: Vec<Side> = (0..KEYS).map(|number| Side::new(number, &mut rng)).collect();
    let mut compared = 0;
    for _ in 0..rounds {
        let requests: Vec<Request> = sides.iter_mut().map(|side| side.request(&mut rng)).collect();
        let answers = send(&mut connection, &mut texts, &sides, &requests);
        for ((side, request), (answer, published)) in sides.iter_mut().zip(&requests).zip(answers) {
            side.agree(request, answer, &published)?;
            compared += 1;
        }
    }
    assert!(bug.is_none() || texts.seeded, "no script has the text that {bug:?} changes");
    Ok(compared)
}

impl Side {
    fn agree(&mut self, request: &Request, answer: Value, published: &[String]) -> Result<(), String> {
        let there = Answer::read(answer).and_then(|answer| lock::reply(&answer, request));
        let signals: Vec<_> =
            published.iter().map(|text| Message::read(text).map(|message| message.push)).collect();
        let (here, pushed) = self.step(request);
        if self.history.len() > 60 {
            self.history.drain(..30);
        }
        self.history.push(format!("{} {request:?} -> {here:?} {pushed:?}", self.now));
        let same = there.as_ref().is_ok_and(|there| *there == here)
            && signals == pushed.into_iter().map(Some).collect::<Vec<_>>();
        let last = &self.history[self.history.len().saturating_sub(40)..];
        if same { Ok(()) } else { Err(format!("lua says {there:?} {signals:?} to\n{}", last.join("\n"))) }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("LOCKER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

#[test]
fn lua_and_step_answer_alike() {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let compared = compare(&server, None, ROUNDS, seed);
    let compared = compared.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert!(compared >= 100_000, "{compared}");
}

/// Bugs that other implementations have had, and what a slip would make of this one.
const BUGS: [Bug; 19] = [
    (
        "release without looking whose hold it is",
        "local held = redis.call('GET', KEYS[1]) == ARGV[1]",
        "local held = redis.call('EXISTS', KEYS[1]) == 1",
    ),
    ("no tombstone", "set(tombstone, 1, MINUTE, 'NX')", ""),
    (
        "tombstone not looked at while free",
        "redis.call('EXISTS', KEYS[3], KEYS[6])",
        "redis.call('EXISTS', KEYS[3])",
    ),
    ("tombstone not looked at while contended", "if seen[3] then", "if false then"),
    (
        "free lock taken past the queue",
        "redis.call('EXISTS', KEYS[3], KEYS[6])",
        "redis.call('EXISTS', KEYS[6])",
    ),
    ("no re-check after the pump", "    if holder == id then", "    if false then"),
    ("fence not above the last", "if before and before >= fence then", "if false then"),
    ("fence that counts from 1", "time[1] .. string.sub(time[2] + 1000000, 2)", "'0000000000000001'"),
    (
        "renewal takes a lost lock back",
        "if redis.call('EXISTS', lock) == 0 and",
        "if set(lock, id, ARGV[2], 'NX') then return 'renewed' end\nif redis.call('EXISTS', lock) == 0 and",
    ),
    (
        "renewal gives a waiter a grant with another fence",
        "and not redis.call('ZSCORE', queue, id) then",
        "then",
    ),
    ("dead waiters are served", "if live_until <= time then", "if false then"),
    (
        "last come first served",
        "redis.call('ZRANGE', queue, 0, 0)[1]",
        "redis.call('ZRANGE', queue, -1, -1)[1]",
    ),
    ("grant without a window", "math.min(lease, GRANT_WINDOW)", "lease"),
    ("overtaking who keeps its turn", "first_mode ~= 'fair'", "true"),
    ("cancel keeps the place", "leave(id)\nlocal holder", "local holder"),
    ("cancel hands nothing over", "if not holder or holder == id then\n  hand_over()", "if false then"),
    ("last try keeps the place", "if mode == 'no' then\n  leave(id)", "if mode == 'no' then"),
    ("queue of the dead kept for ever", "  expire(queue, live)\n", ""),
    ("asking again moves to the end", "if not ticket then", "if true then"),
];

#[test]
fn seeded_bugs_are_found() {
    let Some(server) = RedisServer::start() else { return };
    let missed: Vec<_> = BUGS
        .into_iter()
        .filter(|bug| {
            let _: String = server.ask("FLUSHALL", &[]);
            compare(&server, Some(*bug), 150, seed()).is_ok()
        })
        .map(|(name, _, _)| name)
        .collect();
    assert_eq!(missed, [""; 0]);
}
