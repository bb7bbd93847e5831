//! Counters, events, latches, barriers and watchdogs: the calls, and the state that they leave.
//!
//! A step that has not ended as far as is known, because its process was killed or its outcome is unknown, may be taken
//! at any later time, or never.

mod laws;

pub(crate) use laws::{Calm, problems};

use crate::{
    format::{Call, Kind, Operation, Outcome},
    history::Called,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add,
    Send,
    Await,
    CountDown,
    Pass,
    Arrive,
    Kick,
    Expire,
}

impl Step {
    fn of(call: &Operation) -> Option<Self> {
        Some(match (call.kind, call.call) {
            (Kind::Counter, Call::Add) => Self::Add,
            (Kind::Event, Call::Send) => Self::Send,
            (Kind::Event, Call::Wait) => Self::Await,
            (Kind::Latch, Call::CountDown) => Self::CountDown,
            (Kind::Latch, Call::Wait) => Self::Pass,
            (Kind::Barrier, Call::Wait) => Self::Arrive,
            (Kind::Watchdog, Call::Kick) => Self::Kick,
            (Kind::Watchdog, Call::Wait) => Self::Expire,
            _ => return None,
        })
    }
}

/// What is known about one step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    line: usize,
    step: Step,
    /// The message of a sender, as its place in [`Messages`].
    message: u64,
    /// What is added to a counter.
    amount: u64,
    /// How long a kick lasts.
    lasts: u64,
    asked: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    at: u64,
    /// The value that the step returned, or `None` if it provably was not taken.
    value: Option<u64>,
}

impl Part {
    fn of(called: &Called, messages: &mut Messages) -> Option<Self> {
        let call = &called.it;
        let (step, message) = (Step::of(call)?, messages.number(call));
        let value = match call.outcome {
            Outcome::Done if call.kind == Kind::Event => Some(Some(message)),
            Outcome::Done => Some(call.value.or(Some(0))),
            Outcome::TimedOut | Outcome::Conflict => Some(None),
            _ => None,
        };
        let ended = value.and_then(|value| Some(Ended { at: call.ended?, value }));
        let (amount, lasts) = (call.amount, call.lasts.unwrap_or(0));
        Some(Self { line: called.line, step, message, amount, lasts, asked: call.asked, ended })
    }

    /// Returns `true` if the step provably was taken.
    fn is_done(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_some())
    }

    /// Returns `true` if the step provably was not taken.
    fn is_not_taken(&self) -> bool {
        self.ended.is_some_and(|ended| ended.value.is_none())
    }

    /// Returns the latest time at which the step can have ended.
    fn over(&self) -> u64 {
        self.ended.map_or(u64::MAX, |ended| ended.at)
    }
}

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    at: u64,
    value: u64,
    line: usize,
}

/// Returns these steps as far as they were taken, in order of time.
fn done(parts: &[Part], step: Step) -> Vec<Done> {
    let taken = parts.iter().filter(|part| part.step == step).filter_map(|part| {
        let Ended { at, value } = part.ended?;
        Some(Done { at, value: value?, line: part.line })
    });
    let mut done: Vec<Done> = taken.collect();
    done.sort_unstable();
    done
}

/// The state that the callers left, as it was read in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    line: usize,
    /// The sum, or the message if there is one. A latch that is open, and a watchdog that has expired, have some value.
    value: Option<u64>,
}

impl Left {
    fn of(called: &Called, messages: &mut Messages) -> Option<Self> {
        let (line, call) = (called.line, &called.it);
        let value = || match call.kind {
            Kind::Event => messages.number(call),
            _ => call.value.unwrap_or(0),
        };
        let is_known = call.call == Call::Read && call.outcome != Outcome::Unknown;
        is_known.then(|| (call.outcome == Outcome::Done).then(value)).map(|value| Self { line, value })
    }

    fn is_there(self) -> bool {
        self.value.is_some()
    }
}

/// The messages of an event, each with a number.
#[derive(Debug, Default)]
struct Messages(Vec<String>);

impl Messages {
    fn number(&mut self, call: &Operation) -> u64 {
        let Some(message) = &call.message else { return 0 };
        let known = self.0.iter().position(|known| known == message);
        let place = known.unwrap_or_else(|| {
            self.0.push(message.clone());
            self.0.len() - 1
        });
        place as u64
    }
}
