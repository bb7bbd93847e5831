//! The law of calls that wait: each returns by its timeout, or a bounded time later.

use crate::{
    format::{Call, Operation},
    history::{Called, History},
    verdict::Problem,
};

/// Returns the calls that returned too late, and those that should have returned and did not.
pub(crate) fn broken(history: &History, calls: &[Called]) -> Vec<Problem> {
    calls.iter().filter_map(|called| late(history, called)).collect()
}

fn late(history: &History, called: &Called) -> Option<Problem> {
    let Called { line, it: call } = called;
    if call.call == Call::Read {
        return None;
    }
    let problem = |text: String| Some(Problem::new([*line], text));
    let observed = || killed(history, call.process, call.asked).unwrap_or(history.end);
    let within = history.header.returns_within;
    let by = |what: &str, returned: Option<u64>, due: u64| match returned {
        Some(at) if at > due => problem(format!("{what} at {at}, it was due at {due}")),
        None if observed() > due => problem(format!("never {what}, it was due at {due}")),
        _ => None,
    };
    let release = || by("released", call.ended, call.left?.saturating_add(within));
    call_is_due(call, within)
        .and_then(|due| by("returned", call.entered.or(call.ended), due))
        .or_else(release)
}

/// Returns when the call is due: not the release of a hold.
fn call_is_due(call: &Operation, within: u64) -> Option<u64> {
    let waits = if call.call.waits() { call.timeout? } else { call.timeout.unwrap_or(0) };
    Some(call.asked.saturating_add(waits).saturating_add(within))
}

/// Returns when the process was killed first after `asked`.
pub(crate) fn killed(history: &History, process: u64, asked: u64) -> Option<u64> {
    let kills = history.faults.iter().filter(|fault| fault.fault == "kill" && fault.process == Some(process));
    kills.map(|fault| fault.at).filter(|at| *at >= asked).min()
}
