//! The one renewing task.

#[cfg(feature = "_control")]
mod commanded;

use super::hold::Hold;
use crate::locker::Loss;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use locker_core::{
    background::{self, alarm::Alarm},
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    primitives::Reply,
    process::PerProcess,
    renewals::{self, Wanted},
    sync::{Mutex, lock},
};
use slab::Slab;
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The shortest time until the store is told again of a `min_hold`.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// Receives whether the store keeps a hold for its `min_hold`.
pub(super) type Kept = oneshot::Receiver<Result<()>>;

/// Watches over all holds of this process.
#[derive(Debug, Default)]
pub(crate) struct Renewer {
    holds: Mutex<Slab<Watched>>,
    alarm: Alarm,
}

#[derive(Debug)]
pub(super) struct Watched {
    hold: Arc<Hold>,
    /// `NEVER` while a renewal is under way, and for holds without renewal.
    renew_at: Timestamp,
    over: bool,
    /// When to warn next that it is held for long. `NEVER` without renewal, with `max_hold`, and for leaders.
    warn_at: Timestamp,
    owner: Owner,
}

/// What the owner of a hold has left to this task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// It has the hold.
    Holds,
    /// It releases the hold, which is not renewed any more. From this time on this task releases it.
    Releases(Timestamp),
    /// It has released the hold before its `min_hold`. This task keeps and releases it.
    Gone,
}

impl Watched {
    pub(super) fn new(hold: &Arc<Hold>) -> Self {
        let renew_at = if hold.renew { hold.renew_at() } else { Timestamp::NEVER };
        let is_odd = hold.renew && hold.end == Timestamp::NEVER && !hold.is_long;
        let warn_at = if is_odd { hold.ten_leases_after(hold.since) } else { Timestamp::NEVER };
        Self { hold: Arc::clone(hold), renew_at, over: false, warn_at, owner: Owner::Holds }
    }

    fn due(&self) -> Timestamp {
        match self.owner {
            _ if self.over => Timestamp::NEVER,
            Owner::Releases(by) => by,
            Owner::Holds => self.renew_at.min(self.hold.over_at()).min(self.warn_at),
            Owner::Gone => self.hold.kept_until(),
        }
    }

    /// Whether to warn now that it is held for long. Then the next warning is ten leases later.
    pub(super) fn is_warning_due(&mut self, now: Timestamp) -> bool {
        let is_due = !self.over && self.owner == Owner::Holds && now >= self.warn_at;
        if is_due {
            self.warn_at = self.hold.ten_leases_after(now);
        }
        is_due
    }
}

fn renewer() -> &'static Renewer {
    static RENEWER: PerProcess<Renewer> = PerProcess::new();
    RENEWER.cell().get_or_init(|| {
        renewals::serve();
        background::spawn(async { renewer().run().await });
        Renewer::default()
    })
}

impl Renewer {
    /// Watches over a hold until [`forget`](Self::forget) is called with the number returned.
    pub(crate) fn watch(hold: &Arc<Hold>) -> usize {
        let mut watched = Watched::new(hold);
        let renewer = renewer();
        let mut holds = lock(&renewer.holds);
        let requested = renewals::latest();
        if hold.renew && hold.sent <= requested {
            watched.renew_at = requested;
        }
        let due = watched.due();
        let number = holds.insert(watched);
        drop(holds);
        renewer.alarm.set(due);
        number
    }

    /// Ends renewals, because the owner releases the hold. If it is still watched at `by`, this task releases it.
    pub(crate) fn release_by(number: usize, by: Timestamp) {
        let renewer = renewer();
        if let Some(watched) = lock(&renewer.holds).get_mut(number) {
            watched.owner = Owner::Releases(by);
        }
        renewer.alarm.set(by);
    }

    /// Keeps a hold that its owner releases, if its `min_hold` is not over, and releases it then. The store is told in
    /// the background, so that the hold lasts as long if this process ends. Returns `None` if it is not kept.
    pub(crate) fn keep(number: usize, hold: &Arc<Hold>) -> Option<Kept> {
        let renewer = renewer();
        let is_covered = hold.lasts_long_enough();
        {
            // The renewing task may have found it over.
            let mut holds = lock(&renewer.holds);
            let watched = holds.get_mut(number).filter(|watched| !watched.over && hold.keep())?;
            watched.owner = Owner::Gone;
        }
        renewer.alarm.set(hold.kept_until());
        let (tell, kept) = oneshot::channel();
        if is_covered {
            // The receiver is here.
            drop(tell.send(Ok(())));
        } else {
            cover(number, Arc::clone(hold), Some(tell));
        }
        Some(kept)
    }

    /// Removes a kept hold that is gone. Returns `false` if it was removed before.
    fn give_up(&self, number: usize, hold: &Arc<Hold>) -> bool {
        let mut holds = lock(&self.holds);
        let is_watched = |watched: &Watched| Arc::ptr_eq(&watched.hold, hold) && !watched.over;
        let watched = holds.get(number).is_some_and(is_watched).then(|| holds.remove(number));
        drop(holds);
        watched.is_some()
    }

    pub(crate) fn forget(number: usize) {
        let mut holds = lock(&renewer().holds);
        let watched = holds.try_remove(number);
        if holds.is_empty() && holds.capacity() > 1024 {
            *holds = Slab::new();
        }
        drop(holds);
        drop(watched);
    }

    async fn run(&'static self) {
        let mut renewals = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = renewals.next() => {}
                wanted = renewals::requested() => self.renew_now(&wanted),
                () = self.alarm.due(background::sleep_from) => renewals.extend(self.due(Timestamp::now())),
            }
        }
    }

    fn renew_now(&self, wanted: &[Wanted]) {
        let now = Timestamp::now();
        let (mut doubted, mut kept) = (Vec::new(), Vec::new());
        for (number, Watched { hold, renew_at, owner, over, .. }) in &mut *lock(&self.holds) {
            let mut wanted = wanted.iter().filter(|wanted| wanted.includes(hold.locker.store(), hold.id));
            if *owner == Owner::Holds && wanted.clone().any(|wanted| matches!(wanted, Wanted::Doubted(_))) {
                doubted.push(Arc::clone(hold));
            }
            let is_wanted = wanted.next().is_some();
            if *renew_at != Timestamp::NEVER && *owner == Owner::Holds && is_wanted {
                *renew_at = now;
            } else if *owner == Owner::Gone && !*over && is_wanted {
                kept.push((number, Arc::clone(hold)));
            }
        }
        for (number, hold) in kept {
            cover(number, hold, None);
        }
        for hold in doubted {
            hold.mark_jeopardy(&Error::new(
                ErrorKind::Unavailable,
                "another server of the store has taken over",
            ));
        }
        self.alarm.set(now);
    }

    /// Expires holds, releases late ones, and returns the renewals that are due.
    fn due(&'static self, now: Timestamp) -> Vec<BoxFuture<'static, ()>> {
        self.alarm.reset();
        let (mut renewals, mut next) = (Vec::<BoxFuture<'static, ()>>::new(), Timestamp::NEVER);
        let (mut over, mut late, mut long, mut kept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, watched) in &mut *lock(&self.holds) {
            if watched.is_warning_due(now) {
                long.push(Arc::clone(&watched.hold));
            }
            let hold = &watched.hold;
            match watched.owner {
                _ if watched.over => {}
                // During an outage nothing was sent. The owner goes first when the store is back.
                Owner::Releases(by) if now >= by && hold.is_cut_off() => {
                    watched.owner = Owner::Releases(hold.release_due());
                }
                Owner::Releases(by) if now >= by => {
                    watched.over = true;
                    late.push(Arc::clone(hold));
                }
                Owner::Gone if now >= hold.kept_until() => {
                    watched.over = true;
                    kept.push((number, Arc::clone(hold)));
                }
                Owner::Holds if now >= hold.over_at() => {
                    watched.over = true;
                    over.push(Arc::clone(hold));
                }
                Owner::Holds if now + hold.usable() / 12 >= watched.renew_at => {
                    watched.renew_at = Timestamp::NEVER;
                    renewals.push(Box::pin(self.renew_hold(number, Arc::clone(hold))));
                }
                _ => {}
            }
            next = next.min(watched.due());
        }
        self.alarm.set(next);
        for hold in long {
            hold.warn_of_long(now);
        }
        for hold in over {
            hold.run_out(now);
        }
        for hold in late {
            hold.release_later();
        }
        Self::release_kept(kept);
        renewals
    }

    /// Ends holds, with their numbers, whose `min_hold` is over. They are watched until the store in this process has
    /// released them.
    fn release_kept(kept: Vec<(usize, Arc<Hold>)>) {
        for (number, hold) in kept {
            hold.release_kept();
            Self::forget(number);
        }
    }

    async fn renew_hold(&self, number: usize, hold: Arc<Hold>) {
        let (sent, ahead) = (Timestamp::now(), hold.ahead());
        let again = match hold.send_renewal(hold.lease).await {
            Ok(true) => {
                hold.renewed(sent, ahead);
                hold.renew_at()
            }
            // Its success may be recorded already.
            Ok(false) if hold.is_ending() => return,
            Ok(false) => return hold.lose(Loss::Taken),
            Err(error) => {
                hold.mark_jeopardy(&error);
                Timestamp::now() + hold.usable() / 12
            }
        };
        let mut holds = lock(&self.holds);
        if let Some(watched) = holds.get_mut(number).filter(|watched| Arc::ptr_eq(&watched.hold, &hold)) {
            watched.renew_at = again;
        }
        drop(holds);
        self.alarm.set(again);
    }
}

/// Tells the store that a hold lasts for its `min_hold`, and repeats that until it is certain or `min_hold` is over.
fn cover(number: usize, hold: Arc<Hold>, tell: Option<oneshot::Sender<Result<()>>>) {
    let now = Timestamp::now();
    let (key, request) = (hold.key.clone(), hold.covering_request(now));
    let locker = hold.locker.clone();
    // Then with a new lease, since less is left.
    let give_up = hold.kept_until().since(now).min(hold.lease);
    locker.call_in_background(&key, request, give_up, move |settled| {
        let is_kept = settled.map(|settled| hold.is_renewed_by(&settled.reply));
        hold.locker.renewal_ended(outcome(&is_kept));
        let result = match is_kept {
            Ok(true) => Ok(()),
            Ok(false) => {
                if renewer().give_up(number, &hold) {
                    hold.lose_kept();
                }
                Err(hold.loss_error())
            }
            Err(error) => {
                let error = error.with_key(hold.key.as_str()).of_function(hold.function);
                background::spawn(async move {
                    background::sleep(AFTER_AN_ERROR.max(hold.lease / 3)).await;
                    if Timestamp::now() < hold.kept_until() {
                        cover(number, hold, None);
                    }
                });
                Err(error)
            }
        };
        // Nobody may wait for it any more.
        drop(tell.map(|tell| tell.send(result)));
    });
}

/// What a renewal is counted as, of which is known whether the hold was still there.
fn outcome(renewed: &Result<bool>) -> std::result::Result<(), ErrorKind> {
    match renewed {
        Ok(true) => Ok(()),
        Ok(false) => Err(ErrorKind::Lost),
        Err(error) => Err(error.kind()),
    }
}

impl Hold {
    /// After a third of the usable lease, within a tenth of that, so that the renewals of holds that began together
    /// spread.
    pub(super) fn renew_at(&self) -> Timestamp {
        let usable = self.usable();
        let tenth = usable / 30;
        self.deadline() - usable + tenth * 9 + tenth / 64 * self.id.jitter(128)
    }

    /// Sends a renewal. Returns whether the hold was still there.
    async fn send_renewal(&self, lease: Duration) -> Result<bool> {
        let request = self.kind.renew(self.id, lease);
        let reply = self.locker.call_contained(&self.key, &request);
        let reply = if self.stop_before.is_zero() {
            reply.await
        } else {
            // A store waits for up to a third of the lease, which is more of what is usable.
            tokio::select! {
                biased;
                reply = reply => reply,
                () = background::sleep(self.usable() / 3) => Err(self.unanswered()),
            }
        };
        let renewed = reply.map(|reply| self.is_renewed_by(&reply));
        self.locker.renewal_ended(outcome(&renewed));
        renewed
    }

    /// Whether the hold was still there at the renewal with this reply. A higher fence belongs to another hold: a late
    /// copy of the acquire was granted after this hold had ended.
    fn is_renewed_by(&self, reply: &Reply) -> bool {
        matches!(reply, Reply::Renewed { fence } if *fence <= self.fence)
    }

    /// Waits until the store knows that the hold is kept.
    pub(super) async fn kept_within(&self, kept: Kept, patience: Duration) -> Result<()> {
        tokio::select! {
            biased;
            // It tells before it ends.
            kept = kept => kept.unwrap_or_else(|_| Err(self.unanswered())),
            () = background::sleep(patience) => Err(self.unanswered()),
        }
    }

    fn ten_leases_after(&self, time: Timestamp) -> Timestamp {
        time + self.lease.saturating_mul(10)
    }

    /// Ends it by its age or its lease. The release by age comes after the margin. A run ends by its lease.
    fn run_out(self: &Arc<Self>, now: Timestamp) {
        self.expire(now);
        if !self.is_beyond_max_hold(now) || !self.kind.may_be_released_when_lost() {
            return;
        }
        let hold = Arc::clone(self);
        let release = move || {
            hold.locker.call_in_background(&hold.key, hold.release_request(), hold.lease, |_| ());
        };
        if self.stop_before.is_zero() {
            return release();
        }
        let margin = self.stop_before;
        background::spawn(async move {
            background::sleep(margin).await;
            release();
        });
    }
}
