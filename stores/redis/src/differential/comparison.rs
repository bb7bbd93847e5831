//! The comparison of scripts on a server with [`State::step`](locker_core::primitives::State::step).

use super::requests::{Draw, START, milliseconds};
use crate::{
    codec::{
        lock::{self, Member},
        primitives,
    },
    push_receiver::Message,
    records::Records,
    script::{Invocation, ScriptReply, Settings, Text},
    strict::{
        SLACK, Strict,
        reference::{Answer, Record, Rules},
    },
    watchers::waiter,
};
use fastrand::Rng;
use locker_core::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{AnyState, Context, HoldRequest, Notification, Reply, Request, Signal},
};
use locker_harness::RedisServer;
use redis::{Connection, Value};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

const CLOCK: &str = include_str!("clock.lua");
pub(super) const KEYS: usize = 100;

/// The longest lease in strict mode. Some requests have longer ones, which a locker would refuse.
const LONGEST: Duration = Duration::from_secs(3);

/// A key on both sides, with its own time.
pub(super) struct Side {
    pub(super) key: Key,
    pub(super) state: Option<AnyState>,
    pub(super) ids: Vec<Id>,
    pub(super) now: Timestamp,
    /// Whether an inspection comes before the next request.
    pub(super) is_inspected: bool,
    pub(super) history: Vec<String>,
    /// With a record of fences of its own: each side has its own time.
    pub(super) settings: Arc<Settings>,
    /// Whether names share the record, so that a fence may be higher than that of the step.
    pub(super) shares_fences: bool,
    pub(super) strict: Option<Record>,
    /// The waiters that were queued since all of them were told last. Each is a process of its own.
    told_together: HashSet<Id>,
    /// Whether dead waiters may be left at the server. They count in the places of others, and their processes are
    /// told.
    has_dead: bool,
}

pub(super) fn settings(prefix: &str, strict: Option<Strict>) -> Arc<Settings> {
    Arc::new(Settings { records: Records::new(prefix, false), strict })
}

impl Side {
    fn new(number: usize, rng: &mut Rng) -> Self {
        let ids = (0..2 + number % 6).map(|_| Id::from(rng.u128(..))).collect();
        let key = Key::new(&format!("k{number}"));
        Self {
            settings: settings(key.as_str(), None),
            shares_fences: false,
            key,
            state: None,
            ids,
            now: START,
            is_inspected: false,
            history: Vec::new(),
            strict: None,
            told_together: HashSet::new(),
            has_dead: false,
        }
    }

    fn request(&mut self, rng: &mut Rng, draw: Draw, back: &[u64]) -> Request {
        let steps = [0, 0, 0, 1, 1, 2, 5, 50, 900, 2_000, 2_001, 30_000, 61_000];
        self.now = self.now + milliseconds(rng, &steps) - milliseconds(rng, back);
        self.is_inspected = rng.u8(..8) == 0;
        draw(&self.ids, rng)
    }

    /// Returns the call of the store.
    pub(super) fn invocation(&self, request: &Request) -> Invocation {
        let channel = process_of(request);
        match request {
            Request::Lock(request) => lock::invocation(&self.key, request, &channel),
            request => primitives::invocation(&self.key, request, &channel).expect("of a kind"),
        }
        .of(&self.settings)
    }

    /// Begins an epoch of the server on both sides, whose first call is now.
    pub(super) fn begin_epoch(&mut self, connection: &mut Connection, prefix: &str) {
        self.settings = settings(prefix, Some(Strict { longest: LONGEST }));
        let info: String = redis::cmd("INFO").arg("replication").query(connection).expect("facts");
        let id = info.lines().find_map(|line| line.strip_prefix("master_replid:")).expect("an id");
        let record = format!("{id} {} {}", self.now.as_micros(), LONGEST.as_micros());
        let mut key = String::new();
        self.settings.records.write(&self.key, "epoch", &mut key);
        redis::cmd("SET").arg(key).arg(record).exec(connection).expect("a record");
        self.strict = Some(Record { epoch: 1, began: self.now, longest: LONGEST });
    }

    /// Returns a call that must not change anything.
    fn inspection(&self, request: &Request) -> Option<Invocation> {
        primitives::inspect(&self.key, kind(request)).filter(|_| self.is_inspected)
    }

    /// Carries out the step, after a grant of another name with a fence that comes before `fence`, if names share the
    /// record.
    fn step(&mut self, request: &Request, fence: Option<u64>) -> (Answer, Vec<Notification>) {
        let mut notifications = Vec::new();
        let state = self.state.get_or_insert_with(|| AnyState::for_request(request).expect("of a kind"));
        if let Some(fence) = fence.filter(|_| self.shares_fences) {
            state.raise_fence(fence - 1);
        }
        if self.strict.is_some() {
            let record = &mut self.strict;
            let rules = Rules { longest: LONGEST, slack: SLACK, bug: None };
            return rules.call(record, 1, state, request, (&self.key, self.now));
        }
        let reply = state.step(request, &mut Context::new(&self.key, self.now, &mut notifications));
        (Answer::Reply(reply), notifications)
    }
}

/// Returns the kind of the primitive in its key, or nothing for requests without an inspecting script.
fn kind(request: &Request) -> &'static str {
    match request {
        Request::Semaphore(_) => "semaphore",
        Request::RateLimiter(_) => "rate",
        Request::Event(_) => "event",
        Request::Watchdog(_) => "watchdog",
        Request::Barrier(_) => "barrier",
        Request::Latch(_) => "latch",
        Request::Counter(_) => "counter",
        Request::Record(_) => "record",
        Request::Lock(_) | Request::Inspect | Request::Delete(_) => "",
    }
}

/// The scripts of a comparison, with a simulated clock and perhaps a bug.
pub(super) struct Texts {
    pub(super) bug: Option<Bug>,
    /// By digest of the original.
    pub(super) changed: HashMap<String, Arc<Text>>,
    pub(super) seeded: bool,
}

/// A name, a text in the scripts, and its replacement.
pub(super) type Bug = (&'static str, &'static str, &'static str);

impl Texts {
    pub(super) fn change(&mut self, original: &Text) -> Arc<Text> {
        if let Some(changed) = self.changed.get(&original.digest) {
            return changed.clone();
        }
        let mut body = CLOCK.to_owned() + &original.body;
        if let Some((_, old, new)) = self.bug.filter(|(_, old, _)| body.contains(old)) {
            (body, self.seeded) = (body.replace(old, new), true);
        }
        let changed = Arc::new(Text::new(body));
        self.changed.insert(original.digest.clone(), changed.clone());
        changed
    }
}

/// Sends calls, and reads the messages of each call. Those whose first script has done nothing go out again.
pub(super) fn send<'a>(
    connection: &mut Connection,
    texts: &mut Texts,
    calls: impl Iterator<Item = (&'a Side, &'a Request)>,
) -> Vec<(Value, Vec<String>)> {
    let calls: Vec<_> = calls.collect();
    let whole = |(side, request): (&'a Side, &'a Request)| (side, request, side.invocation(request));
    let first = |(side, request, call): (&'a Side, &'a Request, Invocation)| {
        (side, request, call.first().unwrap_or(call))
    };
    let mut answers = send_once(connection, texts, calls.iter().copied().map(whole).map(first));
    let undone: Vec<_> = (0..calls.len()).filter(|at| answers[*at].0 == Value::Nil).collect();
    if undone.is_empty() {
        return answers;
    }
    let again = send_once(connection, texts, undone.iter().map(|at| whole(calls[*at])));
    for (at, (answer, published)) in undone.into_iter().zip(again) {
        answers[at].0 = answer;
        answers[at].1.extend(published);
    }
    answers
}

/// Sends calls in one pipeline.
fn send_once<'a>(
    connection: &mut Connection,
    texts: &mut Texts,
    calls: impl Iterator<Item = (&'a Side, &'a Request, Invocation)>,
) -> Vec<(Value, Vec<String>)> {
    let mut pipeline = redis::pipe();
    for (side, request, call) in calls {
        let mut command = |call: Invocation| {
            call.changed(|text| texts.change(text), side.history.len() < 10, side.now.as_micros())
        };
        if let Some(inspection) = side.inspection(request) {
            pipeline.add_command(command(inspection)).ignore();
        }
        pipeline.add_command(command(call));
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

/// A running comparison.
pub(super) struct Comparison {
    pub(super) connection: Connection,
    pub(super) texts: Texts,
    pub(super) rng: Rng,
    pub(super) sides: Vec<Side>,
    back: &'static [u64],
    pub(super) is_strict: bool,
}

impl Comparison {
    pub(super) fn start(server: &RedisServer, bug: Option<Bug>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let sides = (0..KEYS).map(|number| Side::new(number, &mut rng)).collect();
        let texts = Texts { bug, changed: HashMap::new(), seeded: false };
        Self { connection: server.connection(), texts, rng, sides, back: &[0], is_strict: false }
    }

    /// With the scripts of strict mode.
    pub(super) fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// With a clock that may step `back` by these milliseconds before each request.
    pub(super) fn set_back(self, back: &'static [u64]) -> Self {
        Self { back, ..self }
    }

    /// With scripts that remove one former or dead waiter per call.
    pub(super) fn in_parts(mut self) -> Self {
        self.texts.bug = Some(("one at a time", "local PURGE = 1000", "local PURGE = 1"));
        self.sides.iter_mut().for_each(|side| side.has_dead = true);
        self
    }

    /// Returns how many requests had the same result, or the first difference with its history.
    pub(super) fn run(mut self, draw: Draw, rounds: usize) -> Result<usize, String> {
        let mut compared = 0;
        for round in 0..rounds {
            let Self { connection, texts, rng, sides, back, is_strict } = &mut self;
            for side in sides.iter_mut().filter(|_| *is_strict) {
                if round == 0 || rng.u8(..25) == 0 {
                    let prefix = side.key.as_str().to_owned();
                    side.begin_epoch(connection, &prefix);
                }
            }
            let requests: Vec<Request> = sides.iter_mut().map(|side| side.request(rng, draw, back)).collect();
            let answers = send(connection, texts, sides.iter().zip(&requests));
            for ((side, request), (answer, published)) in sides.iter_mut().zip(&requests).zip(answers) {
                side.agree(request, answer, &published)?;
                compared += 1;
            }
            if round % 8 == 7 {
                self.compare_waiters()?;
            }
        }
        self.end();
        Ok(compared)
    }

    /// Asserts that the bug was seeded.
    pub(super) fn end(self) {
        let Texts { bug, seeded, .. } = self.texts;
        assert!(bug.is_none() || seeded, "no script has the text that {bug:?} changes");
    }
}

impl Side {
    /// Compares the result of the server with that of the step.
    pub(super) fn agree(
        &mut self,
        request: &Request,
        answer: Value,
        published: &[String],
    ) -> Result<(), String> {
        let lua = ScriptReply::read(answer).and_then(|answer| reply(&answer, request));
        let (together, signals): (Vec<_>, Vec<_>) =
            published.iter().filter_map(|text| signal(text)).partition(|(_, is_for_all)| *is_for_all);
        let [together, signals] =
            [together, signals].map(|all| all.into_iter().map(|(signal, _)| signal).collect::<Vec<_>>());
        let fences = signals.iter().filter_map(|told| match told.signal {
            Signal::Granted { fence } => Some(fence),
            _ => None,
        });
        let granted = lua.as_ref().ok().and_then(|reply| match reply {
            Reply::Granted { fence } | Reply::Begun { fence, .. } => Some(*fence),
            _ => None,
        });
        let fence = fences.chain(granted).max();
        let (step, notifications) = self.step(request, fence);
        if self.history.len() > 60 {
            self.history.drain(..30);
        }
        self.history.push(format!("{} {request:?} -> {step:?} {notifications:?}", self.now));
        let same_reply = match &step {
            Answer::Reply(step) => lua.as_ref().is_ok_and(|lua| match (lua, step) {
                (
                    Reply::Queued { ahead: seen, recheck_after: lua },
                    Reply::Queued { ahead, recheck_after },
                ) if self.has_dead => seen >= ahead && lua == recheck_after,
                _ => lua == step,
            }),
            Answer::Quiet(left) => lua.as_ref().is_err_and(|error| error.retry_after() == Some(*left)),
        };
        let same_signals = if together.is_empty() {
            signals == notifications
        } else {
            signals.is_empty() && self.are_told(&together, &notifications)
        };
        if let (Ok(Reply::Queued { .. }), Some((id, _))) = (&lua, waiter(request)) {
            self.told_together.insert(id);
        }
        let same = same_reply && same_signals;
        let last = &self.history[self.history.len().saturating_sub(40)..];
        if same {
            Ok(())
        } else {
            Err(format!("lua returns {lua:?} {signals:?} {together:?} for\n{}", last.join("\n")))
        }
    }
}

impl Side {
    /// Returns whether messages to whole processes reach all waiters that the step notifies, each once. A process whose
    /// waiter has left meanwhile may get one as well.
    fn are_told(&mut self, together: &[Notification], notifications: &[Notification]) -> bool {
        let queued = std::mem::take(&mut self.told_together);
        let ids: HashSet<_> = together.iter().map(|told| told.id).collect();
        (self.has_dead || !notifications.is_empty())
            && ids.len() == together.len()
            && ids.is_subset(&queued)
            && notifications.iter().all(|told| together.contains(told))
    }
}

/// Returns whether one of many runs on an empty server finds a bug. Most bugs show in the first run, rare ones in one
/// run of five.
pub(super) fn shows<T>(server: &RedisServer, mut run: impl FnMut(u64) -> Result<T, String>) -> bool {
    let seed = seed();
    (0..60).any(|more| {
        let _: String = server.ask("FLUSHALL", &[]);
        run(seed.wrapping_add(more)).is_err()
    })
}

pub(super) fn seed() -> u64 {
    let seed = std::env::var("LOCKER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

fn reply(answer: &ScriptReply, request: &Request) -> crate::Result<Reply> {
    match request {
        Request::Lock(request) => lock::reply(answer, request),
        request => primitives::reply(answer, request),
    }
}

/// Returns the channel of a waiter, which has its own process, because the step knows no processes: so no run of a lock
/// has two members. A test in `tests` compares longer runs.
fn process_of(request: &Request) -> Arc<str> {
    match request {
        Request::Lock(HoldRequest::Acquire { id, .. }) => Arc::from(format!("{OF}{id}")),
        Request::Semaphore(HoldRequest::Acquire { id, .. }) => Arc::from(format!("{OF}{}", id.inbox())),
        request => waiter(request).map_or("another".into(), |(id, _)| Arc::from(format!("{OF}{id}"))),
    }
}

const OF: &str = "of:";

/// Returns the notification of a waiter, and whether it is for all waiters of its process. Returns `None` for a message
/// to a holder, which the step does not send.
fn signal(published: &str) -> Option<(Notification, bool)> {
    let (channel, text) = published.split_once(' ').expect("a channel and a message");
    Some(match Message::read(text).unwrap_or_else(|| panic!("not a message: {text}")) {
        Message::Run(key, run) => {
            let members: Vec<_> = run.members().collect();
            let [Member { id, fence, .. }] = members[..] else { panic!("a run of several: {text}") };
            (Notification { key, id, signal: Signal::Granted { fence } }, false)
        }
        Message::Lost(..) => return None,
        Message::All(key, signal) => {
            let id = channel.strip_prefix(OF).and_then(Id::parse).expect("the waiter of this process");
            (Notification { key, id, signal }, true)
        }
        Message::Permits(notification) | Message::Hint(notification) | Message::Deleted(notification, _) => {
            (notification, false)
        }
    })
}
