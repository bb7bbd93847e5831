//! Actions on what is not held: token buckets, events, watchdogs, barriers, latches and counters.

use super::action::ActionCall;
use crate::{
    api::{Action, Answer, Params},
    ranges::{MAX_TIME, MAX_TOKENS},
};
use locker_runtime::{Barrier, Counter, Event, Latch, Result, Watchdog, primitives::rate_limiter::Quota};

impl ActionCall<'_> {
    /// Waits until `maxwait`, also for a reservation that lies beyond it: another call may enlarge the bucket before.
    pub(super) async fn acquire_token(&self) -> Result<Answer> {
        let Params { size, interval, .. } = self.params;
        let quota = Quota::token_bucket((*size).min(MAX_TOKENS), (*interval).min(MAX_TIME));
        let limiter =
            self.shared.locker.rate_limiter(self.name, quota).timeout(self.maxwait()).wait_past_timeout(true);
        // Boxed, because all other waiting calls would reserve space for it.
        Box::pin(limiter.acquire()).await.map(|_| Answer::done())
    }

    pub(super) async fn signal(&self) -> Result<Answer> {
        match self.action {
            Action::WaitEvent => {
                let message = self.event().wait(self.maxwait()).await?;
                Ok(if message.is_empty() { Answer::done() } else { Answer::text(message) })
            }
            Action::SendEvent => {
                let event = self.event().keep(self.shared.event_ttl);
                event.send(self.params.message.as_deref().unwrap_or_default()).await.map(|()| Answer::done())
            }
            Action::WaitWatchdog => self.watchdog().wait(self.maxwait()).await.map(|()| Answer::done()),
            Action::KickWatchdog => {
                let expires = self.params.expires.unwrap_or(MAX_TIME).min(MAX_TIME);
                self.watchdog().kick(expires).await.map(|()| Answer::done())
            }
            Action::WaitBarrier => self.barrier().wait(self.maxwait()).await.map(|()| Answer::done()),
            Action::WaitLatch => self.latch().wait(self.maxwait()).await.map(|()| Answer::done()),
            Action::CountDownLatch => self.latch().count_down().await.map(number),
            Action::Count => self.counter().add(self.params.number).await.map(number),
            Action::ResetCounter => self.counter().set(self.params.number).await.map(|()| Answer::done()),
            _ => self.counter().get().await.map(number),
        }
    }

    fn event(&self) -> Event {
        self.shared.locker.event(self.name)
    }

    fn watchdog(&self) -> Watchdog {
        self.shared.locker.watchdog(self.name)
    }

    /// As bouncer's, a barrier opens once.
    fn barrier(&self) -> Barrier {
        self.shared.locker.barrier(self.name, self.params.size.min(MAX_TOKENS)).once(true)
    }

    fn latch(&self) -> Latch {
        self.shared.locker.latch(self.name, self.params.size.min(MAX_TOKENS))
    }

    fn counter(&self) -> Counter {
        self.shared.locker.counter(self.name)
    }
}

fn number(number: impl ToString + Copy) -> Answer {
    Answer::text(number.to_string())
}
