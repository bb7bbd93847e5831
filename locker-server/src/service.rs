//! The service below all transports: answers calls with calls of the library.

use crate::{
    api::{
        Action, Answer, Call, Params, Resource,
        name::quoted,
        state::{NameInUse, State},
    },
    log_throttle::{LogEvent, LogThrottle},
    name_registry::NameRegistry,
    ranges::{MAX_TIME, MAX_TOKENS},
};
use locker_runtime::{
    Admin, Error, ErrorKind, KeyedSemaphore, Locker, Result, primitives::rate_limiter::Quota,
};
use serde::Serialize;
use std::{future::Future, time::Duration};

/// How long [`Service::ready`] waits for the store.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The primitives of one store, by name.
#[derive(Debug)]
pub(crate) struct Service {
    locker: Locker,
    admin: Admin,
    names: NameRegistry,
    /// How long a sent event is remembered.
    event_ttl: Duration,
    log_throttle: LogThrottle,
}

impl Service {
    pub(crate) fn new(locker: Locker, max_names: usize, event_ttl: Duration) -> Self {
        let names = NameRegistry::new(locker.admin(), max_names);
        Self {
            admin: locker.admin(),
            locker,
            names,
            event_ttl: event_ttl.min(MAX_TIME),
            log_throttle: LogThrottle::default(),
        }
    }

    pub(crate) fn locker(&self) -> &Locker {
        &self.locker
    }

    /// Returns `true` if the store is in this process. Its replies are ready when they are first polled.
    pub(crate) fn is_embedded(&self) -> bool {
        self.admin.is_embedded()
    }

    /// Answers a call, and waits for as long as its `maxwait` says.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call leaves its queue and takes nothing.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` would store its arguments twice in every waiter"
    )]
    pub(crate) fn answer<'a>(&'a self, call: &'a Call) -> impl Future<Output = Answer> + Send {
        async move {
            let answer = match call {
                Call::Action { action, name, params } => {
                    ActionCall { service: self, action: *action, name, params }.answer().await
                }
                Call::Delete(resource, name) => Box::pin(self.delete(*resource, name)).await,
                Call::Show(resource, name) => Box::pin(self.show(*resource, name)).await,
                Call::List => Box::pin(self.list()).await,
            };
            answer.unwrap_or_else(|error| self.failed(&error))
        }
    }

    /// Returns 200 if the store answers, 503 otherwise.
    pub(crate) async fn ready(&self) -> Answer {
        match tokio::time::timeout(READY_TIMEOUT, self.admin.ping()).await {
            Ok(Ok(())) => Answer::text("ready"),
            Ok(Err(error)) => self.failed(&error),
            Err(_) => Answer::store_unavailable(),
        }
    }

    /// Returns the answer to a failed call, and logs the error if the store caused it.
    fn failed(&self, error: &Error) -> Answer {
        let answer = Answer::from(error);
        if answer.status == 503 {
            self.log_store_error(error);
        }
        answer
    }

    /// Logs that the store is unavailable.
    pub(crate) fn log_store_error(&self, error: &Error) {
        if self.log_throttle.is_due(LogEvent::StoreUnavailable) {
            tracing::warn!(%error, "the store is unavailable: calls get 503, time-slot requests get `sorry`");
        }
    }

    async fn delete(&self, resource: Resource, name: &str) -> Result<Answer> {
        let deleted = self.admin.delete(&self.admin.key(resource.key_kind(), name)).await?;
        tracing::info!(kind = resource.segment(), name = %quoted(name), deleted, "delete");
        Ok(if deleted { Answer::done() } else { Answer::no_such_name(name) })
    }

    async fn show(&self, resource: Resource, name: &str) -> Result<Answer> {
        match self.admin.inspect(&self.admin.key(resource.key_kind(), name)).await? {
            Some(inspection) => json(&State::new(resource, name, &inspection)),
            None => Ok(Answer::no_such_name(name)),
        }
    }

    /// Lists the names of clients. Names with a slash are the server's own.
    async fn list(&self) -> Result<Answer> {
        let names = self.admin.names().await?;
        let spelled = Resource::ALL.map(|resource| self.names.spellings(resource));
        let known = |(key_kind, name): (String, String)| {
            let resource = Resource::ALL.into_iter().find(|resource| resource.key_kind() == key_kind)?;
            let name = spelled[resource as usize].get(&name).cloned().unwrap_or(name);
            (!name.contains('/')).then(|| NameInUse { kind: resource.segment(), name })
        };
        json(&names.into_iter().filter_map(known).collect::<Vec<_>>())
    }
}

/// One call of an action. Its methods take only `self`, because every waiter stores arguments of an `async fn` twice.
#[derive(Clone, Copy)]
struct ActionCall<'a> {
    service: &'a Service,
    action: Action,
    name: &'a str,
    params: &'a Params,
}

impl ActionCall<'_> {
    async fn answer(&self) -> Result<Answer> {
        if let Some(refusal) = self.admit_name().await {
            return Ok(refusal);
        }
        match self.action {
            Action::AcquireToken => self.acquire_token().await,
            Action::AcquireSlot => self.acquire_slot().await,
            Action::ReleaseSlot => self.semaphore().release(self.key()).await.map(done_or_not_held),
            Action::RenewSlot => {
                let expires = max_if_beyond_range(self.params.expires);
                self.semaphore().renew(self.key(), expires).await.map(done_or_not_held)
            }
            Action::WaitEvent => {
                let message = self.service.locker.event(self.name).wait(self.maxwait()).await?;
                Ok(if message.is_empty() { Answer::done() } else { Answer::text(message) })
            }
            Action::SendEvent => {
                let event = self.service.locker.event(self.name).keep(self.service.event_ttl);
                event.send(self.params.message.as_deref().unwrap_or_default()).await.map(|()| Answer::done())
            }
            Action::WaitWatchdog => {
                let expired = self.service.locker.watchdog(self.name).wait(self.maxwait()).await;
                expired.map(|()| Answer::done())
            }
            Action::KickWatchdog => {
                let expires = self.params.expires.unwrap_or(MAX_TIME).min(MAX_TIME);
                self.service.locker.watchdog(self.name).kick(expires).await.map(|()| Answer::done())
            }
        }
    }

    /// Returns `None` if the name may be used, and the refusal otherwise.
    async fn admit_name(&self) -> Option<Answer> {
        if matches!(self.action, Action::ReleaseSlot | Action::RenewSlot) {
            return None;
        }
        self.service.names.admit(self.action.row().resource, self.name).await
    }

    /// Waits until `maxwait`, also for a reservation that lies beyond it: another call may enlarge the bucket before.
    async fn acquire_token(&self) -> Result<Answer> {
        let Params { size, interval, .. } = self.params;
        let quota = Quota::token_bucket((*size).min(MAX_TOKENS), (*interval).min(MAX_TIME));
        let limiter = self
            .service
            .locker
            .rate_limiter(self.name, quota)
            .timeout(self.maxwait())
            .wait_past_timeout(true);
        // Boxed, because all other waiting calls would reserve space for it.
        Box::pin(limiter.acquire()).await.map(|_| Answer::done())
    }

    async fn acquire_slot(&self) -> Result<Answer> {
        let Self { params, .. } = self;
        // Drawn only for clients without a key, because that is a system call. Written out only briefly, because
        // every waiting call reserves space for it.
        let own = if params.key.is_some() { uuid::Uuid::nil() } else { uuid::Uuid::new_v4() };
        let held = {
            let key = self.key_or(own);
            let expires = max_if_beyond_range(params.expires);
            self.semaphore().acquire(params.size, &key, expires, self.maxwait())
        };
        let fence = held.await?.fence;
        Ok(Answer::text(self.key_or(own)).with_fence(fence))
    }

    fn semaphore(&self) -> KeyedSemaphore {
        self.service.locker.keyed_semaphore(self.name)
    }

    fn key_or(&self, own: uuid::Uuid) -> String {
        self.params.key.as_deref().map_or_else(|| own.to_string(), str::to_owned)
    }

    fn key(&self) -> &str {
        self.params.key.as_deref().unwrap_or_default()
    }

    fn maxwait(&self) -> Duration {
        max_if_beyond_range(Some(self.params.maxwait))
    }
}

fn max_if_beyond_range(time: Option<Duration>) -> Duration {
    time.filter(|time| *time <= MAX_TIME).unwrap_or(Duration::MAX)
}

fn done_or_not_held(held: bool) -> Answer {
    if held { Answer::done() } else { Answer::not_held() }
}

fn json(value: &impl Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value);
    text.map(Answer::json).map_err(|error| Error::new(ErrorKind::Conflict, error.to_string()))
}
