//! Counters, events, latches, barriers and watchdogs: the calls of the workers, and the state that they leave.
//!
//! A worker reports each step before and after it.

use crate::{clock::now, history::History, kinds::Kind, record::Record};
use fastrand::Rng;
use locker_checker::format::{self, Call, Line, Operation, Outcome};
use locker_runtime::{ErrorKind, Locker, Result};
use std::time::Duration;

/// The count of the latches.
const COUNT: u64 = 4;
/// The parties of the barriers.
const PARTIES: u64 = 3;
/// The time after which all callers change to the next event, latch, barrier and watchdog.
const ROUND: u64 = 400_000_000;
/// The longest time for which a kick lasts.
const LONGEST: Duration = Duration::from_millis(501);
/// How much later than at its end an expiry may be noticed when everything is over.
const UNHURRIED: Duration = Duration::from_secs(3);

/// Takes one step with `name`, and reports it before and after.
pub(crate) fn take_part(
    kind: Kind,
    locker: &Locker,
    record: &Record,
    name: &str,
    rng: &mut Rng,
) -> Option<()> {
    let mut step = begin(kind, record, name, rng);
    record.say(&step)?;
    let taken = take(&mut step, locker);
    (step.outcome, step.ended) = (outcome(taken), Some(now()));
    record.say(&step)
}

fn outcome(taken: Result<()>) -> Outcome {
    match taken.map_err(|error| error.kind()) {
        Ok(()) => Outcome::Done,
        Err(ErrorKind::Conflict) => Outcome::Conflict,
        Err(ErrorKind::TimedOut) => Outcome::TimedOut,
        Err(_) => Outcome::Unknown,
    }
}

/// Decides on a step.
fn begin(kind: Kind, record: &Record, name: &str, rng: &mut Rng) -> Operation {
    let call = match kind {
        Kind::Counter => Call::Add,
        Kind::Event if rng.u8(..4) == 0 => Call::Send,
        Kind::Latch if rng.bool() => Call::CountDown,
        Kind::Watchdog if rng.bool() => Call::Kick,
        _ => Call::Wait,
    };
    let name = if kind == Kind::Counter { name.to_owned() } else { format!("{name}:{}", now() / ROUND) };
    let longest = if rng.u8(..8) == 0 { 4_000 } else { 600 };
    let mut step = record.call(kind.in_history(), &name, call);
    step.size = match kind {
        Kind::Latch => COUNT,
        Kind::Barrier => PARTIES,
        _ => 1,
    };
    match call {
        Call::Send => step.message = Some(rng.u64(..).to_string()),
        Call::Kick => step.lasts = Some(rng.u64(1_000_000..nanos(LONGEST))),
        Call::Wait => step.timeout = Some(rng.u64(..longest) * 1_000_000),
        _ => {}
    }
    step
}

fn take(step: &mut Operation, locker: &Locker) -> Result<()> {
    let (name, patience) = (step.name.as_str(), Duration::from_nanos(step.timeout.unwrap_or(0)));
    match (step.call, step.kind) {
        (Call::Add, _) => {
            locker.counter(name).add_blocking(1).map(|sum| step.value = Some(sum.unsigned_abs()))
        }
        (Call::Send, _) => locker.event(name).send_blocking(step.message.as_deref().unwrap_or_default()),
        (Call::CountDown, _) => {
            locker.latch(name, COUNT).count_down_blocking().map(|left| step.value = Some(left))
        }
        (Call::Kick, _) => locker.watchdog(name).kick_blocking(Duration::from_nanos(step.lasts.unwrap_or(0))),
        (_, format::Kind::Barrier) => locker.barrier(name, PARTIES).wait_blocking(patience),
        _ => wait(step, locker, patience),
    }
}

/// Waits for an event, a latch or a watchdog.
fn wait(step: &mut Operation, locker: &Locker, patience: Duration) -> Result<()> {
    let name = step.name.as_str();
    match step.kind {
        format::Kind::Event => {
            locker.event(name).wait_blocking(patience).map(|message| step.message = Some(message))
        }
        format::Kind::Latch => locker.latch(name, COUNT).wait_blocking(patience),
        _ => locker.watchdog(name).wait_blocking(patience).map(drop),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("seconds")
}

/// Reads what the workers have left, into the history.
pub(crate) fn read(history: &History, locker: &Locker) {
    for ((kind, name), was_kicked) in history.named() {
        let mut read = Operation::new(0, kind, name, Call::Read, now());
        let taken = match kind {
            format::Kind::Counter => {
                let sum = locker.counter(&read.name).get_blocking();
                sum.map(|sum| read.value = Some(sum.unsigned_abs()))
            }
            _ => wait(&mut read, locker, if was_kicked { LONGEST + UNHURRIED } else { Duration::ZERO }),
        };
        (read.outcome, read.ended) = (outcome(taken), Some(now()));
        history.write(&Line::Operation(Box::new(read)));
    }
}
