//! A hold and its states.

use crate::{
    locker::{Acquired, Ahead, Around, Counted, Locker, Loss, Record, Settled, Subject},
    settings::{Settings, covering},
};
use locker_core::{
    clock::{Timestamp, lease_deadline},
    diagnostics::event,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::Key,
    panics,
    primitives::{HoldKind, Reply, Request, TOMBSTONE, Value, record},
    process::OfProcess,
};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// A hold. It moves `Safe -> Jeopardy -> Lost` by its local deadline, which counts from before the request was sent
/// that granted or renewed it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) function: Option<&'static str>,
    pub(super) locker: Locker,
    pub(super) kind: HoldKind,
    pub(super) id: Id,
    pub(super) fence: u64,
    pub(super) lease: Duration,
    pub(super) renew: bool,
    /// Whether it is normal that it is held for long.
    pub(super) is_long: bool,
    /// The last part of the lease, in which it counts as lost.
    pub(super) stop_before: Duration,
    /// When the request was sent: its lease counts from here.
    pub(super) sent: Timestamp,
    /// When it was granted.
    pub(super) since: Timestamp,
    /// When `max_hold` ends it, however often it is renewed. `NEVER` without `max_hold`.
    pub(super) end: Timestamp,
    /// Until when `min_hold` keeps it. The time of the grant without.
    keep_until: Timestamp,
    deadline: AtomicU64,
    /// As of [`sent`](Self::sent).
    ahead: Ahead,
    phase: AtomicU8,
    lost: Notify,
    /// Whether a late copy of the acquire may still arrive: the release then leaves a tombstone.
    doubtful: bool,
    /// How many releases are under way, or may have ended the hold.
    releases: AtomicU8,
    record: Record,
}

/// Renewed in time.
const SAFE: u8 = 0;
/// The last renewal failed. The lease is not over.
const JEOPARDY: u8 = 1;
/// The lease was over before the release.
const LOST: u8 = 2;
/// Released.
const OVER: u8 = 3;

impl Hold {
    #[expect(clippy::too_many_arguments, reason = "called from one place, with everything a hold is")]
    pub(crate) fn new(
        locker: Locker,
        kind: HoldKind,
        key: Key,
        id: Id,
        fence: u64,
        settings: Settings,
        answer: &Acquired,
        function: Option<&'static str>,
    ) -> Arc<Self> {
        let subject = Subject { locker: &locker, key: &key, kind: kind.into(), function };
        let record = Record::begin(&subject, fence, answer.since);
        let hold = Arc::new(Self {
            key,
            function,
            locker,
            kind,
            id,
            fence,
            lease: settings.lease,
            renew: settings.renew,
            is_long: settings.is_long,
            stop_before: settings.stop_before,
            sent: answer.sent,
            since: answer.since,
            end: settings
                .max_hold
                .map_or(Timestamp::NEVER, |max_hold| answer.since + max_hold - settings.stop_before),
            keep_until: if settings.min_hold.is_zero() {
                answer.since
            } else {
                Timestamp::now() + settings.min_hold
            },
            deadline: AtomicU64::new(
                (lease_deadline(answer.sent, settings.lease) - settings.stop_before).as_micros(),
            ),
            ahead: answer.ahead,
            phase: AtomicU8::new(SAFE),
            lost: Notify::new(),
            doubtful: answer.doubtful,
            releases: AtomicU8::new(0),
            record,
        });
        if let Some(waited) = answer.waited {
            event!(DEBUG, hold, "waited", waited = humantime::format_duration(waited));
        }
        event!(DEBUG, hold, "acquired", fence = fence);
        hold
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.phase() == LOST || !self.is_of_this_process() {
            return Duration::ZERO;
        }
        self.over_at().since(Timestamp::now())
    }

    /// Whether this process holds it, and not one that it was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.locker.is_of_this_process()
    }

    /// Whether it is neither lost nor released, by the local clock. A forked child of the holder holds nothing.
    pub(super) fn is_held(&self) -> bool {
        self.is_of_this_process() && self.phase() < LOST && Timestamp::now() < self.over_at()
    }

    /// Returns what names it to others. `None` if it ends without its holder, because it is lost or not renewed.
    pub(crate) fn around(&self) -> Option<Around> {
        let named = || Around { key: self.key.clone(), fence: self.fence, tag: self.id.tag() };
        (self.renew && self.is_held()).then(named)
    }

    /// Waits until the hold is lost. Returns at once in a forked child.
    pub(crate) async fn lost(&self) {
        if self.is_of_this_process() {
            OfProcess::new(Box::pin(self.notified_of_the_loss())).await;
        }
    }

    async fn notified_of_the_loss(&self) {
        loop {
            let mut notified = pin!(self.lost.notified());
            notified.as_mut().enable();
            if self.phase() == LOST {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn loss_error(&self) -> Error {
        if !self.is_of_this_process() {
            let cure = "acquire again in the child, with a new locker";
            return Error::made_before_a_fork("this guard was made", cure).with_key(self.key.as_str());
        }
        let now = Timestamp::now();
        let why = if self.is_over_by_age(now) {
            self.why(Loss::MaxHold)
        } else if (self.deadline()..self.deadline() + self.stop_before).contains(&now) {
            self.why(Loss::Expired)
        } else {
            "the lease ended before its holder released it"
        };
        self.error(Error::new(ErrorKind::Lost, why))
    }

    /// Says why it is lost.
    fn why(&self, loss: Loss) -> &'static str {
        match loss {
            _ if self.stop_before.is_zero() => loss.why(),
            Loss::MaxHold => "held until stop_before the end of max_hold",
            Loss::Expired => "not renewed in time for stop_before",
            loss => loss.why(),
        }
    }

    /// Returns the error with the key and the function of this hold.
    fn error(&self, error: Error) -> Error {
        error.with_key(self.key.as_str()).of_function(self.function)
    }

    /// Returns the error of a renewal without an answer.
    pub(super) fn unanswered(&self) -> Error {
        self.error(Error::new(ErrorKind::Unavailable, "the store did not reply in time").unknown())
    }

    /// How long `Guard::release` waits for the store.
    pub(crate) fn patience(&self) -> Duration {
        self.lease / 3
    }

    /// How long the end of a function waits for the store.
    pub(crate) fn release_timeout(&self) -> Duration {
        self.patience().min(self.locker.command_timeout())
    }

    /// Whether its store is across a network, where replies get lost.
    pub(crate) fn is_remote(&self) -> bool {
        self.locker.store().waiter_ttl().is_some()
    }

    /// Whether its store is unavailable now.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.locker.store().outage(&self.key).is_some()
    }

    /// When the reply to a release that begins now is due.
    pub(crate) fn release_due(&self) -> Timestamp {
        Timestamp::now() + self.locker.command_timeout() + Duration::from_millis(100)
    }

    /// Ends the hold. Returns `Lost` if it was over before.
    pub(crate) async fn release(&self, patience: Duration) -> Result<()> {
        let now = Timestamp::now();
        let kept = self.finish(now);
        self.releases.fetch_add(1, Ordering::Relaxed);
        if !kept {
            if self.is_released_when_lost() {
                self.locker.call_in_background(&self.key, self.release_request(), self.lease, |_| ());
            }
            return Err(self.loss_error());
        }
        let settled = self.locker.retry_until_certain(&self.key, self.release_request(), now, patience).await;
        self.check_release(kept, settled)
    }

    /// Records the success of a run, until that is certain. The hold is renewed meanwhile.
    pub(super) async fn record_success(&self, value: Value, keep: Duration) -> Result<()> {
        let (now, call) = (Timestamp::now(), self.locker.begin_background());
        self.releases.fetch_add(1, Ordering::Relaxed);
        let request = Request::Record(record::Request::Finish { id: self.id, value, keep });
        let window = self.lease.saturating_add(TOMBSTONE);
        let settled = self.locker.retry_until_answered(&self.key, request, now, window).await;
        drop(call);
        let was_held = self.finish(Timestamp::now());
        match settled.map(|settled| settled.reply) {
            Ok(Reply::Recorded) => {
                if was_held {
                    self.record.ended(false);
                    event!(DEBUG, self, "released");
                }
                Ok(())
            }
            Ok(_) => {
                if was_held {
                    self.lose_at_release();
                }
                Err(self.loss_error())
            }
            Err(error) => {
                if was_held {
                    self.record.ended(false);
                }
                event!(WARN, self, "the success of the run is not certain", error = &error);
                Err(self.error(error))
            }
        }
    }

    /// Ends a hold that was [kept](Self::keep). It may be gone: its owner has released it, and an operator may end it.
    pub(super) fn release_kept(self: &Arc<Self>) {
        self.record.end(&**self, Timestamp::now().since(self.since));
        self.record.ended(false);
        event!(DEBUG, self, "released");
        let (hold, give_up) = (Arc::clone(self), self.lease.saturating_add(TOMBSTONE));
        self.locker.call_in_background(&self.key, self.release_request(), give_up, move |settled| {
            if let Err(error) = settled {
                hold.warn_of_no_release(&error);
            }
        });
    }

    /// Whether its end is under way, so that it may be gone.
    pub(super) fn is_ending(&self) -> bool {
        self.releases.load(Ordering::Relaxed) > 0
    }

    /// Ends a hold that was [kept](Self::keep), and is found gone while its owner releases it.
    pub(super) fn lose_kept(&self) {
        self.record.end(self, Timestamp::now().since(self.since));
        self.lose_at_release();
    }

    fn lose_at_release(&self) {
        self.record.ended(true);
        Record::lost(self, Loss::Gone);
        event!(WARN, self, "lost: the hold was gone at its release");
    }

    fn warn_of_no_release(&self, error: &Error) {
        event!(WARN, self, "not released: waiters wait until the lease is over", error = error);
    }

    /// Ends the hold in the background.
    pub(crate) fn release_later(self: &Arc<Self>) {
        let kept = self.finish(Timestamp::now());
        if !kept && !self.is_released_when_lost() {
            return;
        }
        self.releases.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::clone(self);
        self.locker.call_in_background(
            &self.key,
            self.release_request(),
            self.lease.saturating_add(TOMBSTONE),
            move |settled| match settled {
                Ok(settled) => drop(hold.check_release(kept, Ok(settled))),
                Err(error) => hold.warn_of_no_release(&error),
            },
        );
    }

    /// Judges the reply to a release: a hold that was gone is a loss, unless another copy of the release ended it.
    fn check_release(&self, kept: bool, settled: Result<Settled>) -> Result<()> {
        let others = self.releases.load(Ordering::Relaxed) > 1;
        let has_ended_nothing = match &settled {
            Ok(settled) => settled.reply == Reply::NotHeld && !settled.retried,
            Err(error) => error.is_certain(),
        };
        if has_ended_nothing {
            self.releases.fetch_sub(1, Ordering::Relaxed);
        }
        let settled = settled.map_err(|error| self.error(error))?;
        match settled.reply {
            Reply::Released if kept => {
                self.record.ended(false);
                event!(DEBUG, self, "released");
                Ok(())
            }
            Reply::NotHeld if kept && (settled.retried || others) => {
                self.record.ended(false);
                Ok(())
            }
            _ => {
                if kept {
                    self.lose_at_release();
                }
                Err(self.loss_error())
            }
        }
    }

    /// Whether a lost hold is released at once. One that is lost to its margin ends by its lease, which protects what
    /// is on its way. So does a run.
    pub(super) fn is_released_when_lost(&self) -> bool {
        let is_over_to_others = self.stop_before.is_zero() || Timestamp::now() < self.over_at();
        self.kind.may_be_released_when_lost() && is_over_to_others
    }

    /// Ends it for its owner, but not for others, if `min_hold` is not over. Returns `false` otherwise.
    pub(super) fn keep(&self) -> bool {
        let is_kept = self.keep_until > self.since && Timestamp::now() < self.kept_until();
        is_kept && self.is_held() && self.transition(OVER, |phase| phase < LOST)
    }

    /// Until when `min_hold` keeps it.
    pub(super) fn kept_until(&self) -> Timestamp {
        self.keep_until - self.ahead()
    }

    /// Returns the renewal that keeps it until then.
    pub(super) fn covering_request(&self, now: Timestamp) -> Request {
        let lease = covering(self.kept_until().since(now), self.lease);
        self.kind.renew(self.id, lease.max(self.lease))
    }

    /// Whether it lasts until then without a renewal, also if this process ends.
    pub(super) fn lasts_long_enough(&self) -> bool {
        self.deadline() > self.kept_until() + self.lease / 8
    }

    /// The part of the lease in which it does not count as lost.
    pub(super) fn usable(&self) -> Duration {
        self.lease.saturating_sub(self.stop_before)
    }

    pub(super) fn release_request(&self) -> Request {
        self.kind.release(self.id, self.doubtful)
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    pub(super) fn deadline(&self) -> Timestamp {
        Timestamp::from_micros(self.deadline.load(Ordering::Acquire)) - self.ahead()
    }

    /// Returns how far the store's clock has moved on during this hold, beside the time that passed for all.
    pub(super) fn ahead(&self) -> Duration {
        self.ahead.moved(self.locker.store())
    }

    /// When it is over, as far as is known: the last renewal may reach beyond `max_hold`.
    pub(super) fn over_at(&self) -> Timestamp {
        let end = if self.end == Timestamp::NEVER { self.end } else { self.end - self.ahead() };
        self.deadline().min(end)
    }

    pub(super) fn is_beyond_max_hold(&self, now: Timestamp) -> bool {
        now + self.ahead() >= self.end
    }

    /// Whether `max_hold` ended it, although it was renewed in time.
    fn is_over_by_age(&self, now: Timestamp) -> bool {
        self.is_beyond_max_hold(now) && self.deadline() + self.ahead() >= self.end
    }

    /// Ends renewals and reports of a loss. Returns `false` if it was lost before.
    fn finish(&self, now: Timestamp) -> bool {
        if now >= self.over_at() {
            self.expire(now);
        }
        let former = self.phase.swap(OVER, Ordering::AcqRel);
        if former < LOST {
            self.record.end(self, now.since(self.since));
        }
        former != LOST
    }

    pub(super) fn expire(&self, now: Timestamp) {
        self.lose(if self.is_over_by_age(now) { Loss::MaxHold } else { Loss::Expired });
    }

    pub(super) fn lose(&self, loss: Loss) {
        if self.transition(LOST, |phase| phase < LOST) {
            self.record.end(self, Timestamp::now().since(self.since));
            self.record.ended(true);
            Record::lost(self, loss);
            panics::contain(|| self.lost.notify_waiters());
            event!(WARN, self, "lost", why = self.why(loss));
        }
    }

    pub(super) fn mark_jeopardy(&self, error: &Error) {
        if self.transition(JEOPARDY, |phase| phase == SAFE) {
            event!(WARN, self, "jeopardy: not renewed, trying again", error = error);
        }
    }

    pub(super) fn warn_of_long(&self, now: Timestamp) {
        let held = humantime::format_duration(now.since(self.since));
        event!(WARN, self, "held for {held}: if its holder hangs, end it, and set max_hold", held = held);
    }

    /// Takes a lease that counts from `sent`, when the store's clock was `ahead`. A renewal that a test commanded
    /// meanwhile may have given a longer one.
    pub(super) fn renewed(&self, sent: Timestamp, ahead: Duration) {
        let deadline = lease_deadline(sent, self.lease) + ahead - self.stop_before;
        self.deadline.fetch_max(deadline.as_micros(), Ordering::AcqRel);
        self.transition(SAFE, |phase| phase == JEOPARDY);
        event!(DEBUG, self, "renewed");
    }

    #[cfg(all(test, feature = "redis"))]
    pub(super) fn is_in_jeopardy(&self) -> bool {
        self.phase() == JEOPARDY
    }

    /// Moves to another phase if `allowed`. Returns whether it did.
    fn transition(&self, to: u8, allowed: impl Fn(u8) -> bool) -> bool {
        let transition = |phase| allowed(phase).then_some(to);
        self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, transition).is_ok()
    }
}

impl Counted for Hold {
    fn subject(&self) -> Subject<'_> {
        let Self { locker, key, kind, function, .. } = self;
        Subject { locker, key, kind: (*kind).into(), function: *function }
    }
}

/// A hold that is left to its lease is counted as long as its guard lives.
impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            self.record.leave_to_parent();
        } else if self.phase() < LOST {
            self.record.end(self, Timestamp::now().since(self.since));
            self.record.ended(false);
        }
    }
}
