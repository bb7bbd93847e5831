//! Requests of stores to renew holds at once: a store may have forgotten them.
//!
//! Stores are below leases, so they leave their requests here. The renewing task fetches them.

use crate::{
    clock::Timestamp,
    id::Id,
    process::PerProcess,
    store::Store,
    sync::{Mutex, lock},
};
use std::{
    mem::take,
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// The holds that a store wants renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All holds of the store at this address.
    OfStore(usize),
    /// As `OfStore`. They are in jeopardy until they are renewed.
    Doubted(usize),
    /// The hold with this id.
    One(Id),
}

impl Wanted {
    /// All holds of `store`.
    pub fn all_of(store: &dyn Store) -> Self {
        Self::OfStore(address_of(store))
    }

    /// Whether a hold is meant.
    pub fn includes(self, store: &dyn Store, id: Id) -> bool {
        match self {
            Self::OfStore(address) | Self::Doubted(address) => address == address_of(store),
            Self::One(wanted) => wanted == id,
        }
    }
}

#[derive(Debug, Default)]
struct Renewals {
    wanted: Mutex<Vec<Wanted>>,
    changed: Notify,
    /// When the latest request came, in microseconds. It counts also for holds that are watched only after that.
    latest: AtomicU64,
    /// Whether a task fetches the requests.
    is_served: AtomicBool,
}

fn renewals() -> &'static Renewals {
    static RENEWALS: PerProcess<Renewals> = PerProcess::new();
    RENEWALS.cell().get_or_init(Renewals::default)
}

/// Requests the renewal of every hold of `store`.
pub fn renew_all(store: &dyn Store) {
    renewals().request(Wanted::all_of(store));
}

/// Requests the renewal of every hold of `store`, because another server decides from now on. Until then the holds are
/// in jeopardy.
#[cfg(feature = "redis")]
pub fn doubt_all(store: &dyn Store) {
    renewals().request(Wanted::Doubted(address_of(store)));
}

/// Requests the renewal of the hold with this id.
pub fn renew(id: Id) {
    renewals().request(Wanted::One(id));
}

/// Makes requests wait for [`requested`]. Before that there is no hold, and [`latest`] is enough for the first.
pub fn serve() {
    renewals().is_served.store(true, Ordering::SeqCst);
}

/// When the latest request came. A hold that was requested from the store before must be renewed from then on.
#[must_use]
pub fn latest() -> Timestamp {
    Timestamp::from_micros(renewals().latest.load(Ordering::SeqCst))
}

/// Waits for requests and returns them.
///
/// # Cancel safety
/// Cancel safe: requests are taken only when they are returned.
pub async fn requested() -> Vec<Wanted> {
    let renewals = renewals();
    loop {
        let wanted = take(&mut *lock(&renewals.wanted));
        if !wanted.is_empty() {
            return wanted;
        }
        renewals.changed.notified().await;
    }
}

impl Renewals {
    fn request(&self, request: Wanted) {
        self.latest.fetch_max(Timestamp::now().as_micros(), Ordering::SeqCst);
        if !self.is_served.load(Ordering::SeqCst) {
            return;
        }
        let mut wanted = lock(&self.wanted);
        if !wanted.contains(&request) {
            wanted.push(request);
        }
        drop(wanted);
        self.changed.notify_one();
    }
}

fn address_of(store: &dyn Store) -> usize {
    ptr::from_ref(store).addr()
}
