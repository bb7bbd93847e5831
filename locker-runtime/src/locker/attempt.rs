//! One attempt to get something, and the only waiting loop.

use super::{
    Locker, Settled,
    wait_op::{Acquired, WaitOp},
};
use crate::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Cause, Error, ErrorKind, Result},
    key::Key,
    mailboxes::Mailbox,
    primitives::{GRANT_WINDOW, Reply, Signal, TOMBSTONE, Wait},
    settings::Patience,
};
use futures_util::{FutureExt, future::Either};
use std::{future::poll_fn, task::Poll, time::Duration};

impl Locker {
    /// The only waiting loop: send, and while queued wait for a push, the time to ask again, or the end of
    /// patience; on giving up (or being dropped) take the attempt back from the background.
    pub(crate) fn ask<'a, A: WaitOp>(
        &'a self,
        key: &'a Key,
        what: &'a A,
        patience: Patience,
    ) -> impl Future<Output = Result<Acquired>> + 'a {
        let mut attempt = Attempt::start(self, key, what, patience);
        async move {
            background::ready()?;
            loop {
                // Taken apart, because what is whole is kept in every waiter.
                let (granted, until, then) = match attempt.send().await? {
                    Step::Done(answer) => return Ok(answer),
                    Step::Confirm { fence } => (Some(fence), Timestamp::NEVER, Then::AskAgain),
                    Step::Wait { until, then } => (None, until, then),
                    Step::FinalCheck => break,
                };
                let fence = if let Some(fence) = granted {
                    fence
                } else {
                    let signal = attempt.signal(until).await;
                    match attempt.on_signal(signal, then)? {
                        Step::Done(answer) => return Ok(answer),
                        Step::Confirm { fence } => fence,
                        Step::Wait { .. } => continue,
                        Step::FinalCheck => break,
                    }
                };
                if let Some(answer) = attempt.confirm(fence).await? {
                    return Ok(answer);
                }
            }
            // Boxed: every waiter has room for this, few need it.
            Box::pin(attempt.final_check()).await
        }
    }
}

enum Step {
    Done(Acquired),
    Confirm {
        fence: u64,
    },
    Wait {
        until: Timestamp,
        then: Then,
    },
    /// Patience is over: what has become of it?
    FinalCheck,
}

/// What the end of a wait brings that no signal has ended.
enum Then {
    AskAgain,
    GiveUp,
    /// The turn that was told has come. Boxed: every waiter has room for this, few need it.
    Take(Box<Acquired>),
    /// The turn that was told lies beyond the deadline, by so much.
    TooLate(Box<Duration>),
}

/// One attempt on its way. Dropped before it is done, it is taken back.
struct Attempt<'a, A: WaitOp> {
    locker: &'a Locker,
    key: &'a Key,
    what: &'a A,
    max_retry: Option<u32>,
    retry_delay: Duration,
    mailbox: Mailbox<'a>,
    started: Timestamp,
    deadline: Timestamp,
    count: u32,
    backoff: Backoff,
    cause: Cause,
    trace: AtStore,
    doubtful: bool,
    waited: bool,
    /// The store has failed since its last answer.
    failing: bool,
}

/// What of an attempt may be at the store.
#[derive(Clone, Copy, PartialEq)]
enum AtStore {
    Nothing,
    Request,
    /// A place in line: something may be handed over to it at any time, whatever is answered.
    Place,
}

impl<'a, A: WaitOp> Attempt<'a, A> {
    fn start(locker: &'a Locker, key: &'a Key, what: &'a A, patience: Patience) -> Self {
        let (mailbox, started) = (locker.store().mailboxes().subscribe(what.id()), Timestamp::now());
        let (deadline, backoff) = (started + patience.timeout, Backoff::default());
        Self {
            locker,
            key,
            what,
            max_retry: patience.max_retry,
            retry_delay: patience.retry_delay,
            mailbox,
            started,
            deadline,
            count: 1,
            backoff,
            cause: Cause::default(),
            trace: AtStore::Nothing,
            doubtful: false,
            waited: false,
            failing: false,
        }
    }

    /// One attempt: a send, and what follows from the answer.
    async fn send(&mut self) -> Result<Step> {
        let wait = (!self.is_last()).then(|| Wait { live: self.live(), fair: self.what.fair() });
        let first = self.trace == AtStore::Nothing;
        let sent = if first { self.started } else { Timestamp::now() };
        if first {
            self.trace = AtStore::Request;
        }
        let bound = match first {
            _ if self.tries_once() || self.what.needs_final_check() => Timestamp::NEVER,
            // A patience shorter than the way to the store and back would never see an answer.
            true => self.deadline.max(sent + self.locker.store().expected_rtt()),
            false => self.deadline,
        };
        let call = match self.locker.call_until(self.key, self.what.ask(wait), sent, bound) {
            Either::Left(answer) => return self.on_reply(answer.into_inner(), sent, first),
            Either::Right(call) => call,
        };
        // Until the answer is here, a dropped future must assume that the request may still arrive.
        let doubtful = std::mem::replace(&mut self.doubtful, true);
        let answer = call.await;
        self.doubtful = doubtful;
        self.on_reply(answer, sent, first)
    }

    fn on_reply(&mut self, answer: Result<Reply>, sent: Timestamp, first: bool) -> Result<Step> {
        let was_failing = std::mem::replace(&mut self.failing, answer.is_err());
        match answer {
            Ok(Reply::Queued { recheck_after, .. }) => {
                self.trace = AtStore::Place;
                Ok(self.wait_for(recheck_after))
            }
            Ok(Reply::Busy { retry_after }) => {
                self.refused();
                Err(self.exhausted(retry_after))
            }
            Ok(Reply::Granted { fence })
                if (!first || self.is_late(sent)) && self.what.confirm().is_some() =>
            {
                Ok(Step::Confirm { fence })
            }
            Ok(reply @ Reply::Admitted { wait, .. }) if !wait.is_zero() => {
                self.trace = AtStore::Place;
                let since = Timestamp::now() + wait;
                if since > self.deadline && self.what.waits_past_timeout() {
                    let then = Then::TooLate(Box::new(since.since(self.deadline)));
                    return Ok(Step::Wait { until: self.deadline, then });
                }
                let answer = Acquired { reply, sent, since, doubtful: self.doubtful, waited: Some(wait) };
                Ok(Step::Wait { until: since, then: Then::Take(Box::new(answer)) })
            }
            Ok(reply) => Ok(Step::Done(self.done(reply, sent))),
            // Patience has ended before this one answer: that is no failure of a store that gave those before.
            Err(error) if !was_failing && self.trace == AtStore::Place && self.is_too_late_for(&error) => {
                self.doubtful = true;
                Err(self.timeout_error())
            }
            Err(error) => self.failed(error.with_key(self.key.as_str())),
        }
    }

    fn is_too_late_for(&self, error: &Error) -> bool {
        !error.is_certain() && !self.what.needs_final_check() && Timestamp::now() >= self.deadline
    }

    /// How long a place in line is kept without being heard of: longer than until the next time.
    fn live(&self) -> Option<Duration> {
        let least = self.locker.store().waiter_ttl();
        let next = self.max_retry.map_or(Duration::ZERO, |_| self.retry_delay.saturating_mul(3));
        least.map(|least| least.max(next))
    }

    /// Whether much of a lease has gone since it was asked for.
    fn is_late(&self, sent: Timestamp) -> bool {
        self.locker.store().waiter_ttl().is_some() && Timestamp::now() > sent + self.what.lease() / 2
    }

    /// What the end of a wait means.
    fn on_signal(&mut self, signal: Option<Signal>, then: Then) -> Result<Step> {
        match (signal, then) {
            (Some(Signal::HandedOff { fence, until }), _) => {
                Ok(self.held(fence, until).map_or(Step::Confirm { fence }, Step::Done))
            }
            (Some(Signal::Granted { fence }), _) => Ok(Step::Confirm { fence }),
            (Some(Signal::Wake | Signal::Recheck { .. }), then) => {
                Ok(Step::Wait { until: Timestamp::now(), then })
            }
            (Some(Signal::Deleted), _) => Err(self.deleted()),
            (None, Then::AskAgain) => {
                self.count += 1;
                Ok(Step::Wait { until: Timestamp::now(), then: Then::AskAgain })
            }
            (None, Then::Take(answer)) => Ok(Step::Done(self.done(answer.reply, answer.sent))),
            (None, Then::GiveUp) if self.what.needs_final_check() => Ok(Step::FinalCheck),
            (None, Then::GiveUp) => Err(self.timeout_error()),
            (None, Then::TooLate(by)) => Err(self.timed_out().with_retry_after(*by)),
        }
    }

    /// A lease that was told with its end, unless much of it is gone already. Across a network it ends with that of the
    /// one before: only a renewal makes it whole.
    fn held(&mut self, fence: u64, until: Timestamp) -> Option<Acquired> {
        let lease = self.what.lease();
        let now = Timestamp::now();
        let is_whole = self.what.renews() || self.locker.store().waiter_ttl().is_none();
        if is_whole && now + lease / 2 < until {
            let waited = Some(now.since(self.started));
            return Some(Acquired {
                since: now,
                waited,
                ..self.done(Reply::Granted { fence }, until - lease)
            });
        }
        self.mailbox.reopen();
        None
    }

    /// Being handed something by a message, or by an earlier copy of the request, starts the lease at an unknown
    /// time: renewing starts it at a known one. `None`: it was lost on the way, and may be asked for again.
    async fn confirm(&mut self, fence: u64) -> Result<Option<Acquired>> {
        let (sent, Some(confirm)) = (Timestamp::now(), self.what.confirm()) else { return Ok(None) };
        let left = if self.tries_once() { GRANT_WINDOW } else { self.deadline.since(sent) };
        let call = match self.locker.retry_until_certain(self.key, confirm, left.min(GRANT_WINDOW)) {
            Either::Left(told) => return self.confirmed(told.into_inner(), sent, fence),
            Either::Right(call) => call,
        };
        let told = call.await;
        self.confirmed(told, sent, fence)
    }

    fn confirmed(&mut self, told: Result<Settled>, sent: Timestamp, fence: u64) -> Result<Option<Acquired>> {
        match told {
            Ok(Settled { reply: Reply::Renewed { fence: granted }, sent: again, .. }) if granted == fence => {
                let sent = again.unwrap_or(sent);
                // A lease that is over when its holder hears of it is none.
                let over = again.is_some() && Timestamp::now() >= sent + self.what.lease();
                Ok((!over).then(|| self.done(Reply::Granted { fence }, sent)))
            }
            Err(error) if !error.is_temporary() || self.is_last() => Err(error),
            _ if self.is_last() => Err(self.exhausted(Duration::ZERO)),
            _ => Ok(None),
        }
    }

    async fn signal(&mut self, until: Timestamp) -> Option<Signal> {
        // Where calls are answered at once, the first wait begins with the attempt, and reading clocks is what costs.
        let at_once =
            self.locker.store().waiter_ttl().is_none() && !std::mem::replace(&mut self.waited, true);
        let now = if at_once { self.started } else { Timestamp::now() };
        let (mut sleep, mut until, mut at_its_end) = (background::sleep_from(now, until), until, None);
        poll_fn(|context| {
            loop {
                match self.mailbox.poll_next(context) {
                    Poll::Ready(Signal::Recheck { within }) => {
                        let now = Timestamp::now();
                        let earlier = now + within + Duration::from_millis(1);
                        if earlier < until {
                            (until, at_its_end) = (earlier, Some(Signal::Wake));
                            sleep = background::sleep_from(now, until);
                        }
                    }
                    Poll::Ready(signal) => return Poll::Ready(Some(signal)),
                    Poll::Pending => return sleep.poll_unpin(context).map(|()| at_its_end),
                }
            }
        })
        .await
    }

    /// Asks without waiting any more, which ends the place in line, whether what was hoped for has come after all.
    /// In vain is then certain; where no answer comes nothing is.
    async fn final_check(&mut self) -> Result<Acquired> {
        let (sent, doubtful) = (Timestamp::now(), std::mem::replace(&mut self.doubtful, true));
        let told = self
            .locker
            .retry_until_certain(self.key, self.what.ask(None), self.locker.command_timeout())
            .await;
        let told = told.map_err(|error| error.with_key(self.key.as_str()).unknown())?;
        self.doubtful = doubtful || told.retried;
        match told.reply {
            Reply::Busy { .. } => Err(self.timeout_error()),
            reply => Ok(self.done(reply, sent)),
        }
    }

    fn done(&mut self, reply: Reply, sent: Timestamp) -> Acquired {
        self.trace = AtStore::Nothing;
        let waited = (sent > self.started).then(|| sent.since(self.started));
        Acquired { reply, sent, since: sent, doubtful: self.doubtful, waited }
    }

    /// The request has not been carried out.
    fn refused(&mut self) {
        if self.trace == AtStore::Request && !self.doubtful {
            self.trace = AtStore::Nothing;
        }
    }

    fn tries_once(&self) -> bool {
        self.deadline == self.started
    }

    fn is_last(&self) -> bool {
        self.tries_once() || self.max_retry.is_some_and(|most| self.count >= most)
    }

    fn wait_for(&self, recheck_after: Option<Duration>) -> Step {
        let delay = match self.max_retry {
            Some(_) => Some(self.retry_delay),
            None => recheck_after.map(|delay| delay.min(self.what.longest_recheck())),
        };
        let recheck = delay.map_or(Timestamp::NEVER, |delay| Timestamp::now() + delay);
        let then = if recheck < self.deadline { Then::AskAgain } else { Then::GiveUp };
        Step::Wait { until: recheck.min(self.deadline), then }
    }

    /// An error that passes is waited out within the caller's patience.
    fn failed(&mut self, error: Error) -> Result<Step> {
        let error = self.cause.explain(error);
        self.doubtful |= !error.is_certain();
        self.refused();
        let delay = match self.max_retry {
            Some(_) => self.retry_delay,
            None => self.backoff.next_delay().min(self.retry_delay),
        };
        let again = Timestamp::now() + delay;
        if !error.is_temporary() || self.is_last() || again >= self.deadline {
            let may_have_come = self.what.needs_final_check() && self.trace == AtStore::Place;
            return Err(if self.doubtful || may_have_come { error.unknown() } else { error });
        }
        Ok(Step::Wait { until: again, then: Then::AskAgain })
    }

    fn exhausted(&self, retry_after: Duration) -> Error {
        let error = if self.tries_once() {
            Error::new(ErrorKind::TimedOut, format!("not {} yet, and the timeout is 0", self.what.verb()))
        } else {
            Error::new(
                ErrorKind::RetriesExhausted,
                format!("not {} at {} attempts", self.what.verb(), self.count),
            )
        };
        let error = error.with_key(self.key.as_str());
        if retry_after.is_zero() { error } else { error.with_retry_after(retry_after) }
    }

    /// Whoever waited for a turn that nobody could give, in the end, is told that.
    fn timeout_error(&self) -> Error {
        match self.locker.store().outage() {
            Some(outage) => self.waited_for(outage.kind(), &format!(": {}", outage.message())),
            None => self.timed_out(),
        }
    }

    fn timed_out(&self) -> Error {
        self.waited_for(ErrorKind::TimedOut, "")
    }

    fn waited_for(&self, kind: ErrorKind, why: &str) -> Error {
        let waited = humantime::format_duration(self.deadline.since(self.started));
        Error::new(kind, format!("not {} within {waited}{why}", self.what.verb())).with_key(self.key.as_str())
    }

    /// It may have asked again meanwhile, and so be in line anew: that is taken back.
    fn deleted(&self) -> Error {
        Error::new(ErrorKind::Conflict, "the name was deleted meanwhile").with_key(self.key.as_str())
    }
}

impl<A: WaitOp> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        // Before it is taken back: nobody may hand anything over to it any more.
        self.mailbox.close();
        if self.trace != AtStore::Nothing {
            let cancel = self.what.cancel(self.doubtful);
            self.locker.call_in_background(
                self.key,
                cancel,
                self.what.lease().saturating_add(TOMBSTONE),
                |_| (),
            );
        }
    }
}

#[cfg(test)]
mod tests;
