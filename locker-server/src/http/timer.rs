//! The timeout for the head of a request, cheap to start for every request.
//!
//! The HTTP library starts a timer for every head and drops it when the head has arrived. All timers of one connection
//! share one sleep, which is moved only when it ends too early: once per timeout instead of twice per request.

use crate::sync::lock;
use hyper::rt;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::time::Sleep;

/// The timers of one connection. The last one started applies.
#[derive(Clone, Debug, Default)]
pub(super) struct Timer(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

#[derive(Debug)]
struct Until {
    timer: Timer,
    deadline: tokio::time::Instant,
}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Until { timer: self.clone(), deadline: deadline.into() })
    }
}

impl rt::Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { timer, deadline } = &*self;
        let mut sleep = lock(&timer.0);
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(*deadline)));
        if sleep.deadline() > *deadline {
            sleep.as_mut().reset(*deadline);
        }
        ready!(sleep.as_mut().poll(context));
        if sleep.deadline() < *deadline {
            sleep.as_mut().reset(*deadline);
            return sleep.as_mut().poll(context);
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::rt::Timer as _;
    use tokio::time;

    #[tokio::test(start_paused = true)]
    async fn each_timer_ends_at_its_own_time() {
        let timer = Timer::default();
        let started = time::Instant::now();
        let at = |seconds| (started + Duration::from_secs(seconds)).into_std();
        for (dropped, awaited) in [(10, 20), (30, 25), (40, 40), (60, 70)] {
            assert!(futures_util::poll!(timer.sleep_until(at(dropped))).is_pending());
            timer.sleep_until(at(awaited)).await;
            assert_eq!(started.elapsed().as_secs(), awaited);
        }
    }
}
