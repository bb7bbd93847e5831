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
    /// When to warn next that it is held for long. `NEVER` without renewal, or with `max_hold`.
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
        let renew_at = if hold.settings.renew { hold.renew_at() } else { Timestamp::NEVER };
        let is_endless = hold.settings.renew && hold.end == Timestamp::NEVER;
        let warn_at = if is_endless { hold.ten_leases_after(hold.since) } else { Timestamp::NEVER };
        Self { hold: Arc::clone(hold), renew_at, over: false, warn_at, owner: Owner::Holds }
    }

    fn due(&self) -> Timestamp {
        match self.owner {
            _ if self.over => Timestamp::NEVER,
            Owner::Releases(by) => by,
            Owner::Holds => self.renew_at.min(self.hold.over_at()).min(self.warn_at),
            Owner::Gone if self.hold.is_covered() => self.hold.kept_until(),
            Owner::Gone => self.renew_at.min(self.hold.kept_until()),
        }
    }

    fn is_renewal_due(&self, now: Timestamp) -> bool {
        let is_wanted = self.owner == Owner::Holds || !self.hold.is_covered();
        is_wanted && now + self.hold.settings.usable() / 12 >= self.renew_at
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
        if hold.settings.renew && hold.sent <= requested {
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

    /// Keeps a hold that its owner has released before its `min_hold`, and releases it then. Returns once the store
    /// keeps it that long, also if this process ends.
    ///
    /// # Errors
    /// `Lost` if the hold was over. `Unavailable` if the store does not answer within `patience`: this task asks again.
    pub(crate) async fn keep(number: usize, hold: Arc<Hold>, patience: Duration) -> Result<()> {
        let renewer = renewer();
        let again = Timestamp::now() + hold.settings.usable() / 12;
        if let Some(watched) = lock(&renewer.holds).get_mut(number) {
            // If this future is not polled, this task renews it.
            (watched.owner, watched.renew_at) = (Owner::Gone, again);
        }
        renewer.alarm.set(again.min(hold.kept_until()));
        if hold.is_covered() {
            return Ok(());
        }
        tokio::select! {
            biased;
            renewed = renewer.renew_hold(number, Arc::clone(&hold)) => renewed,
            () = background::sleep(patience) => Err(hold.unanswered()),
        }
    }

    /// Does what [`keep`](Self::keep) does.
    pub(crate) fn keep_in_background(number: usize, hold: Arc<Hold>) {
        let call = hold.locker.begin_in_background();
        background::spawn(async move {
            // The renewing task goes on, and the loss of a hold without an owner concerns nobody.
            let patience = hold.patience();
            drop(Self::keep(number, hold, patience).await);
            drop(call);
        });
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
        let mut doubted = Vec::new();
        for (_, Watched { hold, renew_at, owner, .. }) in &mut *lock(&self.holds) {
            let mut wanted = wanted.iter().filter(|wanted| wanted.includes(hold.locker.store(), hold.id));
            if *owner == Owner::Holds && wanted.clone().any(|wanted| matches!(wanted, Wanted::Doubted(_))) {
                doubted.push(Arc::clone(hold));
            }
            if *renew_at != Timestamp::NEVER && *owner == Owner::Holds && wanted.next().is_some() {
                *renew_at = now;
            }
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
                Owner::Releases(_) => {}
                Owner::Gone if now >= hold.kept_until() => {
                    watched.over = true;
                    kept.push((number, Arc::clone(hold)));
                }
                Owner::Holds if now >= hold.over_at() => {
                    watched.over = true;
                    over.push(Arc::clone(hold));
                }
                Owner::Holds | Owner::Gone if watched.is_renewal_due(now) => {
                    watched.renew_at = Timestamp::NEVER;
                    let renewal = self.renew_hold(number, Arc::clone(hold));
                    renewals.push(Box::pin(async move { drop(renewal.await) }));
                }
                Owner::Holds | Owner::Gone => {}
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
        for (number, hold) in kept {
            Self::forget(number);
            hold.release_kept();
        }
        renewals
    }

    /// Renews a hold, and says when to do so again.
    ///
    /// # Errors
    /// Those of the renewal, which are told to the guard, too.
    async fn renew_hold(&self, number: usize, hold: Arc<Hold>) -> Result<()> {
        let (sent, ahead) = (Timestamp::now(), hold.ahead());
        let is_owned = |watched: &Watched| watched.owner == Owner::Holds;
        let is_owned = lock(&self.holds).get(number).is_none_or(is_owned);
        let lease = if is_owned { hold.settings.lease } else { hold.covering_lease(sent) };
        let request = hold.kind.renew(hold.id, lease);
        let (again, result) = match hold.locker.call_contained(&hold.key, &request).await {
            // A higher fence belongs to another hold: a late copy of the request was granted after this hold had ended.
            Ok(Reply::Renewed { fence }) if fence <= hold.fence => {
                hold.locker.renewal_ended(Ok(()));
                hold.renewed(sent, lease, ahead);
                (hold.renew_at(), Ok(()))
            }
            Ok(_) => {
                hold.locker.renewal_ended(Err(ErrorKind::Lost));
                hold.lose(Loss::Taken);
                if !is_owned {
                    Self::forget(number);
                    hold.release_kept();
                }
                return Err(hold.loss_error());
            }
            Err(error) => {
                hold.locker.renewal_ended(Err(error.kind()));
                hold.mark_jeopardy(&error);
                (Timestamp::now() + hold.settings.usable() / 12, Err(error.with_key(hold.key.as_str())))
            }
        };
        if let Some(watched) =
            lock(&self.holds).get_mut(number).filter(|watched| Arc::ptr_eq(&watched.hold, &hold))
        {
            watched.renew_at = again;
        }
        self.alarm.set(again);
        result
    }
}

impl Hold {
    /// After a third of the usable lease, within a tenth of that, so that the renewals of holds that began together
    /// spread.
    pub(super) fn renew_at(&self) -> Timestamp {
        let usable = self.settings.usable();
        let tenth = usable / 30;
        self.deadline() - usable + tenth * 9 + tenth / 64 * self.id.jitter(128)
    }

    fn ten_leases_after(&self, time: Timestamp) -> Timestamp {
        time + self.settings.lease.saturating_mul(10)
    }

    fn run_out(&self, now: Timestamp) {
        self.expire(now);
        if self.is_beyond_max_hold(now) && self.is_released_when_lost() {
            self.locker.call_in_background(&self.key, self.release_request(), self.settings.lease, |_| ());
        }
    }
}
