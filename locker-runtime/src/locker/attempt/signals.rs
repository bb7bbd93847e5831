//! How an attempt waits for a signal.

use super::{Attempt, OnTimeout};
use crate::locker::{
    Ahead,
    wait_op::{Acquired, WaitOp},
    waits::LISTED_AFTER,
};
use futures_util::FutureExt;
use locker_core::{
    background::{self, Sleep},
    clock::Timestamp,
    primitives::Signal,
};
#[cfg(feature = "testing")]
use locker_core::{
    blocking::Driver,
    error::{Error, ErrorKind, Result},
    process::world::Inhabitant,
};
use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

impl<A: WaitOp> Attempt<'_, A> {
    /// Returns how to wait for a reservation.
    pub(super) fn until_due(&self, acquired: Box<Acquired>) -> (Timestamp, OnTimeout) {
        if acquired.since > self.deadline && self.what.waits_past_timeout() {
            (self.deadline, OnTimeout::TooLate(acquired))
        } else {
            (acquired.since, OnTimeout::Take(acquired))
        }
    }

    /// Brings the wait for a reservation forward if a signal says that time has moved on. The store is not asked again:
    /// it has no trace of a reservation that is over. Returns `false` if that is not the signal, or not the wait.
    pub(super) fn moves(&self, signal: Option<&Signal>, until: &mut Timestamp, then: &mut OnTimeout) -> bool {
        let (Some(Signal::Recheck { .. }), OnTimeout::Take(_) | OnTimeout::TooLate(_)) = (signal, &then)
        else {
            return false;
        };
        if let OnTimeout::Take(mut acquired) | OnTimeout::TooLate(mut acquired) =
            std::mem::replace(then, OnTimeout::AskAgain)
        {
            let store = self.locker.store();
            acquired.since = acquired.since - acquired.ahead.moved(store);
            acquired.ahead = Ahead::of(store);
            (*until, *then) = self.until_due(acquired);
        }
        true
    }

    /// Returns an error if the thread is blocked and the time is tokio's, which then stands still.
    #[cfg(feature = "testing")]
    pub(super) fn check_that_time_passes(&self) -> Result<()> {
        let is_blocked = Driver::of_this_thread() != Driver::Executor;
        if is_blocked && Inhabitant::here().is_some() {
            return Err(Error::new(
                ErrorKind::Misused,
                "a call that blocks the thread of `testing::paused` would wait for ever: use the async one",
            )
            .with_key(self.key.as_str()));
        }
        Ok(())
    }

    /// Waits for a signal until `until`. Returns `None` if none has come.
    pub(super) async fn signal(&mut self, until: Timestamp) -> Option<Signal> {
        self.what.call().waits(self.started);
        // Embedded stores reply inline, so the first wait begins with the attempt. Reading the clock is what costs.
        let is_first =
            self.locker.store().waiter_ttl().is_none() && !std::mem::replace(&mut self.waited, true);
        let now = if is_first { self.started } else { Timestamp::now() };
        let (mut sleep, mut until, mut at_its_end) = (self.sleep(now, until), until, None);
        poll_fn(|context| {
            loop {
                self.report_links();
                match self.mailbox.poll_next(context) {
                    // From the test that controls the store.
                    Poll::Ready(signal @ Signal::Recheck { .. }) if self.locker.is_embedded() => {
                        return Poll::Ready(Some(signal));
                    }
                    Poll::Ready(Signal::Recheck { within }) => {
                        let now = Timestamp::now();
                        let earlier = now + within + Duration::from_millis(1);
                        if earlier < until {
                            (until, at_its_end) = (earlier, Some(Signal::Wake));
                            sleep = self.sleep(now, until);
                        }
                    }
                    Poll::Ready(signal) => return Poll::Ready(Some(signal)),
                    Poll::Pending => match sleep.poll_unpin(context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(()) if self.enters_list(context, until) => {
                            sleep = background::sleep_from(Timestamp::now(), until);
                        }
                        Poll::Ready(()) => return Poll::Ready(at_its_end),
                    },
                }
            }
        })
        .await
    }

    /// Tells the application what was found of the holders, in the caller's code.
    fn report_links(&self) {
        // In a forked child it is the wait of the parent.
        if let Some(listed) = self.listed.as_ref().filter(|_| self.locker.is_of_this_process()) {
            self.locker.link(&listed.new_links());
        }
    }

    /// Sleeps until `until`, or until the wait enters the list.
    fn sleep(&self, now: Timestamp, until: Timestamp) -> Sleep {
        background::sleep_from(now, self.lists_at().map_or(until, |at| at.min(until)))
    }

    /// When the wait enters the list of its locker, unless it has.
    fn lists_at(&self) -> Option<Timestamp> {
        let enters = self.listed.is_none() && self.what.may_deadlock() && self.locker.lists_waits();
        enters.then(|| self.started + LISTED_AFTER)
    }

    /// Enters the list if it is time for that before `until`.
    fn enters_list(&mut self, context: &Context<'_>, until: Timestamp) -> bool {
        if self.lists_at().is_none_or(|at| at >= until) {
            return false;
        }
        let wait = self.what.listed(context);
        self.listed = wait.map(|wait| self.locker.list_wait(wait, self.started, self.what.is_long()));
        self.listed.is_some()
    }
}
