//! The judge of a whole history.

use crate::{
    circles,
    format::{Call, Header, Kind, Losses, Outcome},
    history::{Called, History, Unreadable},
    holds::{self, Hold},
    limits::{Admitted, Slack},
    liveness, resources,
    steps::{self, Calm},
    verdict::{Problem, Verdict},
};
use std::io::BufRead;

/// Judges a history.
///
/// # Errors
/// The number of the first line that is no line of a history, and why.
pub fn judge(input: impl BufRead) -> Result<Verdict, Unreadable> {
    let history = History::read(input)?;
    let mut verdict = Verdict::default();
    for ((kind, name), calls) in &history.calls {
        count(*kind, calls, &mut verdict);
        let mut problems = liveness::broken(&history, calls);
        problems.extend(of_kind(*kind, calls, &history, &mut verdict));
        let named = format!("{kind} {name}");
        verdict.problems.extend(problems.into_iter().map(|problem| problem.on(&named)));
    }
    circles::judge(&history, &mut verdict);
    resources::judge(&history.resources, &mut verdict);
    let own = history.problems.iter().map(|at| Problem::new([at.line], at.it.text.clone()));
    verdict.problems.extend(own);
    if is_silent(&history) {
        verdict.problems.push(Problem::new([], "no caller was granted anything"));
    }
    Ok(verdict)
}

fn of_kind(kind: Kind, calls: &[Called], history: &History, verdict: &mut Verdict) -> Vec<Problem> {
    let (header, calm_until) = (&history.header, history.calm_until());
    match kind {
        Kind::Lock | Kind::Semaphore | Kind::ReadWrite => held(calls, calm_until, header, verdict),
        // Not even what was admitted or counted stays.
        _ if header.loses == Losses::Writes => Vec::new(),
        Kind::Limiter => admitted(calls, header),
        _ => steps::problems(kind, calls, Calm::new(calm_until, header)),
    }
}

/// Judges holds. The order of service is judged only for calm times, among callers that asked clearly one after the
/// other.
fn held(calls: &[Called], calm_until: u64, header: &Header, verdict: &mut Verdict) -> Vec<Problem> {
    let holds: Vec<Hold> = calls.iter().filter_map(Hold::of).collect();
    let mut problems = holds::broken(&holds, calls.first().map_or(1, |called| holds::whole(&called.it)));
    let early = calls.iter().filter(|called| called.it.outcome == Outcome::LostEarly);
    if header.loses != Losses::Writes {
        problems.extend(early.map(|at| Problem::new([at.line], "reported as lost while its lease ran")));
    }
    let unfair = holds::inversions(&holds, header.joins_within);
    verdict.inversions += unfair.len();
    let calm = unfair.into_iter().filter(|(_, second)| second.entered < calm_until);
    problems.extend(calm.map(|(first, second)| {
        Problem::new([first.line, second.line], format!("served out of order: {first}, after {second}"))
    }));
    problems
}

fn admitted(calls: &[Called], header: &Header) -> Vec<Problem> {
    let admitted: Vec<Admitted> = calls.iter().filter_map(Admitted::of).collect();
    let Some(quota) = calls.first().and_then(|called| called.it.quota) else { return Vec::new() };
    quota.broken(&admitted, Slack { starts_anew: header.loses != Losses::Nothing, gains: header.clock_gains })
}

/// Counts the calls with one name.
fn count(kind: Kind, calls: &[Called], verdict: &mut Verdict) {
    let ended = |outcomes: &[Outcome]| calls.iter().filter(|at| outcomes.contains(&at.it.outcome)).count();
    if calls.iter().any(|called| matches!(called.it.call, Call::Acquire | Call::Admit)) {
        verdict.missed += ended(&[Outcome::TimedOut, Outcome::Unknown]);
        verdict.lost += ended(&[Outcome::Lost, Outcome::LostEarly]);
        verdict.admitted += ended(&[Outcome::Admitted]);
        verdict.refused += ended(&[Outcome::Refused]);
        let holds = calls.iter().filter(|called| called.it.entered.is_some());
        verdict.too_late += holds.clone().filter(|called| called.it.seen.is_none()).count();
        if kind != Kind::Limiter {
            *verdict.grants.entry(kind.to_string()).or_default() += holds.count();
        }
    } else {
        let steps = calls.iter().filter(|called| called.it.call != Call::Read);
        *verdict.steps.entry(kind.to_string()).or_default() += steps.count();
    }
}

/// Returns `true` if nothing shows that the store has ever done anything.
fn is_silent(history: &History) -> bool {
    let shows = |called: &Called| {
        let (call, outcome) = (&called.it, called.it.outcome);
        call.seen.is_some() || matches!(outcome, Outcome::Admitted | Outcome::Done) && call.call != Call::Read
    };
    !history.calls.values().flatten().any(shows)
}

#[cfg(test)]
mod tests;
