//! What is on its way without anybody waiting for it.

use crate::panics;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify;

/// How many calls are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    out: AtomicUsize,
    none: Notify,
}

/// One errand, over when dropped.
#[derive(Debug)]
pub(crate) struct InFlightCall(Arc<Count>);

impl InFlight {
    pub(crate) fn begin(&self) -> InFlightCall {
        self.0.out.fetch_add(1, Ordering::AcqRel);
        InFlightCall(Arc::clone(&self.0))
    }

    /// Waits until none is out.
    pub(crate) async fn done(&self) {
        loop {
            let mut none = pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.0.out.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        if self.0.out.fetch_sub(1, Ordering::AcqRel) == 1 {
            panics::contain(|| self.0.none.notify_waiters());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn are_done_when_the_last_one_is() {
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
