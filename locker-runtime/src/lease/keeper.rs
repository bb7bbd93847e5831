//! The one renewing task.

use super::Hold;
use crate::{
    background,
    clock::Timestamp,
    primitives::Reply,
    sync::{Mutex, lock},
};
#[cfg(feature = "redis")]
use crate::{id::Id, store::Store};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use once_cell::sync::Lazy;
use slab::Slab;
#[cfg(feature = "redis")]
use std::ptr;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// Watches over all holds of the process.
#[derive(Debug)]
pub(crate) struct Keeper {
    holds: Mutex<Slab<Watched>>,
    /// When the task looks next, in microseconds; a hold that is due earlier wakes it.
    next_look: AtomicU64,
    earlier: Notify,
    /// When holds were last to be renewed at once, in microseconds: those, too, that are watched only after that.
    doubted: AtomicU64,
}

#[derive(Debug)]
struct Watched {
    hold: Arc<Hold>,
    /// `NEVER` while a renewal is on its way, or when there is none.
    renew_at: Timestamp,
    over: bool,
    /// It is not renewed any more: its owner releases it, or this task does from then on.
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

static KEEPER: Lazy<Keeper> = Lazy::new(|| {
    background::spawn(async { KEEPER.run().await });
    Keeper {
        holds: Mutex::default(),
        next_look: AtomicU64::new(Timestamp::NEVER.as_micros()),
        earlier: Notify::new(),
        doubted: AtomicU64::new(0),
    }
});

impl Keeper {
    /// Watches over a hold until [`forget`](Self::forget) is called with the number returned.
    pub(crate) fn watch(hold: &Arc<Hold>) -> usize {
        let renew_at = if hold.renew { hold.renew_at() } else { Timestamp::NEVER };
        let mut watched = Watched { hold: Arc::clone(hold), renew_at, over: false, release_by: None };
        let mut holds = lock(&KEEPER.holds);
        let doubted = Timestamp::from_micros(KEEPER.doubted.load(Ordering::SeqCst));
        if hold.renew && hold.sent <= doubted {
            watched.renew_at = doubted;
        }
        let due = watched.due();
        let number = holds.insert(watched);
        drop(holds);
        KEEPER.look_at(due);
        number
    }

    /// Its owner has begun to release the hold. It is released from here if it is still watched `by` then.
    pub(crate) fn release_by(number: usize, by: Timestamp) {
        if let Some(watched) = lock(&KEEPER.holds).get_mut(number) {
            watched.release_by = Some(by);
        }
        KEEPER.look_at(by);
    }

    pub(crate) fn forget(number: usize) {
        let mut holds = lock(&KEEPER.holds);
        let watched = holds.try_remove(number);
        if holds.is_empty() && holds.capacity() > 1024 {
            *holds = Slab::new();
        }
        drop(holds);
        drop(watched);
    }

    /// Renews every hold of `store` now: it may have forgotten some.
    #[cfg(feature = "redis")]
    pub(crate) fn renew_all(store: &dyn Store) {
        Self::renew_those(|hold| ptr::addr_eq(hold.locker.store(), store));
    }

    /// Renews the hold of `id` now: the store may not know of it.
    #[cfg(feature = "redis")]
    pub(crate) fn renew(id: Id) {
        Self::renew_those(|hold| hold.id == id);
    }

    #[cfg(feature = "redis")]
    pub(super) fn renew_those(which: impl Fn(&Hold) -> bool) {
        let (Some(keeper), now) = (Lazy::get(&KEEPER), Timestamp::now()) else { return };
        keeper.doubted.fetch_max(now.as_micros(), Ordering::SeqCst);
        for (_, watched) in &mut *lock(&keeper.holds) {
            if watched.renew_at != Timestamp::NEVER && watched.release_by.is_none() && which(&watched.hold) {
                watched.renew_at = now;
            }
        }
        keeper.look_at(now);
    }

    fn look_at(&self, due: Timestamp) {
        let due = due.as_micros();
        if due < self.next_look.load(Ordering::SeqCst)
            && due < self.next_look.fetch_min(due, Ordering::SeqCst)
        {
            self.earlier.notify_one();
        }
    }

    async fn run(&'static self) {
        let mut renewals = FuturesUnordered::new();
        loop {
            let next = Timestamp::from_micros(self.next_look.load(Ordering::SeqCst));
            tokio::select! {
                Some(()) = renewals.next() => {}
                () = self.earlier.notified() => {}
                () = background::sleep_until(next) => renewals.extend(self.look(Timestamp::now())),
            }
        }
    }

    /// Ends what is over and returns the renewals that are due.
    fn look(&'static self, now: Timestamp) -> Vec<BoxFuture<'static, ()>> {
        self.next_look.store(Timestamp::NEVER.as_micros(), Ordering::SeqCst);
        let (mut renewals, mut next) = (Vec::<BoxFuture<'static, ()>>::new(), Timestamp::NEVER);
        let (mut over, mut late) = (Vec::new(), Vec::new());
        for (number, watched) in &mut *lock(&self.holds) {
            let hold = &watched.hold;
            if let Some(by) = watched.release_by {
                // Where the store is away, nothing was sent, and its owner goes first when it is back.
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
        self.next_look.fetch_min(next.as_micros(), Ordering::SeqCst);
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
            // With a higher fence it is another hold, granted to a late copy of the request after this one had ended.
            Ok(Reply::Renewed { fence }) if fence <= hold.fence => {
                hold.renewed(sent);
                hold.renew_at()
            }
            Ok(_) => {
                hold.lose("another may hold it");
                return;
            }
            Err(error) => {
                hold.doubt(&error);
                Timestamp::now() + hold.lease / 12
            }
        };
        if let Some(watched) =
            lock(&self.holds).get_mut(number).filter(|watched| Arc::ptr_eq(&watched.hold, &hold))
        {
            watched.renew_at = again;
        }
        self.look_at(again);
    }
}

impl Hold {
    /// When a third of the lease has passed, give or take a tenth of that, so that many holds taken together are
    /// not renewed together for ever.
    fn renew_at(&self) -> Timestamp {
        let tenth = self.lease / 30;
        self.deadline() - self.lease + tenth * 9 + tenth / 64 * self.id.jitter(128)
    }

    fn run_out(&self, now: Timestamp) {
        self.expire(now);
        if self.is_beyond_max_hold(now) {
            self.locker.send_off(&self.key, self.release_request(), self.lease, |_| ());
        }
    }
}
