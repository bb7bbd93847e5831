//! Rate limiters: a caller gets a reservation at once, and sleeps until its time without the store.

mod meter;
mod quota;
mod reservations;

use super::{
    inspection::Inspection,
    protocol::{GRANT_WINDOW, Reply, Signal, TOMBSTONE, Wait},
    state::{self, Context},
};
use crate::{clock::Timestamp, id::Id};
use meter::{Meter, Rate};
pub use quota::{Algorithm, NO_BURST, Quota, SHORTEST};
use reservations::{Reservation, Reservations};
use std::time::Duration;

/// A request to a rate limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Request {
    /// Takes tokens: now, or as a reservation for a later time.
    Take {
        /// The attempt. Repeating it before its reservation is due returns that reservation and changes no settings.
        /// Nothing is remembered of an attempt that was admitted at once: repeating it takes tokens again, which errs
        /// on the safe side.
        id: Id,
        /// The number of tokens, all or nothing.
        tokens: u64,
        /// The settings. The most recent ones apply to all callers.
        quota: Quota,
        /// How long the caller can wait. A reservation later than this is refused and takes nothing.
        patience: Duration,
        /// How to wait while no time can be foreseen (size 0). With `None` the request is refused.
        wait: Option<Wait>,
    },
    /// Gives up a reservation that is not due yet. Later reservations move up, unless more than 64 are left. In that
    /// case the tokens go to the first caller in the queue, at the first request after they are available.
    Cancel {
        /// The attempt.
        id: Id,
        /// Whether to refuse this id from now on, because an attempt with an unknown outcome may still arrive.
        tombstone: bool,
    },
}

/// The longest queue in which all reservations move up when one is given up. Every caller behind it must ask again, so
/// that the cost would be quadratic if a long queue gave up.
pub(crate) const MOVES_UP: usize = 64;

/// The state of one rate limiter.
///
/// Laws:
/// - reservations are made in the order of the requests;
/// - between changes of the settings, the admissions in any interval stay within the bound of the algorithm;
/// - a request that is refused, or cancelled before its reservation is due, takes nothing.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "_cas", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    /// The tokens taken up to now.
    meter: Meter,
    rate: Rate,
    /// Whether the rate is only a cache of the last one: nothing is used, and the next request sets the rate.
    is_unused: bool,
    reservations: Option<Box<Reservations>>,
}

impl State {
    /// Returns the number of callers with a reservation that is not due.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.reservations.as_ref().map_or(0, |reservations| reservations.queue.len())
    }

    /// Returns the reply to a caller that has a reservation, or that was admitted or refused since it asked.
    fn reply_to_known(
        &mut self,
        id: Id,
        tokens: u64,
        give_up: Timestamp,
        wait: Option<Wait>,
        context: &mut Context<'_>,
    ) -> Option<Reply> {
        let reservations = self.reservations.as_deref_mut()?;
        let (is_admitted, is_refused) = (reservations.admitted.has(id), reservations.refused.has(id));
        if is_admitted || is_refused {
            if Wait::is_answered_once(wait) {
                reservations.admitted.forget(id);
                reservations.refused.forget(id);
                self.book_due(context.now);
            }
            if is_admitted {
                return Some(self.admitted(Duration::ZERO, context.now));
            }
            let at = self.tail().available_at(tokens, &self.rate, context.now);
            return Some(self.limited(self.tail(), at, context.now));
        }
        let mut reservation = *reservations.queue.get(id)?;
        let (has_time, ahead) = (reservation.at < Timestamp::NEVER, reservations.queue.ahead(id));
        if (has_time && reservation.at > give_up) || (!has_time && wait.is_none()) {
            self.leave(id, context);
            return Some(self.limited(self.tail(), reservation.at, context.now));
        }
        reservation.give_up = give_up;
        reservation.live_until = wait.map_or(reservation.live_until, |wait| wait.live_until(context.now));
        self.reservations().queue.join(id, reservation);
        Some(match wait {
            Some(wait) if !has_time => queued_reply(wait, ahead),
            _ => self.admitted(reservation.at.since(context.now), context.now),
        })
    }

    fn take(&mut self, id: Id, tokens: u64, give_up: Timestamp, wait: Option<Wait>, now: Timestamp) -> Reply {
        let queued = self.waiting() > 0;
        let (tail, rate) = (self.tail(), self.rate);
        let present = tail.at(&rate, now);
        let at = present.available_at(tokens, &rate, now);
        if at <= now && !queued {
            self.meter = present.after(tokens, at, &rate);
            return self.admitted(Duration::ZERO, now);
        }
        let has_time = at < Timestamp::NEVER;
        if (has_time && at > give_up) || (!has_time && wait.is_none()) || exceeds_size(at, &rate.quota) {
            return self.limited(present, at, now);
        }
        let live_until = wait.map_or(Timestamp::NEVER, |wait| wait.live_until(now));
        let reservations = self.reservations();
        reservations.tail = tail.after(tokens, at, &rate);
        reservations.queue.join(id, Reservation { tokens, at, woken: false, give_up, live_until });
        let ahead = reservations.queue.ahead(id);
        match wait {
            Some(wait) if !has_time => queued_reply(wait, ahead),
            _ => self.admitted(at.since(now), now),
        }
    }

    fn admitted(&self, wait: Duration, now: Timestamp) -> Reply {
        let (tail, rate, at) = (self.tail(), &self.rate, now + wait);
        Reply::Admitted { wait, remaining: tail.remaining(rate, at), reset_after: tail.reset_after(rate, at) }
    }

    /// Returns a refusal, with the meter after all reservations.
    fn limited(&self, tail: Meter, at: Timestamp, now: Timestamp) -> Reply {
        let rate = &self.rate;
        Reply::Limited {
            retry_after: (at < Timestamp::NEVER).then(|| at.since(now)),
            remaining: tail.remaining(rate, now),
            reset_after: tail.reset_after(rate, now),
            waiting: self.waiting() as u64,
        }
    }

    /// Applies new settings to all reservations at once; used tokens stay used.
    fn change(&mut self, quota: Quota, context: &mut Context<'_>) {
        let new = Rate::from(quota);
        self.meter = self.meter.under(&self.rate, &new, context.now);
        self.rate = new;
        self.reschedule(context);
    }

    fn leave(&mut self, id: Id, context: &mut Context<'_>) {
        let Some(reservations) = self.reservations.as_deref_mut() else { return };
        let has_time = reservations.queue.get(id).is_some_and(|left| left.at < Timestamp::NEVER);
        reservations.queue.leave(id);
        if has_time && reservations.queue.len() <= MOVES_UP {
            self.reschedule(context);
        } else {
            self.book_due(context.now);
        }
    }

    /// Computes the times of all reservations again, and wakes the callers of those that changed.
    fn reschedule(&mut self, context: &mut Context<'_>) {
        let (meter, rate, now) = (self.meter, self.rate, context.now);
        let Some(reservations) = self.reservations.as_deref_mut() else { return };
        let (mut tail, mut refused) = (meter, Vec::new());
        reservations.queue.retain(|_, kept| kept.at < Timestamp::NEVER || kept.live_until > now);
        for (id, reservation) in reservations.queue.iter_mut() {
            let at = tail.available_at(reservation.tokens, &rate, now);
            if at != reservation.at {
                reservation.woken = true;
                context.notify(id, Signal::Wake);
            }
            if (at < Timestamp::NEVER && at > reservation.give_up) || exceeds_size(at, &rate.quota) {
                refused.push(id);
            } else {
                reservation.at = at;
                tail = tail.after(reservation.tokens, at, &rate);
            }
        }
        for id in refused {
            reservations.queue.leave(id);
            reservations.refused.add(id, now);
        }
        reservations.tail = tail;
        self.book_due(now);
    }

    /// Books the reservations that are due. Those of callers that were woken are remembered, in case they ask again.
    fn book_due(&mut self, now: Timestamp) {
        let rate = self.rate;
        let Some(reservations) = self.reservations.as_deref_mut() else { return };
        reservations.admitted.forget_until(now);
        reservations.refused.forget_until(now);
        while let Some((id, &due)) = reservations.queue.head().filter(|(_, head)| head.at <= now) {
            self.meter = self.meter.after(due.tokens, due.at, &rate);
            reservations.queue.leave(id);
            if due.woken {
                reservations.admitted.add(id, now);
            }
        }
        if reservations.is_empty() {
            self.reservations = None;
        }
    }

    /// Admits callers from the head of the queue with the tokens that others gave up in a long queue.
    fn move_up(&mut self, context: &mut Context<'_>) {
        let (rate, now) = (self.rate, context.now);
        let Some(reservations) = self.reservations.as_deref_mut() else { return };
        while let Some((id, &Reservation { tokens, .. })) = reservations.queue.head() {
            if self.meter.available_at(tokens, &rate, now) > now {
                return;
            }
            self.meter = self.meter.after(tokens, now, &rate);
            reservations.queue.leave(id);
            reservations.admitted.add(id, now);
            context.notify(id, Signal::Wake);
        }
    }

    /// Updates how long the reservations are kept, after a request with this `wait`.
    #[cold]
    fn keep_reservations(&mut self, wait: Option<Wait>, context: &mut Context<'_>) {
        self.move_up(context);
        let now = context.now;
        let idle = self.meter.idle_from(&self.rate).max(self.tail().idle_from(&self.rate)).max(now);
        let Some(reservations) = self.reservations.as_deref_mut() else { return };
        let is_here =
            wait.is_some_and(|wait| wait.live.is_none()) || reservations.kept_until == Timestamp::NEVER;
        reservations.kept_until = if is_here { Timestamp::NEVER } else { idle + TOMBSTONE };
    }

    /// Resets a limiter that a store would have let expire.
    fn expire(&mut self, now: Timestamp) {
        if self.reservations.as_ref().is_some_and(|reservations| reservations.kept_until <= now) {
            *self = Self::default();
        }
    }

    /// Moves the meter back with a clock that was set back, so that callers do not wait for it to catch up.
    fn follow_clock(&mut self, context: &mut Context<'_>) {
        if let Some(meter) = self.meter.set_back(context.now) {
            self.meter = meter;
            self.reschedule(context);
        }
    }

    /// Resets a limiter without reservations and used tokens.
    fn forget(&mut self, now: Timestamp) {
        if self.reservations.is_none() && self.meter.idle_from(&self.rate) <= now {
            (self.meter, self.is_unused) = (Meter::default(), true);
        }
    }

    fn tail(&self) -> Meter {
        let reservations = self.reservations.as_ref().filter(|reservations| !reservations.queue.is_empty());
        reservations.map_or(self.meter, |reservations| reservations.tail)
    }

    fn reservations(&mut self) -> &mut Reservations {
        let tail = self.meter;
        self.reservations.get_or_insert_with(|| Box::new(Reservations { tail, ..Reservations::default() }))
    }
}

/// Returns whether a request exceeds the size. At size 0 callers wait for a greater size instead.
fn exceeds_size(at: Timestamp, quota: &Quota) -> bool {
    at == Timestamp::NEVER && quota.size() > 0
}

fn queued_reply(wait: Wait, ahead: u64) -> Reply {
    Reply::Queued { ahead, recheck_after: recheck(wait) }
}

/// Returns when a caller without a known time asks again.
#[must_use]
pub fn recheck(wait: Wait) -> Option<Duration> {
    wait.live.map(|live| (live / 3).min(GRANT_WINDOW))
}

impl state::State for State {
    type Request = Request;

    fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.expire(context.now);
        self.follow_clock(context);
        self.book_due(context.now);
        self.forget(context.now);
        if std::mem::take(&mut self.is_unused) {
            match *request {
                Request::Take { quota, .. } if quota == self.rate.quota => {}
                Request::Take { quota, .. } => self.rate = quota.into(),
                Request::Cancel { .. } => self.rate = Rate::default(),
            }
        }
        match *request {
            Request::Take { id, tokens, quota, patience, wait } => {
                let give_up = context.now + patience;
                let reply = self.reply_to_known(id, tokens, give_up, wait, context).unwrap_or_else(|| {
                    if self.rate.quota != quota {
                        self.change(quota, context);
                    }
                    self.take(id, tokens, give_up, wait, context.now)
                });
                if self.reservations.is_some() {
                    self.keep_reservations(wait, context);
                }
                reply
            }
            Request::Cancel { id, tombstone } => {
                if tombstone {
                    self.reservations().refused.add(id, context.now);
                }
                self.leave(id, context);
                if self.reservations.is_some() {
                    self.keep_reservations(None, context);
                }
                Reply::Cancelled
            }
        }
    }

    fn tick(&mut self, context: &mut Context<'_>) {
        self.expire(context.now);
        self.book_due(context.now);
        self.forget(context.now);
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let used = (self.meter != Meter::default()).then(|| self.meter.idle_from(&self.rate));
        let Some(reservations) = self.reservations.as_deref() else { return used };
        let next = reservations.queue.head().map(|(_, reservation)| reservation.at);
        let kept = [reservations.admitted.next_end(), reservations.refused.next_end()];
        let ends = [used, next, Some(reservations.kept_until)].into_iter().chain(kept);
        ends.flatten().min().filter(|due| *due < Timestamp::NEVER)
    }

    fn users(&self) -> usize {
        self.waiting()
    }

    fn is_idle(&self) -> bool {
        self.reservations.is_none() && self.meter == Meter::default()
    }

    fn is_in_use(&self) -> bool {
        self.waiting() > 0 || self.meter != Meter::default()
    }

    fn lasts_until(&self) -> Timestamp {
        match &self.reservations {
            Some(reservations) => reservations.kept_until,
            None if self.meter == Meter::default() => Timestamp::default(),
            None => self.meter.idle_from(&self.rate),
        }
    }

    fn place(&self, id: Id) -> Option<Timestamp> {
        self.reservations.as_ref().and_then(|reservations| reservations.place(id))
    }

    fn inspect(&self, now: Timestamp) -> Inspection {
        let mut booked = self.clone();
        booked.book_due(now);
        let (meter, rate) = (booked.meter, &self.rate);
        let size = rate.quota.size();
        Inspection {
            size: Some(size),
            used: Some(size.saturating_sub(meter.remaining(rate, now))),
            waiting: booked.waiting() as u64,
            resets_in: Some(meter.reset_after(rate, now)),
            ..Inspection::default()
        }
    }

    fn delete(&mut self, context: &mut Context<'_>) {
        if let Some(reservations) = self.reservations.take() {
            reservations.queue.ids().for_each(|id| context.notify(id, Signal::Deleted));
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
