//! The Lua and the Rust of each primitive are one step: the same random requests at the same times, answered by a
//! real server and by [`State::step`], give the same replies and the same notifications.

mod bugs;
mod requests;
mod together;

use super::{
    lock::{self, Member},
    push_receiver::Message,
    script::{Answer, Invocation},
    shared,
};
use crate::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{
        AnyState, Context, HoldRequest, Notification, Reply, Request, Signal, lock as lock_primitive,
    },
};
use fastrand::Rng;
use locker_harness::RedisServer;
use redis::{Connection, Value};
use requests::Draw;
use std::{collections::HashMap, sync::Arc, time::Duration};

const CLOCK: &str = include_str!("differential_clock.lua");
const KEYS: usize = 100;
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// One key on both sides, with a time of its own.
struct Side {
    key: Key,
    state: Option<AnyState>,
    ids: Vec<Id>,
    now: Timestamp,
    /// Somebody looks before the next request.
    is_looked_at: bool,
    history: Vec<String>,
}

impl Side {
    fn new(number: usize, rng: &mut Rng) -> Self {
        let ids = (0..2 + number % 6).map(|_| Id::from(rng.u128(..))).collect();
        let key = Key::new(&format!("k{number}"));
        Self { key, state: None, ids, now: START, is_looked_at: false, history: Vec::new() }
    }

    fn request(&mut self, rng: &mut Rng, draw: Draw, back: &[u64]) -> Request {
        let steps = [0, 0, 0, 1, 1, 2, 5, 50, 900, 2_000, 2_001, 30_000, 61_000];
        self.now = self.now + milliseconds(rng, &steps) - milliseconds(rng, back);
        self.is_looked_at = rng.u8(..8) == 0;
        draw(&self.ids, rng)
    }

    /// As the store makes it.
    fn invocation(&self, request: &Request) -> Invocation {
        let channel = Arc::from("channel");
        match request {
            Request::Lock(request) => lock::invocation(&self.key, request, &process_of(request)),
            request => shared::invocation(&self.key, request, &channel).expect("of a kind"),
        }
    }

    /// Nothing changes by it.
    fn look(&self, request: &Request) -> Option<Invocation> {
        shared::inspect(&self.key, kind(request)).filter(|_| self.is_looked_at)
    }

    fn step(&mut self, request: &Request) -> (Reply, Vec<Notification>) {
        let mut notifications = Vec::new();
        let state = self.state.get_or_insert_with(|| AnyState::for_request(request).expect("of a kind"));
        let reply = state
            .step(request, &mut Context { key: &self.key, now: self.now, notifications: &mut notifications });
        (reply, notifications)
    }
}

/// What the primitive calls itself in its key; nothing of those that have no script of their own to look at.
fn kind(request: &Request) -> &'static str {
    match request {
        Request::Semaphore(_) => "semaphore",
        Request::RateLimiter(_) => "rate",
        Request::Event(_) => "event",
        Request::Watchdog(_) => "watchdog",
        Request::Barrier(_) => "barrier",
        Request::Latch(_) => "latch",
        Request::Counter(_) => "counter",
        Request::Lock(_) | Request::Inspect | Request::Delete(_) => "",
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

/// Sends calls in one go; every call is followed by a look at what it published.
fn send<'a>(
    connection: &mut Connection,
    texts: &mut Texts,
    calls: impl Iterator<Item = (&'a Side, &'a Request)>,
) -> Vec<(Value, Vec<String>)> {
    let mut pipeline = redis::pipe();
    for (side, request) in calls {
        let mut command = |call: Invocation| {
            let (by_digest, in_full) = call.changed(&mut |text| texts.change(text), side.now.as_micros());
            if side.history.len() < 10 { in_full } else { by_digest }
        };
        if let Some(look) = side.look(request) {
            pipeline.add_command(command(look)).ignore();
        }
        pipeline.add_command(command(side.invocation(request)));
        let notifications = format!("{{{}}}:pushes", side.key);
        pipeline.cmd("LRANGE").arg(&notifications).arg(0).arg(-1).cmd("DEL").arg(&notifications).ignore();
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

/// A comparison on its way.
struct Run {
    connection: Connection,
    texts: Texts,
    rng: Rng,
    sides: Vec<Side>,
}

impl Run {
    fn start(server: &RedisServer, bug: Option<Bug>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let sides = (0..KEYS).map(|number| Side::new(number, &mut rng)).collect();
        let texts = Texts { bug, known: HashMap::new(), seeded: false };
        Self { connection: server.connection(), texts, rng, sides }
    }

    /// The bug that was to be put in was put in.
    fn end(self) {
        let Texts { bug, seeded, .. } = self.texts;
        assert!(bug.is_none() || seeded, "no script has the text that {bug:?} changes");
    }
}

/// How many requests were answered alike; else the first difference and what led to it.
fn compare(
    server: &RedisServer,
    draw: Draw,
    rounds: usize,
    bug: Option<Bug>,
    seed: u64,
) -> Result<usize, String> {
    compare_while_set_back(server, draw, &[0], rounds, bug, seed)
}

/// The same with a clock that each time may be set back by so many milliseconds.
fn compare_while_set_back(
    server: &RedisServer,
    draw: Draw,
    back: &[u64],
    rounds: usize,
    bug: Option<Bug>,
    seed: u64,
) -> Result<usize, String> {
    let mut run = Run::start(server, bug, seed);
    let mut compared = 0;
    for _ in 0..rounds {
        let Run { connection, texts, rng, sides } = &mut run;
        let requests: Vec<Request> = sides.iter_mut().map(|side| side.request(rng, draw, back)).collect();
        let answers = send(connection, texts, sides.iter().zip(&requests));
        for ((side, request), (answer, published)) in sides.iter_mut().zip(&requests).zip(answers) {
            side.agree(request, answer, &published)?;
            compared += 1;
        }
    }
    run.end();
    Ok(compared)
}

impl Side {
    fn agree(&mut self, request: &Request, answer: Value, published: &[String]) -> Result<(), String> {
        let there = Answer::read(answer).and_then(|answer| reply(&answer, request));
        let signals: Vec<_> = published.iter().filter_map(|text| signal(text)).collect();
        let (here, pushed) = self.step(request);
        if self.history.len() > 60 {
            self.history.drain(..30);
        }
        self.history.push(format!("{} {request:?} -> {here:?} {pushed:?}", self.now));
        let same = there.as_ref().is_ok_and(|there| *there == here) && signals == pushed;
        let last = &self.history[self.history.len().saturating_sub(40)..];
        if same { Ok(()) } else { Err(format!("lua says {there:?} {signals:?} to\n{}", last.join("\n"))) }
    }
}

/// Whether a bug shows in one of several runs on an empty server: some matter only in rare cases.
fn shows<T>(server: &RedisServer, mut run: impl FnMut(u64) -> Result<T, String>) -> bool {
    let seed = seed();
    (0..20).any(|more| {
        let _: String = server.ask("FLUSHALL", &[]);
        run(seed.wrapping_add(more)).is_err()
    })
}

fn seed() -> u64 {
    let seed = std::env::var("LOCKER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

fn reply(answer: &Answer, request: &Request) -> crate::Result<Reply> {
    match request {
        Request::Lock(request) => lock::reply(answer, request),
        request => shared::reply(answer, request),
    }
}

/// Every waiter for a lock has a process of its own, so that no run has two members: the step knows no processes. That
/// longer runs serve waiters as the step does is shown by `runs_serve_waiters_as_the_step_does`.
fn process_of(request: &lock_primitive::Request) -> Arc<str> {
    match request {
        HoldRequest::Acquire { id, .. } => Arc::from(format!("of:{id}")),
        _ => Arc::from("another"),
    }
}

/// What a message says to a waiter; nothing where it is for a holder, which the step sends none.
fn signal(text: &str) -> Option<Notification> {
    match Message::read(text).unwrap_or_else(|| panic!("no message: {text}")) {
        Message::Run(key, run) => {
            let members: Vec<_> = run.members().collect();
            let [Member { id, fence, .. }] = members[..] else { panic!("a run of several: {text}") };
            Some(Notification { key, id, signal: Signal::Granted { fence } })
        }
        Message::Lost(..) => None,
        Message::Permits(push) | Message::Hint(push) | Message::Deleted(push, _) => Some(push),
    }
}

fn alike(draw: Draw, rounds: usize) {
    alike_while_set_back(draw, &[0], rounds);
}

fn alike_while_set_back(draw: Draw, back: &[u64], rounds: usize) {
    let Some(server) = RedisServer::start() else { return };
    let seed = seed();
    let compared = compare_while_set_back(&server, draw, back, rounds, None, seed);
    let compared = compared.unwrap_or_else(|difference| panic!("LOCKER_TEST_SEED={seed}: {difference}"));
    assert_eq!(compared, rounds * KEYS);
}

#[test]
fn rate_limiters_answer_alike_when_the_clock_is_set_back() {
    alike_while_set_back(requests::rate_limiter_once_each, &[0, 0, 0, 0, 1, 40, 900, 30_000, 90_000], 400);
}

macro_rules! alike {
    ($($primitive:ident: $rounds:literal;)+) => {
        mod lua_and_step_answer_alike {
            $(#[test]
            fn $primitive() {
                super::alike(super::requests::$primitive, $rounds);
            })+
        }
    };
}

alike! {
    lock: 1_200;
    semaphore: 1_200;
    rate_limiter: 1_200;
    rate_limiter_with_a_long_line: 400;
    rate_limiter_with_large_numbers: 400;
    event: 300;
    watchdog: 300;
    barrier: 300;
    latch: 300;
    counter: 300;
}
