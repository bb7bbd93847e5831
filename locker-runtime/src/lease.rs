//! Keeping leases: one task renews every hold of the process and tells its owner when it is lost.

mod keeper;

use crate::{
    Error, ErrorKind, Result,
    clock::Timestamp,
    config::Settings,
    diagnostics::event,
    id::Id,
    key::Key,
    locker::{Answer, Locker, Told},
    panics,
    primitives::{Kind, Reply, Request, TOMBSTONE},
};
pub(crate) use keeper::Keeper;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Something held. `Safe -> Jeopardy -> Lost` by the local deadline, which is counted from before the request was
/// sent that the store granted or renewed it for.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) function: &'static str,
    locker: Locker,
    kind: Kind,
    id: Id,
    fence: u64,
    lease: Duration,
    renew: bool,
    /// When its lease began, which is before its owner had it.
    sent: Timestamp,
    /// When it ends however often it is renewed.
    end: Timestamp,
    deadline: AtomicU64,
    phase: AtomicU8,
    lost: Notify,
    /// An earlier copy of the acquire may still arrive: the release leaves a tombstone.
    doubtful: bool,
    /// How many releases are under way, or may have ended the hold.
    releases: AtomicU8,
}

const SAFE: u8 = 0;
const JEOPARDY: u8 = 1;
const LOST: u8 = 2;
const OVER: u8 = 3;

impl Hold {
    #[expect(clippy::too_many_arguments, reason = "called from one place, with everything a hold is")]
    pub(crate) fn new(
        locker: Locker,
        kind: Kind,
        key: Key,
        id: Id,
        fence: u64,
        settings: Settings,
        answer: &Answer,
        function: &'static str,
    ) -> Arc<Self> {
        let hold = Arc::new(Self {
            key,
            function,
            locker,
            kind,
            id,
            fence,
            lease: settings.lease,
            renew: settings.renew,
            sent: answer.sent,
            end: answer.since + settings.longest_hold(),
            deadline: AtomicU64::new(deadline(answer.sent, settings.lease).as_micros()),
            phase: AtomicU8::new(SAFE),
            lost: Notify::new(),
            doubtful: answer.doubtful,
            releases: AtomicU8::new(0),
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
        if self.phase() == LOST { Duration::ZERO } else { self.over_at().since(Timestamp::now()) }
    }

    /// Waits until the hold is lost.
    pub(crate) async fn lost(&self) {
        loop {
            let mut notified = pin!(self.lost.notified());
            notified.as_mut().enable();
            if self.phase() == LOST {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn loss(&self) -> Error {
        let why = if self.is_over_by_age(Timestamp::now()) {
            "held longer than max_hold, which is 10 leases unless it is set"
        } else {
            "the lease ended before its holder released it"
        };
        Error::new(ErrorKind::Lost, why).with_key(self.key.as_str())
    }

    /// How long a release is waited for by those who want to know how it ends.
    pub(crate) fn patience(&self) -> Duration {
        self.lease / 3
    }

    /// How long it is waited for by those who only want to leave.
    pub(crate) fn short_patience(&self) -> Duration {
        self.patience().min(self.locker.command_timeout())
    }

    /// Whether its store is across a network, where answers get lost.
    pub(crate) fn is_remote(&self) -> bool {
        self.locker.store().liveness().is_some()
    }

    /// Whether its store cannot be asked now.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.locker.store().trouble().is_some()
    }

    /// When a release that begins now should have been answered.
    pub(crate) fn release_due(&self) -> Timestamp {
        Timestamp::now() + self.locker.command_timeout() + Duration::from_millis(100)
    }

    /// Ends the hold and says whether it lasted until now.
    pub(crate) async fn release(&self, patience: Duration) -> Result<()> {
        let kept = self.finish();
        self.releases.fetch_add(1, Ordering::Relaxed);
        if !kept {
            self.locker.send_off(&self.key, self.release_request(), self.lease, |_| ());
            return Err(self.loss());
        }
        let told = self.locker.insist(&self.key, self.release_request(), patience).await;
        self.judge(kept, told)
    }

    /// Ends the hold without anybody waiting for it.
    pub(crate) fn release_later(self: &Arc<Self>) {
        let kept = self.finish();
        self.releases.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::clone(self);
        self.locker.send_off(
            &self.key,
            self.release_request(),
            self.lease.saturating_add(TOMBSTONE),
            move |told| match told {
                Ok(told) => drop(hold.judge(kept, Ok(told))),
                Err(error) => {
                    event!(WARN, hold, "not released: others wait until the lease is over", error = error);
                }
            },
        );
    }

    /// Says once, never silently, that a hold was gone when it was to be released.
    fn judge(&self, kept: bool, told: Result<Told>) -> Result<()> {
        let others = self.releases.load(Ordering::Relaxed) > 1;
        let has_ended_nothing = match &told {
            Ok(told) => told.reply == Reply::NotHeld && !told.repeated,
            Err(error) => error.is_certain(),
        };
        if has_ended_nothing {
            self.releases.fetch_sub(1, Ordering::Relaxed);
        }
        let told = told?;
        match told.reply {
            Reply::Released if kept => {
                event!(DEBUG, self, "released");
                Ok(())
            }
            Reply::NotHeld if kept && (told.repeated || others) => Ok(()),
            _ => {
                if kept {
                    event!(WARN, self, "lost: found gone when it was to be released");
                }
                Err(self.loss())
            }
        }
    }

    fn release_request(&self) -> Request {
        self.kind.release(self.id, self.doubtful)
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    fn deadline(&self) -> Timestamp {
        Timestamp::from_micros(self.deadline.load(Ordering::Acquire))
    }

    /// When it is over as far as is known now: the last renewals may reach beyond its end.
    fn over_at(&self) -> Timestamp {
        self.deadline().min(self.end)
    }

    fn is_beyond_max_hold(&self, now: Timestamp) -> bool {
        self.renew && now >= self.end
    }

    /// Whether it is over although it was renewed in time.
    fn is_over_by_age(&self, now: Timestamp) -> bool {
        self.is_beyond_max_hold(now) && self.deadline() >= self.end
    }

    /// From here on nothing renews it or calls it lost. `false`: it was lost before.
    fn finish(&self) -> bool {
        let now = Timestamp::now();
        if now >= self.over_at() {
            self.expire(now);
        }
        self.phase.swap(OVER, Ordering::AcqRel) != LOST
    }

    fn expire(&self, now: Timestamp) {
        self.lose(if self.is_over_by_age(now) {
            "held longer than max_hold"
        } else {
            "not renewed before the lease was over"
        });
    }

    fn lose(&self, why: &'static str) {
        if self.shift(LOST, |phase| phase < LOST) {
            panics::contain(|| self.lost.notify_waiters());
            event!(WARN, self, "lost", why = why);
        }
    }

    fn doubt(&self, error: &Error) {
        if self.shift(JEOPARDY, |phase| phase == SAFE) {
            event!(WARN, self, "jeopardy: not renewed, trying again", error = error);
        }
    }

    fn renewed(&self, sent: Timestamp) {
        self.deadline.store(deadline(sent, self.lease).as_micros(), Ordering::Release);
        self.shift(SAFE, |phase| phase == JEOPARDY);
        event!(DEBUG, self, "renewed");
    }

    /// Moves to another phase if the present one allows it; says whether it did.
    fn shift(&self, to: u8, allowed: impl Fn(u8) -> bool) -> bool {
        let shift = |phase| allowed(phase).then_some(to);
        self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, shift).is_ok()
    }
}

/// Two clocks may drift apart while the lease lasts: a thousandth of it is the allowance.
pub(crate) fn deadline(sent: Timestamp, lease: Duration) -> Timestamp {
    sent + lease.saturating_sub(lease / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(sent: Timestamp, since: Timestamp) -> Arc<Hold> {
        held_for(Duration::from_secs(10), sent, since)
    }

    /// Which its store does not know of.
    fn held_for(lease: Duration, sent: Timestamp, since: Timestamp) -> Arc<Hold> {
        let settings = Settings { lease, max_hold: Some(lease), ..Settings::default() };
        let answer =
            Answer { reply: Reply::Granted { fence: 1 }, sent, since, doubtful: false, waited: None };
        Hold::new(Locker::memory(), Kind::Lock, Key::new("lock:a"), Id::from(1), 1, settings, &answer, "")
    }

    #[test]
    fn max_hold_counts_from_when_it_is_held_and_the_lease_from_when_it_was_asked_for() {
        let of = Duration::from_secs;
        let (sent, since) = (Timestamp::now(), Timestamp::now() + of(2));
        let hold = held(sent, since);
        assert_eq!((hold.end, hold.deadline()), (since + of(10), deadline(sent, of(10))));
    }

    /// As one that is told of a hand-over while it turns out that there was nothing to hand on.
    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn who_held_when_all_were_to_be_renewed_and_is_watched_later_is_renewed_too() {
        let now = Timestamp::now;
        let of_a_long_lease = || held_for(Duration::from_secs(600), now(), now());
        let (before, late) = (of_a_long_lease(), of_a_long_lease());
        Keeper::watch(&before);
        Keeper::renew_those(|_| true);
        Keeper::watch(&late);
        for hold in [before, late] {
            locker_harness::in_time("the loss", hold.lost()).await;
        }
    }

    /// It had taken the hand-over from its mailbox, and had not looked at the clock yet.
    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn who_was_told_when_all_were_to_be_renewed_and_held_later_is_renewed_too() {
        let (watched, told) = (held(Timestamp::now(), Timestamp::now()), Timestamp::now());
        Keeper::watch(&watched);
        Keeper::renew_those(|_| true);
        let late = held_for(Duration::from_secs(600), told, told + Duration::from_secs(1));
        Keeper::watch(&late);
        locker_harness::in_time("the loss", late.lost()).await;
    }

    #[test]
    fn a_loss_tells_of_max_hold_where_that_is_the_reason() {
        let (now, long_ago) = (Timestamp::now(), Timestamp::now() - Duration::from_secs(60));
        assert!(held(now, long_ago).loss().message().contains("max_hold"), "it was renewed until now");
        for sent in [now, long_ago] {
            assert!(!held(sent, now).loss().message().contains("max_hold"), "it has not passed");
        }
        assert!(!held(long_ago, long_ago).loss().message().contains("max_hold"), "it was not renewed");
    }
}
