//! Counters, events, latches, barriers and watchdogs: the calls of the workers, and the verdict on them.
//!
//! A worker reports each step before and after it. A step without a second report, because its worker was killed or its
//! outcome is unknown, may have been taken at any later time, or never.

use crate::{
    kinds::Kind,
    record::{now, say},
};
use fastrand::Rng;
use locker_checker::steps::{COUNT, Calm, LONGEST, Left, PARTIES, Part, Parts, Step, done, lasts, problems};
use locker_runtime::{ErrorKind, Locker, Result};
use std::time::Duration;

/// The time after which all callers change to the next event, latch, barrier and watchdog.
const ROUND: u64 = 400_000_000;

/// Takes one step with `name`, and reports it before and after.
pub(crate) fn take_part(kind: Kind, locker: &Locker, name: &str, rng: &mut Rng) -> Option<()> {
    let name = if kind == Kind::Counter { name.to_owned() } else { format!("{name}:{}", now() / ROUND) };
    let longest = if rng.u8(..8) == 0 { 4_000 } else { 600 };
    let (patience, id) = (Duration::from_millis(rng.u64(..longest)), rng.u64(..));
    let step = match kind {
        Kind::Counter => Step::Add,
        Kind::Event if rng.u8(..4) == 0 => Step::Send,
        Kind::Event => Step::Await,
        Kind::Latch if rng.bool() => Step::CountDown,
        Kind::Latch => Step::Pass,
        Kind::Watchdog if rng.bool() => Step::Kick,
        Kind::Watchdog => Step::Expire,
        _ => Step::Arrive,
    };
    say(&format!("trying {name} {step:?} {id} {} .", now()))?;
    match take(step, locker, &name, id, patience) {
        Ok(value) => say(&format!("done {name} {id} {value} {} .", now())),
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::TimedOut) => {
            say(&format!("not {name} {id} {} .", now()))
        }
        Err(_) => Some(()),
    }
}

fn take(step: Step, locker: &Locker, name: &str, id: u64, patience: Duration) -> Result<u64> {
    // No sender has sent any other text.
    let sender = |text: String| text.parse().unwrap_or(u64::MAX);
    match step {
        Step::Add => locker.counter(name).add_blocking(1).map(i64::unsigned_abs),
        Step::Send => locker.event(name).send_blocking(&id.to_string()).map(|()| id),
        Step::Await => locker.event(name).wait_blocking(patience).map(sender),
        Step::CountDown => locker.latch(name, COUNT).count_down_blocking(),
        Step::Pass => locker.latch(name, COUNT).wait_blocking(patience).map(|()| 0),
        Step::Arrive => locker.barrier(name, PARTIES).wait_blocking(patience).map(|()| 0),
        Step::Kick => locker.watchdog(name).kick_blocking(Duration::from_nanos(lasts(id))).map(|()| 0),
        Step::Expire => locker.watchdog(name).wait_blocking(patience).map(|()| 0),
    }
}

/// How much later than at its end an expiry may be noticed when everything is over.
const UNHURRIED: Duration = Duration::from_secs(3);

/// Judges all steps, and the state that they left in the store.
pub(crate) fn judge(parts: &Parts, locker: &Locker, calm: Calm) -> Vec<String> {
    let judge = |(name, parts): (&String, &Vec<Part>)| {
        let found = match left(locker, name, parts) {
            Ok(left) => problems(parts, left, calm),
            Err(error) => vec![format!("the state that is left cannot be read: {error}")],
        };
        found.into_iter().map(|problem| format!("on {name}, {problem}")).collect::<Vec<_>>()
    };
    parts.iter().flat_map(judge).collect()
}

fn left(locker: &Locker, name: &str, parts: &[Part]) -> Result<Left> {
    let no_wait = Duration::ZERO;
    let look = |there: Result<()>| match there {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        there => there.map(|()| true),
    };
    match Kind::of(name) {
        Some(Kind::Counter) => locker.counter(name).get_blocking().map(|sum| Left::Sum(sum.unsigned_abs())),
        Some(Kind::Event) => {
            let mut message = None;
            let sent = locker
                .event(name)
                .wait_blocking(no_wait)
                .map(|text| message = Some(text.parse().unwrap_or(u64::MAX)));
            look(sent).map(|_| Left::Message(message))
        }
        Some(Kind::Latch) => look(locker.latch(name, COUNT).wait_blocking(no_wait)).map(Left::Open),
        Some(Kind::Watchdog) => {
            let was_kicked = !done(parts, Step::Kick).is_empty();
            let longest = if was_kicked { Duration::from_nanos(LONGEST) + UNHURRIED } else { no_wait };
            look(locker.watchdog(name).wait_blocking(longest)).map(Left::Expired)
        }
        _ => Ok(Left::Nothing),
    }
}
