//! A locker for tests of an application: time moves on, holds are lost and the store fails on command (feature
//! `testing`).
//!
//! ```
//! # use locker_runtime as locker;
//! use std::time::Duration;
//! # async fn example() -> locker::Result<()> {
//! let (locker, control) = locker::testing::memory();
//! let abandoned = locker.lock("report").lease(Duration::from_secs(30)).renew(false).acquire().await?;
//! control.advance(Duration::from_secs(31));
//! assert!(abandoned.check().is_err(), "its lease is over");
//! locker.lock("report").acquire().await?;
//! # Ok(()) }
//! ```

#[cfg(feature = "testing")]
mod paused;

use crate::{builder::LockerBuilder, lease::Renewer, locker::Locker};
use futures_util::FutureExt;
use locker_core::{
    error::{Error, ErrorKind, Result},
    key::Key,
    renewals,
    store::memory::Memory,
};
#[cfg(feature = "testing")]
pub use paused::{Paused, paused};
use std::time::Duration;

/// Returns a locker on an embedded store of its own, with the defaults of [`Locker::memory`], and what controls it.
pub fn memory() -> (Locker, Control) {
    let store = Memory::new();
    let locker = Locker::with_defaults(store.clone());
    (locker.clone(), Control { locker, store })
}

/// Does what [`memory`] does, with the defaults of `builder`. Its URL is not used.
///
/// # Errors
/// `Misused` if a setting is wrong.
pub fn memory_with(builder: LockerBuilder) -> Result<(Locker, Control)> {
    let store = Memory::new();
    let built = builder.store(store.clone()).build().now_or_never();
    let waited = || Err(Error::new(ErrorKind::Unavailable, "a store in this process is never waited for"));
    let locker = built.unwrap_or_else(waited)?;
    Ok((locker.clone(), Control { locker, store }))
}

/// Controls the store of one locker under test. Cheap to clone; clones control the same store.
#[derive(Clone, Debug)]
#[must_use = "without it, use `Locker::memory`"]
pub struct Control {
    locker: Locker,
    store: Memory,
}

impl Control {
    /// Moves time on for the store and its holds.
    ///
    /// Holds that are renewed survive, also if `by` is longer than their lease. Others end when their lease is over:
    /// their guards are lost, and waiters are served. `max_hold` and the end of `min_hold` end holds. Limiters refill
    /// and admit callers that wait for a reservation, watchdogs expire, events are forgotten. During an outage nothing
    /// is renewed, and the store applies what was due at the end of the outage.
    ///
    /// Timeouts of callers, their retries and the clocks of the application do not move. Time moves in steps of half
    /// the shortest lease that is renewed: a day beside a lease of 10 s takes half a second in a debug build, and
    /// `Duration::MAX` beside a renewed hold does not end. A hold that another thread acquires meanwhile may be lost,
    /// whether renewed or not: move time on while no call is under way that does not wait.
    pub fn advance(&self, by: Duration) {
        let mut left = by;
        loop {
            let holds = Renewer::holds_of(self.locker.store());
            let renewed: Vec<_> = holds.iter().filter(|(_, hold)| hold.renewed_lease().is_some()).collect();
            for numbered in &renewed {
                Renewer::renew_inline((*numbered).clone());
            }
            let shortest = renewed.iter().filter_map(|(_, hold)| hold.renewed_lease()).min();
            let step = left.min(shortest.map_or(left, |lease| lease / 2));
            if step.is_zero() {
                break;
            }
            self.store.advance(step);
            for (_, hold) in &holds {
                hold.expire_if_over();
            }
            Renewer::release_kept_of(self.locker.store());
            left -= step;
        }
        Renewer::look_again();
    }

    /// Ends the holds of a key by force, as an operator does. Their guards are lost when this returns, and the next
    /// waiter is served. Returns whether any caller held it. [`Admin::key`](crate::Admin::key) makes the key of a
    /// name, [`Admin::key_on`](crate::Admin::key_on) that of an annotated function.
    ///
    /// # Errors
    /// `Unavailable` during an outage, `Misused` in a forked child.
    pub fn lose(&self, key: &Key) -> Result<bool> {
        let of_store = Renewer::holds_of(self.locker.store());
        let waited =
            || Err(Error::new(ErrorKind::Unavailable, "a store in this process is never waited for"));
        let was_held = self.locker.admin().evict(key).now_or_never().unwrap_or_else(waited)?;
        of_store.into_iter().filter(|(_, hold)| hold.is_of(key)).for_each(Renewer::renew_inline);
        Ok(was_held)
    }

    /// Makes all calls to the store fail with `Unavailable` until the returned guard is dropped. Callers that wait go
    /// on waiting, up to their timeouts. Holds are lost when their lease is over before that; the others are renewed at
    /// once afterwards.
    pub fn outage(&self) -> Outage {
        self.store.begin_outage();
        Outage(self.clone())
    }
}

/// An outage of a store, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the outage ends when this is dropped"]
pub struct Outage(Control);

impl Drop for Outage {
    fn drop(&mut self) {
        self.0.store.end_outage();
        renewals::renew_all(self.0.locker.store());
    }
}

#[cfg(test)]
mod tests;
