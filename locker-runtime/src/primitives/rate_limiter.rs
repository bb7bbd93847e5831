//! Rate limiters: every caller is told at once when its turn is, and sleeps until then by itself.

mod meter;
mod quota;

use super::{
    Context, GRANT_WINDOW, Reply, Signal, TOMBSTONE, Wait, inspection::Inspection, queue::Queue,
    tombstones::Tombstones,
};
use crate::{clock::Timestamp, id::Id};
use meter::{Meter, Rate};
#[cfg(feature = "redis")]
pub(crate) use quota::NO_BURST;
pub(crate) use quota::SHORTEST;
pub use quota::{Algorithm, Quota};
use std::time::Duration;

/// What can be asked of a rate limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Take tokens: now, or at a time in the future that is told.
    Take {
        /// The attempt. While its turn has not come, repeating it tells its turn again; a repetition changes no
        /// settings. Of an attempt that was admitted at once nothing is remembered: a repetition takes again, which
        /// is the safe side.
        id: Id,
        /// How many tokens, all or nothing.
        tokens: u64,
        /// The settings: from now on, for everybody.
        quota: Quota,
        /// What lies further ahead than this is refused and takes nothing.
        patience: Duration,
        /// How to wait while no turn is in sight (size 0); `None` refuses.
        wait: Option<Wait>,
    },
    /// Give up a turn that has not come: those behind move up, unless more than 64 are left in line. Then
    /// the turn goes to whoever is first in line at the first request after it has come.
    Cancel {
        /// The attempt.
        id: Id,
        /// Refuse this id from now on: an attempt with an unknown outcome may still arrive.
        tombstone: bool,
    },
}

/// In a longer line nobody but the first moves up when somebody leaves: everybody behind would have to ask again, and a
/// crowd that leaves would cost its square.
pub(crate) const MOVES_UP: usize = 64;

/// The state of one rate limiter.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What was taken up to now.
    meter: Meter,
    rate: Rate,
    /// The rate is a memory only: it holds if the next request has the same, and is unknown otherwise.
    is_as_new: bool,
    line: Option<Box<Line>>,
}

/// What only a limiter has that somebody waits at, or that has refused somebody's turn.
#[derive(Clone, Debug, Default)]
struct Line {
    queue: Queue<Turn>,
    /// The meter after everybody in the queue, and after those who left it while it was long.
    tail: Meter,
    admitted: Tombstones,
    refused: Tombstones,
    /// When all of it is forgotten: a store that lets its data expire keeps it for a minute after the last turn in
    /// sight; those who have none ask again sooner. In the embedded store nobody asks again, and nothing is forgotten.
    kept_until: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    tokens: u64,
    /// When it comes; `NEVER` while it is not in sight.
    at: Timestamp,
    /// Whether its owner was told to ask again, and so may ask when it has come.
    woken: bool,
    /// A turn after this is none.
    give_up: Timestamp,
    live_until: Timestamp,
}

/// Carries out one request on one rate limiter.
///
/// Laws: turns are given in the order of asking; between changes of the settings, the turns in any interval stay
/// within the algorithm's bound; what is refused or cancelled before its turn takes nothing.
pub fn step(state: &mut State, request: &Request, context: &mut Context<'_>) -> Reply {
    state.expire(context.now);
    state.follow_clock(context);
    state.settle(context.now);
    state.forget(context.now);
    if std::mem::take(&mut state.is_as_new) {
        match *request {
            Request::Take { quota, .. } if quota == state.rate.quota => {}
            Request::Take { quota, .. } => state.rate = quota.into(),
            Request::Cancel { .. } => state.rate = Rate::default(),
        }
    }
    match *request {
        Request::Take { id, tokens, quota, patience, wait } => {
            let give_up = context.now + patience;
            let reply = state.again(id, tokens, give_up, wait, context).unwrap_or_else(|| {
                if state.rate.quota != quota {
                    state.change(quota, context);
                }
                state.take(id, tokens, give_up, wait, context.now)
            });
            if state.line.is_some() {
                state.keep_line(wait, context);
            }
            reply
        }
        Request::Cancel { id, tombstone } => {
            if tombstone {
                state.line().refused.add(id, context.now);
            }
            state.leave(id, context);
            if state.line.is_some() {
                state.keep_line(None, context);
            }
            Reply::Cancelled
        }
    }
}

impl State {
    /// How many wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.queue.len())
    }

    /// Somebody who is known already: in line, or served or refused while he slept.
    fn again(
        &mut self,
        id: Id,
        tokens: u64,
        give_up: Timestamp,
        wait: Option<Wait>,
        context: &mut Context<'_>,
    ) -> Option<Reply> {
        let line = self.line.as_deref_mut()?;
        let (is_admitted, is_refused) = (line.admitted.has(id), line.refused.has(id));
        if is_admitted || is_refused {
            if Wait::is_answered_once(wait) {
                line.admitted.forget(id);
                line.refused.forget(id);
                self.settle(context.now);
            }
            if is_admitted {
                return Some(self.admitted(Duration::ZERO, context.now));
            }
            let turn = self.tail().turn(tokens, &self.rate, context.now);
            return Some(self.limited(self.tail(), turn, context.now));
        }
        let mut turn = *line.queue.get(id)?;
        let (in_sight, ahead) = (turn.at < Timestamp::NEVER, line.queue.ahead(id));
        if (in_sight && turn.at > give_up) || (!in_sight && wait.is_none()) {
            self.leave(id, context);
            return Some(self.limited(self.tail(), turn.at, context.now));
        }
        turn.give_up = give_up;
        turn.live_until = wait.map_or(turn.live_until, |wait| wait.live_until(context.now));
        self.line().queue.join(id, turn);
        Some(match wait {
            Some(wait) if !in_sight => parked(wait, ahead),
            _ => self.admitted(turn.at.since(context.now), context.now),
        })
    }

    fn take(&mut self, id: Id, tokens: u64, give_up: Timestamp, wait: Option<Wait>, now: Timestamp) -> Reply {
        let queued = self.waiting() > 0;
        let (tail, rate) = (self.tail(), self.rate);
        let present = tail.at(&rate, now);
        let at = present.turn(tokens, &rate, now);
        if at <= now && !queued {
            self.meter = present.after(tokens, at, &rate);
            return self.admitted(Duration::ZERO, now);
        }
        let in_sight = at < Timestamp::NEVER;
        if (in_sight && at > give_up) || (!in_sight && wait.is_none()) || is_never(at, &rate.quota) {
            return self.limited(present, at, now);
        }
        let live_until = wait.map_or(Timestamp::NEVER, |wait| wait.live_until(now));
        let line = self.line();
        line.tail = tail.after(tokens, at, &rate);
        line.queue.join(id, Turn { tokens, at, woken: false, give_up, live_until });
        let ahead = line.queue.ahead(id);
        match wait {
            Some(wait) if !in_sight => parked(wait, ahead),
            _ => self.admitted(at.since(now), now),
        }
    }

    fn admitted(&self, wait: Duration, now: Timestamp) -> Reply {
        let (tail, rate, turn) = (self.tail(), &self.rate, now + wait);
        Reply::Admitted {
            wait,
            remaining: tail.remaining(rate, turn),
            reset_after: tail.reset_after(rate, turn),
        }
    }

    /// A refusal, with the meter after everybody in line.
    fn limited(&self, tail: Meter, turn: Timestamp, now: Timestamp) -> Reply {
        let rate = &self.rate;
        Reply::Limited {
            retry_after: (turn < Timestamp::NEVER).then(|| turn.since(now)),
            remaining: tail.remaining(rate, now),
            reset_after: tail.reset_after(rate, now),
            waiting: self.waiting() as u64,
        }
    }

    /// Settings apply at once and to everybody in line; what was used stays used.
    fn change(&mut self, quota: Quota, context: &mut Context<'_>) {
        let new = Rate::from(quota);
        self.meter = self.meter.under(&self.rate, &new, context.now);
        self.rate = new;
        self.plan(context);
    }

    fn leave(&mut self, id: Id, context: &mut Context<'_>) {
        let Some(line) = self.line.as_deref_mut() else { return };
        let in_sight = line.queue.get(id).is_some_and(|turn| turn.at < Timestamp::NEVER);
        line.queue.leave(id);
        if in_sight && line.queue.len() <= MOVES_UP {
            self.plan(context);
        } else {
            self.settle(context.now);
        }
    }

    /// Gives everybody in line a new turn, and has those ask again whose turn has changed.
    fn plan(&mut self, context: &mut Context<'_>) {
        let (meter, rate, now) = (self.meter, self.rate, context.now);
        let Some(line) = self.line.as_deref_mut() else { return };
        let (mut tail, mut refused) = (meter, Vec::new());
        line.queue.retain(|_, turn| turn.at < Timestamp::NEVER || turn.live_until > now);
        for (id, turn) in line.queue.iter_mut() {
            let at = tail.turn(turn.tokens, &rate, now);
            if at != turn.at {
                turn.woken = true;
                context.notify(id, Signal::Wake);
            }
            if (at < Timestamp::NEVER && at > turn.give_up) || is_never(at, &rate.quota) {
                refused.push(id);
            } else {
                turn.at = at;
                tail = tail.after(turn.tokens, at, &rate);
            }
        }
        for id in refused {
            line.queue.leave(id);
            line.refused.add(id, now);
        }
        line.tail = tail;
        self.settle(now);
    }

    /// Books the turns that have come. Who was told to ask again is remembered, in case he does so now.
    fn settle(&mut self, now: Timestamp) {
        let rate = self.rate;
        let Some(line) = self.line.as_deref_mut() else { return };
        line.admitted.forget_until(now);
        line.refused.forget_until(now);
        while let Some((id, &turn)) = line.queue.head().filter(|(_, turn)| turn.at <= now) {
            self.meter = self.meter.after(turn.tokens, turn.at, &rate);
            line.queue.leave(id);
            if turn.woken {
                line.admitted.add(id, now);
            }
        }
        if line.queue.is_empty() && line.admitted.is_empty() && line.refused.is_empty() {
            self.line = None;
        }
    }

    /// What those have left unused who gave up in a long line is for the first in it.
    fn move_up(&mut self, context: &mut Context<'_>) {
        let (rate, now) = (self.rate, context.now);
        let Some(line) = self.line.as_deref_mut() else { return };
        while let Some((id, &Turn { tokens, .. })) = line.queue.head() {
            if self.meter.turn(tokens, &rate, now) > now {
                return;
            }
            self.meter = self.meter.after(tokens, now, &rate);
            line.queue.leave(id);
            line.admitted.add(id, now);
            context.notify(id, Signal::Wake);
        }
    }

    /// After a request, of one who waits so.
    #[cold]
    fn keep_line(&mut self, wait: Option<Wait>, context: &mut Context<'_>) {
        self.move_up(context);
        let now = context.now;
        let idle = self.meter.idle_from(&self.rate).max(self.tail().idle_from(&self.rate)).max(now);
        let Some(line) = self.line.as_deref_mut() else { return };
        let is_here = wait.is_some_and(|wait| wait.live.is_none()) || line.kept_until == Timestamp::NEVER;
        line.kept_until = if is_here { Timestamp::NEVER } else { idle + TOMBSTONE };
    }

    fn expire(&mut self, now: Timestamp) {
        if self.line.as_ref().is_some_and(|line| line.kept_until <= now) {
            *self = Self::default();
        }
    }

    /// After a clock was set back nobody waits for it to come where it was.
    fn follow_clock(&mut self, context: &mut Context<'_>) {
        if let Some(meter) = self.meter.set_back(context.now) {
            self.meter = meter;
            self.plan(context);
        }
    }

    /// What nobody waits at and nothing was used of is as new.
    fn forget(&mut self, now: Timestamp) {
        if self.line.is_none() && self.meter.idle_from(&self.rate) <= now {
            (self.meter, self.is_as_new) = (Meter::default(), true);
        }
    }

    fn tail(&self) -> Meter {
        self.line.as_ref().filter(|line| !line.queue.is_empty()).map_or(self.meter, |line| line.tail)
    }

    fn line(&mut self) -> &mut Line {
        let tail = self.meter;
        self.line.get_or_insert_with(|| Box::new(Line { tail, ..Line::default() }))
    }
}

/// Whether more is asked for than can ever be had at once; without any tokens everybody waits for some.
fn is_never(at: Timestamp, quota: &Quota) -> bool {
    at == Timestamp::NEVER && quota.size() > 0
}

fn parked(wait: Wait, ahead: u64) -> Reply {
    Reply::Queued { ahead, recheck_after: recheck(wait) }
}

/// When somebody asks again whose turn is not in sight.
pub(crate) fn recheck(wait: Wait) -> Option<Duration> {
    wait.live.map(|live| (live / 3).min(GRANT_WINDOW))
}

impl super::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        step(self, request, context)
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.settle(context.now);
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let used = (self.meter != Meter::default()).then(|| self.meter.idle_from(&self.rate));
        let Some(line) = self.line.as_deref() else { return used };
        let turn = line.queue.head().map(|(_, turn)| turn.at);
        let ends = [used, turn, line.admitted.next_end(), line.refused.next_end()];
        ends.into_iter().flatten().min().filter(|due| *due < Timestamp::NEVER)
    }

    fn users(&self) -> usize {
        self.waiting()
    }

    fn is_idle(&self) -> bool {
        self.line.is_none() && self.meter == Meter::default()
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let mut settled = self.clone();
        settled.settle(now);
        let (meter, rate) = (settled.meter, &self.rate);
        let size = rate.quota.size();
        Inspection {
            size: Some(size),
            used: Some(size.saturating_sub(meter.remaining(rate, now))),
            waiting: settled.waiting() as u64,
            resets_in: Some(meter.reset_after(rate, now)),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        if let Some(line) = self.line.take() {
            line.queue.ids().for_each(|id| context.notify(id, Signal::Deleted));
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
