//! The laws of callers that hold locks while they wait for others.
//!
//! A wait for a lock needs the end of its hold, and that needs the end of the wait which the hold is around. So from a
//! wait on there is one chain at any time. It obeys two laws:
//!
//! 1. If the wait ended with `deadlock`, its chain led back to it for some time, as long as `circles_last`.
//! 2. The chain does not stay the same for longer than `stands_still_within`. So a circle is broken by then, and a lock
//!    that is free has been granted.
//!
//! All that is told with the times of callers is possible only: a hold may be over, and another one granted, before its
//! holder knows. A hold of a higher fence that has entered proves that the lower one is over.

use crate::{
    format::{Kind, Outcome},
    history::{Called, History},
    liveness::killed,
    verdict::{Problem, Verdict},
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    time::Duration,
};

/// Judges the waits for locks.
pub(crate) fn judge(history: &History, verdict: &mut Verdict) {
    let circles = Circles::of(history);
    for wait in locks(history) {
        let broken = match wait.it.outcome {
            Outcome::Deadlock => circles.without_a_circle(wait, &mut verdict.circles),
            _ => circles.standstill(wait),
        };
        verdict.problems.extend(broken.map(|problem| problem.on(&format!("lock {}", wait.it.name))));
    }
    verdict.circles.sort_unstable();
}

fn locks(history: &History) -> impl Iterator<Item = &Called> {
    history.calls.iter().filter(|((kind, _), _)| *kind == Kind::Lock).flat_map(|(_, calls)| calls)
}

struct Circles<'a> {
    history: &'a History,
    /// By lock: the times at which a hold with a higher fence than all before has entered.
    holders: BTreeMap<&'a str, Vec<(u64, &'a Called)>>,
    /// The waits that each call is around.
    inside: HashMap<(u64, u64), Vec<&'a Called>>,
    /// The times at which something begins or ends.
    times: Vec<u64>,
}

impl<'a> Circles<'a> {
    fn of(history: &'a History) -> Self {
        let (holders, inside, times) = Default::default();
        let mut circles = Self { history, holders, inside, times };
        for call in locks(history) {
            for id in &call.it.around {
                circles.inside.entry((call.it.process, *id)).or_default().push(call);
            }
            let ends = [circles.wait_ends(call), circles.hold_ends(call)];
            circles.times.extend(ends.into_iter().chain([call.it.asked]).chain(call.it.entered));
            if let Some(entered) = call.it.entered {
                circles.holders.entry(&call.it.name).or_default().push((entered, call));
            }
        }
        for holders in circles.holders.values_mut() {
            holders.sort_by_key(|(entered, _)| *entered);
            let mut highest = None;
            holders.retain(|(_, call)| {
                let is_higher = call.it.fence > highest;
                highest = highest.max(call.it.fence);
                is_higher
            });
        }
        circles.times.sort_unstable();
        circles.times.dedup();
        circles
    }

    /// What a killed process has in the store lasts until its lease ends.
    fn unless_killed(&self, call: &Called) -> u64 {
        let killed = killed(self.history, call.it.process, call.it.asked);
        killed.map_or(self.history.end, |at| at.saturating_add(self.history.header.lease))
    }

    fn wait_ends(&self, call: &Called) -> u64 {
        call.it.entered.or(call.it.ended).unwrap_or_else(|| self.unless_killed(call))
    }

    fn hold_ends(&self, call: &Called) -> u64 {
        call.it.ended.unwrap_or_else(|| self.unless_killed(call))
    }

    /// Returns the call that holds the lock of a wait at a time.
    fn holder(&self, wait: &Called, at: u64) -> Option<&'a Called> {
        let holders = self.holders.get(&*wait.it.name)?;
        let holder = holders[..holders.partition_point(|(entered, _)| *entered <= at)].last()?.1;
        (at < self.hold_ends(holder)).then_some(holder)
    }

    /// Returns the wait at a time that a hold is around.
    fn wait_inside(&self, hold: &Called, at: u64) -> Option<&'a Called> {
        let waits = self.inside.get(&(hold.it.process, hold.it.id?))?;
        waits.iter().copied().find(|wait| (wait.it.asked..self.wait_ends(wait)).contains(&at))
    }

    /// Returns what a wait waits for at a time: a hold, the wait inside of it, a hold, and so on. That has the wait
    /// itself if it is in a circle.
    fn chain(&self, wait: &'a Called, at: u64) -> Vec<&'a Called> {
        let (mut chain, mut from) = (Vec::new(), Some(wait));
        let is_new = |chain: &[&Called], call: &&Called| chain.iter().all(|other| other.line != call.line);
        while let Some(hold) = from.and_then(|wait| self.holder(wait, at)).filter(|hold| is_new(&chain, hold))
        {
            chain.push(hold);
            from = self.wait_inside(hold, at).filter(|wait| is_new(&chain, wait));
            chain.extend(from);
        }
        chain
    }

    /// The times from the begin to the end of a wait.
    fn times_of(&self, wait: &Called) -> &[u64] {
        let (asked, ends) = (wait.it.asked, self.wait_ends(wait));
        &self.times
            [self.times.partition_point(|at| *at < asked)..self.times.partition_point(|at| *at <= ends)]
    }

    /// Returns a problem if the wait was in no circle, and else notes how long the circle lasted.
    fn without_a_circle(&self, wait: &'a Called, lasted: &mut Vec<Duration>) -> Option<Problem> {
        let mut circles = self.times_of(wait).iter().rev().filter_map(|at| self.circle(wait, *at));
        match circles.find(|times| times.end - times.start >= self.history.header.circles_last) {
            Some(times) => lasted.push(Duration::from_nanos(self.wait_ends(wait) - times.start)),
            None => return Some(Problem::new([wait.line], "deadlock without a circle")),
        }
        None
    }

    /// Returns how long the circle lasts that a wait is in at a time: while all of its waits do.
    fn circle(&self, wait: &'a Called, at: u64) -> Option<Range<u64>> {
        let chain = self.chain(wait, at);
        let is_circle = chain.iter().any(|call| call.line == wait.line);
        let waits = || chain.iter().skip(1).step_by(2);
        let ends = waits().map(|wait| self.wait_ends(wait)).min()?;
        Some(waits().map(|wait| wait.it.asked).max()?..ends).filter(|_| is_circle)
    }

    fn standstill(&self, wait: &'a Called) -> Option<Problem> {
        let (within, ends) = (self.history.header.stands_still_within, self.wait_ends(wait));
        if ends.saturating_sub(wait.it.asked) <= within {
            return None;
        }
        let lines = |at| self.chain(wait, at).iter().map(|call| call.line).collect::<Vec<_>>();
        let (mut since, mut still) = (wait.it.asked, lines(wait.it.asked));
        for at in self.times_of(wait).iter().copied() {
            if at.saturating_sub(since) > within {
                let text = format!("standstill from {since} to {at}: all that it waits for is as it was");
                return Some(Problem::new(still.into_iter().chain([wait.line]).take(Problem::NAMED), text));
            }
            let now = lines(at);
            if now != still {
                (since, still) = (at, now);
            }
        }
        None
    }
}
