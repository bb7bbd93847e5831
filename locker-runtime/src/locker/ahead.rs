//! How far a test has moved the clock of a store on. Without the feature it is nothing, and takes no space.

use locker_core::store::Store;
use std::time::Duration;

/// How far the clock of a store was ahead of its callers' clock. The default is not at all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    #[cfg(feature = "_control")]
    by: Duration,
}

#[cfg_attr(
    not(feature = "_control"),
    expect(unused_variables, clippy::unused_self, reason = "no clock moves on")
)]
impl Ahead {
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self {
            #[cfg(feature = "_control")]
            by: store.ahead(),
        }
    }

    /// Returns how far the clock of the store has moved on since then, beside the time that passed for all.
    pub(crate) fn moved(self, store: &dyn Store) -> Duration {
        #[cfg(feature = "_control")]
        return store.ahead().saturating_sub(self.by);
        #[cfg(not(feature = "_control"))]
        Duration::ZERO
    }
}
