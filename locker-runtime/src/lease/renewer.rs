//! The one renewing task.

use super::hold::Hold;
use crate::{
    background::{self, alarm::Alarm},
    clock::Timestamp,
    primitives::Reply,
    renewals::{self, Wanted},
    sync::{Mutex, lock},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use once_cell::sync::Lazy;
use slab::Slab;
use std::sync::Arc;

/// Watches over all holds of the process.
#[derive(Debug, Default)]
pub(crate) struct Renewer {
    holds: Mutex<Slab<Watched>>,
    alarm: Alarm,
}

#[derive(Debug)]
struct Watched {
    hold: Arc<Hold>,
    /// `NEVER` while a renewal is under way, and for holds without renewal.
    renew_at: Timestamp,
    over: bool,
    /// Set once its owner releases it: it is not renewed any more, and this task releases it from then on.
    release_by: Option<Timestamp>,
}

impl Watched {
    fn due(&self) -> Timestamp {
        match self.release_by {
            _ if self.over => Timestamp::NEVER,
            Some(by) => by,
            None => self.renew_at.min(self.hold.over_at()),
        }
    }
}

static RENEWER: Lazy<Renewer> = Lazy::new(|| {
    renewals::serve();
    background::spawn(async { RENEWER.run().await });
    Renewer::default()
});

impl Renewer {
    /// Watches over a hold until [`forget`](Self::forget) is called with the number returned.
    pub(crate) fn watch(hold: &Arc<Hold>) -> usize {
        let renew_at = if hold.renew { hold.renew_at() } else { Timestamp::NEVER };
        let mut watched = Watched { hold: Arc::clone(hold), renew_at, over: false, release_by: None };
        let mut holds = lock(&RENEWER.holds);
        let requested = renewals::latest();
        if hold.renew && hold.sent <= requested {
            watched.renew_at = requested;
        }
        let due = watched.due();
        let number = holds.insert(watched);
        drop(holds);
        RENEWER.alarm.set(due);
        number
    }

    /// Ends renewals, because the owner releases the hold. If it is still watched at `by`, this task releases it.
    pub(crate) fn release_by(number: usize, by: Timestamp) {
        if let Some(watched) = lock(&RENEWER.holds).get_mut(number) {
            watched.release_by = Some(by);
        }
        RENEWER.alarm.set(by);
    }

    pub(crate) fn forget(number: usize) {
        let mut holds = lock(&RENEWER.holds);
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
                Some(()) = renewals.next() => {}
                wanted = renewals::requested() => self.renew_now(&wanted),
                () = self.alarm.due(background::sleep_from) => renewals.extend(self.due(Timestamp::now())),
            }
        }
    }

    fn renew_now(&self, wanted: &[Wanted]) {
        let now = Timestamp::now();
        for (_, Watched { hold, renew_at, release_by, .. }) in &mut *lock(&self.holds) {
            let is_wanted = || wanted.iter().any(|wanted| wanted.includes(hold.locker.store(), hold.id));
            if *renew_at != Timestamp::NEVER && release_by.is_none() && is_wanted() {
                *renew_at = now;
            }
        }
        self.alarm.set(now);
    }

    /// Expires holds, releases late ones, and returns the renewals that are due.
    fn due(&'static self, now: Timestamp) -> Vec<BoxFuture<'static, ()>> {
        self.alarm.reset();
        let (mut renewals, mut next) = (Vec::<BoxFuture<'static, ()>>::new(), Timestamp::NEVER);
        let (mut over, mut late) = (Vec::new(), Vec::new());
        for (number, watched) in &mut *lock(&self.holds) {
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
        for hold in over {
            hold.run_out(now);
        }
        for hold in late {
            hold.release_later();
        }
        renewals
    }

    async fn renew_hold(&self, number: usize, hold: Arc<Hold>) {
        let sent = Timestamp::now();
        let request = hold.kind.renew(hold.id, hold.lease);
        let again = match hold.locker.call_contained(&hold.key, &request).await {
            // A higher fence belongs to another hold: a late copy of the request was granted after this hold had ended.
            Ok(Reply::Renewed { fence }) if fence <= hold.fence => {
                hold.renewed(sent);
                hold.renew_at()
            }
            Ok(_) => {
                hold.lose("another may hold it");
                return;
            }
            Err(error) => {
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

    fn run_out(&self, now: Timestamp) {
        self.expire(now);
        if self.is_beyond_max_hold(now) {
            self.locker.call_in_background(&self.key, self.release_request(), self.lease, |_| ());
        }
    }
}
