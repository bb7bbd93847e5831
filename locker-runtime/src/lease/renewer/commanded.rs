//! What a test commands: time moves on for the holds of a store, and holds are renewed at once.

use super::{Owner, Renewer, Watched, renewer};
use crate::lease::hold::Hold;
use futures_util::FutureExt;
use locker_core::{clock::Timestamp, key::Key, store::Store, sync::lock};
use std::{ptr, sync::Arc, time::Duration};

/// A watched hold, and its number.
pub(crate) type Numbered = (usize, Arc<Hold>);

impl Renewer {
    /// Releases the holds of a store in this process whose `min_hold` is over.
    pub(crate) fn release_kept_of(store: &dyn Store) {
        let (now, mut over, mut begun) = (Timestamp::now(), Vec::new(), Vec::new());
        for (number, Watched { hold, over: is_over, owner, .. }) in &mut *lock(&renewer().holds) {
            let is_of_store = ptr::addr_eq(hold.locker.store(), store);
            if *owner != Owner::Gone || !is_of_store || now < hold.kept_until() {
                continue;
            }
            if std::mem::replace(is_over, true) {
                begun.push(Arc::clone(hold));
            } else {
                over.push((number, Arc::clone(hold)));
            }
        }
        Self::release_kept(over);
        // The renewing task may not have got far. A second release changes nothing.
        for hold in begun {
            drop(hold.locker.call_inline(&hold.key, &hold.release_request(), None));
        }
    }

    /// Returns the watched holds of a store that are not being released.
    pub(crate) fn holds_of(store: &dyn Store) -> Vec<Numbered> {
        let holds = lock(&renewer().holds);
        let of_store = holds.iter().filter(|(_, watched)| {
            ptr::addr_eq(watched.hold.locker.store(), store) && !watched.over && watched.owner == Owner::Holds
        });
        of_store.map(|(number, watched)| (number, Arc::clone(&watched.hold))).collect()
    }

    /// Renews a hold at once. Its store is in this process, and answers at once.
    pub(crate) fn renew_inline((number, hold): Numbered) {
        let is_done = renewer().renew_hold(number, hold).now_or_never().is_some();
        debug_assert!(is_done, "a store in this process");
    }

    /// Looks at all holds again, because their time has moved on.
    pub(crate) fn look_again() {
        renewer().alarm.set(Timestamp::now());
    }
}

impl Hold {
    /// Returns the usable lease, if it is renewed.
    pub(crate) fn renewed_lease(&self) -> Option<Duration> {
        self.renew.then_some(self.usable())
    }

    /// Returns whether it is a hold of `key`.
    pub(crate) fn is_of(&self, key: &Key) -> bool {
        self.key == *key
    }

    /// Ends it if its time is over.
    pub(crate) fn expire_if_over(&self) {
        let now = Timestamp::now();
        if now >= self.over_at() {
            self.expire(now);
        }
    }
}
