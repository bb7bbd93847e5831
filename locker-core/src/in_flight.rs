//! A count of background calls, with a way to wait until none is left.

use crate::panics;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify;

/// The number of calls in flight. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    calls: AtomicUsize,
    none: Notify,
}

/// One call in flight; it ends when this is dropped.
#[derive(Debug)]
pub struct InFlightCall(Arc<Count>);

impl InFlight {
    /// Counts a call until the returned value is dropped.
    #[must_use]
    pub fn begin(&self) -> InFlightCall {
        self.0.calls.fetch_add(1, Ordering::AcqRel);
        InFlightCall(Arc::clone(&self.0))
    }

    /// Waits until no call is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn done(&self) {
        loop {
            let mut none = pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.0.calls.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            panics::contain(|| self.0.none.notify_waiters());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn done_waits_for_the_last_call() {
        let in_flight = InFlight::default();
        assert!(in_flight.done().now_or_never().is_some());
        let (first, second) = (in_flight.begin(), in_flight.begin());
        let mut done = Box::pin(in_flight.done());
        drop(first);
        assert!(done.as_mut().now_or_never().is_none());
        drop(second);
        assert!(done.now_or_never().is_some());
    }
}
