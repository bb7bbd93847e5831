//! The laws of all steps with one name.

use super::{Done, Ended, Left, Messages, Part, Step, done};
use crate::{
    format::{Call, Header, Kind, Outcome},
    history::Called,
    verdict::Problem,
};

/// The time without faults, and what is allowed besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    pub(crate) until: u64,
    /// How much later, in nanoseconds, a waiter has surely noticed.
    clearly: u64,
    /// The most that the clocks of the store and of the callers may differ by.
    differ: u64,
}

impl Calm {
    pub(crate) fn new(until: u64, header: &Header) -> Self {
        Self { until, clearly: header.notices_within, differ: header.clocks_differ }
    }
}

/// Returns the violations of the laws by the calls with one name.
pub(crate) fn problems(kind: Kind, calls: &[Called], calm: Calm) -> Vec<Problem> {
    let mut messages = Messages::default();
    let parts: Vec<Part> = calls.iter().filter_map(|call| Part::of(call, &mut messages)).collect();
    let left = calls.iter().rev().find_map(|call| Left::of(call, &mut messages));
    // A latch has a count, a barrier has parties.
    let size = calls.iter().find(|called| called.it.call != Call::Read).map_or(1, |called| called.it.size);
    let mut problems = unread(calls);
    problems.extend(match kind {
        Kind::Counter => counted(&parts, left),
        Kind::Event => sent(&parts, left, calm),
        Kind::Latch => [opened(&parts, size, left), shut(&parts, size, calm)].concat(),
        Kind::Barrier => passed(&parts, size),
        Kind::Watchdog => expired(&parts, left, calm),
        _ => Vec::new(),
    });
    problems
}

fn unread(calls: &[Called]) -> Vec<Problem> {
    let unread = calls.iter().filter(|at| at.it.call == Call::Read && at.it.outcome == Outcome::Unknown);
    unread.map(|called| Problem::new([called.line], "the state that is left cannot be read")).collect()
}

/// Returns the steps tried before `at`, without those that provably were not taken.
fn tried(parts: &[Part], step: Step, at: u64) -> impl Iterator<Item = &Part> + Clone {
    parts.iter().filter(move |part| part.step == step && part.asked <= at && !part.is_not_taken())
}

/// Each sum is returned to one caller, whatever fault there was, and later calls return later sums. No addition is lost
/// or made twice.
fn counted(parts: &[Part], left: Option<Left>) -> Vec<Problem> {
    let mut sums: Vec<(u64, &Part)> =
        parts.iter().filter_map(|part| Some((part.ended?.value?, part))).collect();
    sums.sort_by_key(|(sum, part)| (*sum, part.over()));
    let mut problems = Vec::new();
    for pair in sums.windows(2) {
        let [(sum, part), (next, later)] = [pair[0], pair[1]];
        if next < sum.saturating_add(later.amount) {
            let text = format!("lost addition: after the sum {sum}, {} more made {next}", later.amount);
            problems.push(Problem::new([part.line, later.line], text));
        }
    }
    problems.extend(sums.iter().filter_map(|(sum, part)| impossible(parts, *sum, part)));
    problems.extend(fallen(&sums));
    problems.extend(left.and_then(|left| total(parts, left)));
    problems
}

/// A sum without the addition of its own caller, or with more than all had added.
fn impossible(parts: &[Part], sum: u64, part: &Part) -> Option<Problem> {
    let most = tried(parts, Step::Add, part.over()).fold(0, |sum: u64, part| sum.saturating_add(part.amount));
    (!(part.amount..=most).contains(&sum)).then(|| {
        let text = format!("the sum was {sum} after {} were added, of {most} at most", part.amount);
        Problem::new([part.line], text)
    })
}

/// A sum that was returned before a lower one was asked for. Of all higher sums, only the first to end matters.
fn fallen(sums: &[(u64, &Part)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut earliest: Option<(u64, &Part)> = None;
    for (sum, part) in sums.iter().rev() {
        if let Some((higher, after)) = earliest.filter(|(_, after)| after.over() < part.asked) {
            let text = format!("falling sum: {higher} was returned before {sum} was asked for");
            problems.push(Problem::new([after.line, part.line], text));
        }
        if earliest.is_none_or(|(_, after)| part.over() < after.over()) {
            earliest = Some((*sum, part));
        }
    }
    problems
}

fn total(parts: &[Part], left: Left) -> Option<Problem> {
    let sum = left.value?;
    let highest = done(parts, Step::Add).into_iter().max_by_key(|done| done.value);
    let returned = highest.map_or(0, |done| done.value);
    let most = tried(parts, Step::Add, u64::MAX).fold(0, |sum: u64, part| sum.saturating_add(part.amount));
    (!(returned..=most).contains(&sum)).then(|| {
        let text = format!("the sum is {sum}: {returned} was returned, {most} were added");
        Problem::new(highest.map(|done| done.line).into_iter().chain([left.line]), text)
    })
}

/// All waiters get the one message of one sender, and it stays after the sender got its reply. Without faults no waiter
/// misses it.
fn sent(parts: &[Part], left: Option<Left>, calm: Calm) -> Vec<Problem> {
    let mut problems = Vec::new();
    let senders = || parts.iter().filter(|part| part.step == Step::Send);
    let mut seen = [done(parts, Step::Send), done(parts, Step::Await)].concat();
    seen.extend(left.and_then(|left| Some(Done { at: u64::MAX, value: left.value?, line: left.line })));
    for Done { at, value, line } in &seen {
        if !tried(parts, Step::Send, *at).any(|part| part.message == *value) {
            problems.push(Problem::new([*line], "a message that no sender had sent"));
        }
    }
    problems.extend(differing(&seen, left));
    for part in senders().filter(|part| part.is_not_taken()) {
        if tried(parts, Step::Send, part.over()).next().is_none() {
            problems.push(Problem::new([part.line], "a sender got a conflict without another sender"));
        }
    }
    problems.extend(missed(parts, calm));
    problems
}

/// The first two callers that disagree about the message, or one and what is left.
fn differing(seen: &[Done], left: Option<Left>) -> Option<Problem> {
    let (message, line) = match left {
        Some(left) => (left.value, left.line),
        None => (Some(seen.first()?.value), seen.first()?.line),
    };
    let other = seen.iter().find(|seen| Some(seen.value) != message)?;
    let text = if message.is_some() { "two messages of one event" } else { "the message was forgotten" };
    Some(Problem::new([other.line, line], text))
}

/// Waiters that timed out in calm times although the message was there.
fn missed(parts: &[Part], calm: Calm) -> Vec<Problem> {
    let Some(sent) = done(parts, Step::Send).first().copied() else { return Vec::new() };
    let late = |part: &&Part| {
        part.step == Step::Await
            && part.is_not_taken()
            && part.over() < calm.until
            && part.over() > sent.at.saturating_add(calm.clearly)
    };
    let problem = |part: &Part| {
        let text = format!("sent at {} and still missed at {}", sent.at, part.over());
        Problem::new([sent.line, part.line], text)
    };
    parts.iter().filter(late).map(problem).collect()
}

/// No waiter returns while each kick that may be the last one still lasts. Without faults, every waiter returns that
/// still waits clearly later: later than the kick lasts since it asked, if the store has no clock. In the end the
/// watchdog has expired.
fn expired(parts: &[Part], left: Option<Left>, calm: Calm) -> Vec<Problem> {
    let mut problems = Vec::new();
    let kicks = || tried(parts, Step::Kick, u64::MAX);
    // All kicks that may be the last one taken before `from`, and those that may come until `till`.
    let last = |from: u64, till: u64| {
        let is_replaced =
            move |kick: &Part| kicks().any(|next| kick.over() < next.asked && next.over() <= from);
        kicks().filter(move |kick| kick.asked <= till && !is_replaced(kick))
    };
    let was_kicked = |at: u64| kicks().any(|kick| kick.is_done() && kick.over() <= at);
    for part in parts.iter().filter(|part| part.step == Step::Expire) {
        let Some(Ended { at, value }) = part.ended else { continue };
        let early = |kick: &Part| at.saturating_add(calm.differ) < kick.asked.saturating_add(kick.lasts);
        let late = |kick: &Part| kick.over().saturating_add(kick.lasts).saturating_add(calm.clearly) < at;
        let shown = || last(part.asked, at).map(|kick| kick.line).chain([part.line]);
        if value.is_some() && last(part.asked, at).all(early) {
            problems.push(Problem::new(shown(), format!("expired too early at {at}")));
        }
        if value.is_none() && at < calm.until && was_kicked(part.asked) && last(part.asked, at).all(late) {
            problems.push(Problem::new(shown(), format!("expired and still missed at {at}")));
        }
    }
    if let Some(left) = left.filter(|left| was_kicked(u64::MAX) && !left.is_there()) {
        problems.push(Problem::new([left.line], "no kick lasts, and it has not expired"));
    }
    problems
}

/// The rest that a call returns was true at some time of that call. No waiter passes before the latch was counted down
/// often enough, and then it stays open.
fn opened(parts: &[Part], size: u64, left: Option<Left>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let counted = done(parts, Step::CountDown);
    for part in parts.iter().filter(|part| part.step == Step::CountDown) {
        let Some(Ended { at, value: Some(rest) }) = part.ended else { continue };
        let before = counted.iter().filter(|done| done.at < part.asked).count() as u64;
        let (least, most) = ((before + 1).min(size), tried(parts, Step::CountDown, at).count() as u64);
        if !(least..=most).contains(&(size - rest.min(size))) {
            let text = format!("{rest} of {size} were left when {least} to {most} were counted");
            problems.push(Problem::new([part.line], text));
        }
    }
    for Done { at, line, .. } in done(parts, Step::Pass) {
        let tried = tried(parts, Step::CountDown, at).count() as u64;
        if tried < size {
            let text = format!("passed at {at} when {tried} of {size} were counted");
            problems.push(Problem::new([line], text));
        }
    }
    let (least, most) = (counted.len() as u64, tried(parts, Step::CountDown, u64::MAX).count() as u64);
    let wrong = |left: &Left| (least >= size && !left.is_there()) || (most < size && left.is_there());
    if let Some(left) = left.filter(wrong) {
        let text = format!("open is {}: {least} to {most} of {size} were counted", left.is_there());
        problems.push(Problem::new([left.line], text));
    }
    problems
}

/// Waiters that timed out in calm times although the latch was open.
fn shut(parts: &[Part], size: u64, calm: Calm) -> Vec<Problem> {
    let last = usize::try_from(size - 1).ok().and_then(|at| done(parts, Step::CountDown).get(at).copied());
    let Some(open) = last else { return Vec::new() };
    let late = |part: &&Part| {
        part.step == Step::Pass
            && part.is_not_taken()
            && part.over() < calm.until
            && part.over() > open.at.saturating_add(calm.clearly)
    };
    let problem = |part: &Part| {
        let text = format!("open at {} and still missed at {}", open.at, part.over());
        Problem::new([open.line, part.line], text)
    };
    parts.iter().filter(late).map(problem).collect()
}

/// No waiter passes before a whole round has arrived, and none counts in two rounds.
fn passed(parts: &[Part], size: u64) -> Vec<Problem> {
    let too_few = |(Done { at, line, .. }, gone): (Done, u64)| {
        let (tried, needed) = (tried(parts, Step::Arrive, at), gone.div_ceil(size) * size);
        let count = tried.clone().count() as u64;
        (count < needed).then(|| {
            let text = format!("{gone} had passed at {at} when {count} of {needed} had arrived");
            Problem::new(tried.map(|part| part.line).take(Problem::NAMED).chain([line]), text)
        })
    };
    let went = done(parts, Step::Arrive).into_iter();
    went.zip(1..).filter_map(too_few).collect()
}

#[cfg(test)]
mod tests;
