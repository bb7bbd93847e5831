//! Which fields a call has.

use super::times;
use crate::format::{Call, Kind, Operation, Outcome, Quota};

/// Checks that a call has the fields of its kind and outcome, and times in order.
pub(super) fn check(call: &Operation) -> Result<(), String> {
    let need = |is_there: bool, what: &str| if is_there { Ok(()) } else { Err(what.to_owned()) };
    let times: Vec<u64> = times(call).into_iter().flatten().collect();
    need(times.is_sorted(), "times are not in the order asked, entered, seen, left, ended")?;
    need(fits(call.kind, call.call), "this kind has no such call")?;
    need(ends(call), "this call has no such outcome")?;
    need(call.call == Call::Read || call.ended.is_some() == has_ended(call), "outcome and `ended` disagree")?;
    need(call.size > 0, "size 0")?;
    need(call.size == 1 || has_size(call.kind), "this kind has no size")?;
    need(call.permits == 1 || call.kind == Kind::Semaphore, "this kind has no permits")?;
    need(call.kind == Kind::Lock || call.around.is_empty(), "`around` belongs to lock")?;
    need(call.permits > 0 && call.tokens > 0, "0 permits or tokens")?;
    let done = call.outcome == Outcome::Done;
    match call.call {
        Call::Acquire => {
            need(call.entered.is_some() == is_hold(call.outcome), "outcome and `entered` disagree")?;
            need(call.fence.is_some() == is_hold(call.outcome), "outcome and `fence` disagree")?;
            need((call.kind == Kind::ReadWrite) == call.mode.is_some(), "`mode` belongs to read-write")?;
            need(call.permits <= call.size, "more permits than the semaphore has")
        }
        Call::Admit => need(call.quota.is_some_and(Quota::is_possible), "it needs a quota"),
        Call::Add => need(call.value.is_some() == done && call.amount > 0, "a sum and an amount are missing"),
        Call::Send => need(call.message.is_some(), "it needs a message"),
        Call::CountDown => need(call.value.is_some() == done, "it needs what is left as `value`"),
        Call::Kick => need(call.lasts.is_some(), "it needs `lasts`"),
        Call::Wait | Call::Read => match call.kind {
            Kind::Event => need(call.message.is_some() == done, "outcome and `message` disagree"),
            Kind::Counter => need(call.value.is_some() == done, "outcome and `value` disagree"),
            _ => Ok(()),
        },
    }
}

fn fits(kind: Kind, call: Call) -> bool {
    let calls: &[Call] = match kind {
        Kind::Lock | Kind::Semaphore | Kind::ReadWrite => &[Call::Acquire],
        Kind::Limiter => &[Call::Admit],
        Kind::Counter => &[Call::Add, Call::Read],
        Kind::Event => &[Call::Send, Call::Wait, Call::Read],
        Kind::Latch => &[Call::CountDown, Call::Wait, Call::Read],
        Kind::Barrier => &[Call::Wait],
        Kind::Watchdog => &[Call::Kick, Call::Wait, Call::Read],
    };
    calls.contains(&call)
}

fn has_size(kind: Kind) -> bool {
    matches!(kind, Kind::Semaphore | Kind::Latch | Kind::Barrier)
}

/// Returns `true` if the call can have its outcome.
fn ends(call: &Operation) -> bool {
    match call.outcome {
        Outcome::Pending => call.call != Call::Read,
        Outcome::TimedOut | Outcome::Unknown => true,
        Outcome::Granted | Outcome::Released | Outcome::Lost | Outcome::LostEarly | Outcome::Deadlock => {
            call.call == Call::Acquire
        }
        Outcome::Admitted | Outcome::Refused => call.call == Call::Admit,
        Outcome::Done => !matches!(call.call, Call::Acquire | Call::Admit),
        Outcome::Conflict => !matches!(call.call, Call::Acquire | Call::Admit | Call::Read),
    }
}

fn has_ended(call: &Operation) -> bool {
    !matches!(call.outcome, Outcome::Pending | Outcome::Granted)
}

fn is_hold(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Granted | Outcome::Released | Outcome::Lost | Outcome::LostEarly)
}
