//! The one renewing task.

#[cfg(feature = "_control")]
mod commanded;

use super::hold::Hold;
use crate::locker::Loss;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use locker_core::{
    background::{self, alarm::Alarm},
    clock::Timestamp,
    error::{Error, ErrorKind},
    primitives::Reply,
    process::PerProcess,
    renewals::{self, Wanted},
    sync::{Mutex, lock},
};
use slab::Slab;
use std::sync::Arc;

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
    /// Set once its owner releases it: it is not renewed any more, and this task releases it from then on.
    release_by: Option<Timestamp>,
}

impl Watched {
    pub(super) fn new(hold: &Arc<Hold>) -> Self {
        let renew_at = if hold.renew { hold.renew_at() } else { Timestamp::NEVER };
        let is_endless = hold.renew && hold.end == Timestamp::NEVER;
        let warn_at = if is_endless { hold.ten_leases_after(hold.since) } else { Timestamp::NEVER };
        Self { hold: Arc::clone(hold), renew_at, over: false, warn_at, release_by: None }
    }

    fn due(&self) -> Timestamp {
        match self.release_by {
            _ if self.over => Timestamp::NEVER,
            Some(by) => by,
            None => self.renew_at.min(self.hold.over_at()).min(self.warn_at),
        }
    }

    /// Whether to warn now that it is held for long. Then the next warning is ten leases later.
    pub(super) fn is_warning_due(&mut self, now: Timestamp) -> bool {
        let is_due = !self.over && self.release_by.is_none() && now >= self.warn_at;
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
            watched.release_by = Some(by);
        }
        renewer.alarm.set(by);
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
        for (_, Watched { hold, renew_at, release_by, .. }) in &mut *lock(&self.holds) {
            let mut wanted = wanted.iter().filter(|wanted| wanted.includes(hold.locker.store(), hold.id));
            if release_by.is_none() && wanted.clone().any(|wanted| matches!(wanted, Wanted::Doubted(_))) {
                doubted.push(Arc::clone(hold));
            }
            if *renew_at != Timestamp::NEVER && release_by.is_none() && wanted.next().is_some() {
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
        let (mut over, mut late, mut long) = (Vec::new(), Vec::new(), Vec::new());
        for (number, watched) in &mut *lock(&self.holds) {
            if watched.is_warning_due(now) {
                long.push(Arc::clone(&watched.hold));
            }
            let hold = &watched.hold;
            if let Some(by) = watched.release_by {
                // During an outage nothing was sent. The owner goes first when the store is back.
                if now >= by && hold.is_cut_off() {
                    watched.release_by = Some(hold.release_due());
                } else if !watched.over && now >= by {
                    watched.over = true;
                    late.push(Arc::clone(hold));
                }
            } else if !watched.over && now >= hold.over_at() {
                watched.over = true;
                over.push(Arc::clone(hold));
            } else if !watched.over && now + hold.lease / 12 >= watched.renew_at {
                watched.renew_at = Timestamp::NEVER;
                renewals.push(Box::pin(self.renew_hold(number, Arc::clone(hold))));
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
        renewals
    }

    async fn renew_hold(&self, number: usize, hold: Arc<Hold>) {
        let (sent, ahead) = (Timestamp::now(), hold.ahead());
        let request = hold.kind.renew(hold.id, hold.lease);
        let again = match hold.locker.call_contained(&hold.key, &request).await {
            // A higher fence belongs to another hold: a late copy of the request was granted after this hold had ended.
            Ok(Reply::Renewed { fence }) if fence <= hold.fence => {
                hold.locker.renewal_ended(Ok(()));
                hold.renewed(sent, ahead);
                hold.renew_at()
            }
            Ok(_) => {
                hold.locker.renewal_ended(Err(ErrorKind::Lost));
                hold.lose(Loss::Taken);
                return;
            }
            Err(error) => {
                hold.locker.renewal_ended(Err(error.kind()));
                hold.mark_jeopardy(&error);
                Timestamp::now() + hold.lease / 12
            }
        };
        if let Some(watched) =
            lock(&self.holds).get_mut(number).filter(|watched| Arc::ptr_eq(&watched.hold, &hold))
        {
            watched.renew_at = again;
        }
        self.alarm.set(again);
    }
}

impl Hold {
    /// After a third of the lease, within a tenth of that, so that the renewals of holds that began together spread.
    fn renew_at(&self) -> Timestamp {
        let tenth = self.lease / 30;
        self.deadline() - self.lease + tenth * 9 + tenth / 64 * self.id.jitter(128)
    }

    fn ten_leases_after(&self, time: Timestamp) -> Timestamp {
        time + self.lease.saturating_mul(10)
    }

    fn run_out(&self, now: Timestamp) {
        self.expire(now);
        if self.is_beyond_max_hold(now) {
            self.locker.call_in_background(&self.key, self.release_request(), self.lease, |_| ());
        }
    }
}
