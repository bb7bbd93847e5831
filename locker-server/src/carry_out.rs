//! Calls become calls on the library.

use crate::{
    calls::{Answer, Ask, Call, Kind, name::quoted, table::Action},
    server::Server,
};
use locker_runtime::{
    Error, KeyedSemaphore, Result,
    primitives::{inspection::Inspection, rate_limiter::Quota},
};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// Longer times are as good as for ever.
pub(crate) const LONGEST: Duration = Duration::from_hours(10 * 366 * 24);

/// More tokens are as good as any number: they cannot be taken within an interval.
pub(crate) const MOST_TOKENS: u64 = (1 << 53) - 1;

#[expect(clippy::manual_async_fn, reason = "an `async fn` would store its arguments twice in every waiter")]
pub(crate) fn carry_out<'a>(server: &'a Server, call: &'a Call) -> impl Future<Output = Answer> + Send {
    async move {
        let answer = match call {
            Call::Act { action, name, ask } => Act { server, action: *action, name, ask }.carry_out().await,
            Call::Delete(kind, name) => Box::pin(delete(server, *kind, name)).await,
            Call::Show(kind, name) => Box::pin(show(server, *kind, name)).await,
            Call::List => Box::pin(list(server)).await,
        };
        answer.unwrap_or_else(|error| server.failed(&error))
    }
}

/// One action. Its methods take nothing but itself: arguments of an `async fn` are stored twice in every waiter.
#[derive(Clone, Copy)]
struct Act<'a> {
    server: &'a Server,
    action: Action,
    name: &'a str,
    ask: &'a Ask,
}

impl Act<'_> {
    async fn carry_out(&self) -> Result<Answer> {
        if let Some(full) = self.admit().await {
            return Ok(full);
        }
        match self.action {
            Action::AcquireToken => self.acquire_token().await,
            Action::AcquireSlot => self.acquire_slot().await,
            Action::ReleaseSlot => self.permits().release(self.key()).await.map(done_or_not_held),
            Action::RenewSlot => {
                let expires = for_ever_beyond(self.ask.expires);
                self.permits().renew(self.key(), expires).await.map(done_or_not_held)
            }
            Action::WaitEvent => {
                let message = self.server.locker.event(self.name).wait(self.maxwait()).await?;
                Ok(if message.is_empty() { Answer::done() } else { Answer::text(message) })
            }
            Action::SendEvent => {
                let event = self.server.locker.event(self.name).keep(self.server.event_ttl.min(LONGEST));
                event.send(self.ask.message.as_deref().unwrap_or_default()).await.map(|()| Answer::done())
            }
            Action::WaitWatchdog => {
                let expired = self.server.locker.watchdog(self.name).wait(self.maxwait()).await;
                expired.map(|()| Answer::done())
            }
            Action::KickWatchdog => {
                let expires = self.ask.expires.unwrap_or(LONGEST).min(LONGEST);
                self.server.locker.watchdog(self.name).kick(expires).await.map(|()| Answer::done())
            }
        }
    }

    /// `None` when the name may be used.
    async fn admit(&self) -> Option<Answer> {
        let Self { server, action, name, .. } = *self;
        if matches!(action, Action::ReleaseSlot | Action::RenewSlot) {
            return None;
        }
        server.names.admit(&server.door, action.row().kind, name).await
    }

    /// The turn is waited for until `maxwait` even when it lies beyond: another call may enlarge the bucket meanwhile.
    async fn acquire_token(&self) -> Result<Answer> {
        let Ask { size, interval, .. } = self.ask;
        let quota = Quota::token_bucket((*size).min(MOST_TOKENS), (*interval).min(LONGEST));
        let limiter =
            self.server.locker.rate_limiter(self.name, quota).timeout(self.maxwait()).wait_past_timeout(true);
        // Boxed, because every call that waits for something else has room for it, too.
        Box::pin(limiter.acquire()).await.map(|_| Answer::done())
    }

    async fn acquire_slot(&self) -> Result<Answer> {
        let Self { server, name, ask, .. } = self;
        // Drawn only for who has no key, because that asks the operating system, and written out for a moment only:
        // every call that waits has room for it.
        let own = if ask.key.is_some() { uuid::Uuid::nil() } else { uuid::Uuid::new_v4() };
        let held = {
            let key = self.key_or(own);
            server.locker.keyed_semaphore(name).acquire(
                ask.size,
                &key,
                for_ever_beyond(ask.expires),
                self.maxwait(),
            )
        };
        let fence = held.await?.fence;
        Ok(Answer::text(self.key_or(own)).with_fence(fence))
    }

    fn permits(&self) -> KeyedSemaphore {
        self.server.locker.keyed_semaphore(self.name)
    }

    fn key_or(&self, own: uuid::Uuid) -> String {
        self.ask.key.as_deref().map_or_else(|| own.to_string(), str::to_owned)
    }

    fn key(&self) -> &str {
        self.ask.key.as_deref().unwrap_or_default()
    }

    fn maxwait(&self) -> Duration {
        for_ever_beyond(Some(self.ask.maxwait))
    }
}

fn for_ever_beyond(time: Option<Duration>) -> Duration {
    time.filter(|time| *time <= LONGEST).unwrap_or(Duration::MAX)
}

fn done_or_not_held(held: bool) -> Answer {
    if held { Answer::done() } else { Answer::conflict("nothing is held under this key") }
}

async fn delete(server: &Server, kind: Kind, name: &str) -> Result<Answer> {
    let deleted = server.door.delete(&server.door.key(word(kind), name)).await?;
    tracing::info!(kind = kind.segment(), name = %quoted(name), deleted, "delete");
    Ok(if deleted { Answer::done() } else { Answer::no_such_name(name) })
}

async fn show(server: &Server, kind: Kind, name: &str) -> Result<Answer> {
    match server.door.inspect(&server.door.key(word(kind), name)).await? {
        Some(inspection) => json(&State::new(kind, name, &inspection)),
        None => Ok(Answer::no_such_name(name)),
    }
}

/// Names with a slash are not a client's.
async fn list(server: &Server) -> Result<Answer> {
    let names = server.door.names().await?;
    let respelt = Kind::ALL.map(|kind| server.names.respelt(&server.door, kind));
    let known = |(word_of, name): (String, String)| {
        let kind = Kind::ALL.into_iter().find(|kind| word(*kind) == word_of)?;
        let name = respelt[kind as usize].get(&name).cloned().unwrap_or(name);
        (!name.contains('/')).then(|| Name { kind: kind.segment(), name })
    };
    json(&names.into_iter().filter_map(known).collect::<Vec<_>>())
}

/// What the library calls it in keys.
pub(crate) fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::TokenBucket => "rate",
        Kind::Semaphore => "semaphore",
        Kind::Event => "event",
        Kind::Watchdog => "watchdog",
    }
}

/// A name in use.
#[derive(Serialize, ToSchema)]
pub(crate) struct Name {
    kind: &'static str,
    name: String,
}

/// The state of a name; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct State<'a> {
    kind: &'static str,
    name: &'a str,
    /// Tokens per interval, or slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size: Option<u64>,
    /// How many of them are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used: Option<u64>,
    /// Of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    holders: Option<Vec<Holder>>,
    /// How many calls wait.
    waiting: u64,
    /// Of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sent: Option<bool>,
    /// Of a watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expired: Option<bool>,
    /// Until all that is used is free again, a watchdog expires, or a sent event is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    time_left: Option<u64>,
}

/// A hold of a semaphore; times in milliseconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct Holder {
    #[schema(required)]
    age: Option<u64>,
    /// `null`: it lasts until it is released.
    #[schema(required)]
    time_left: Option<u64>,
    fence: u64,
}

impl<'a> State<'a> {
    fn new(kind: Kind, name: &'a str, seen: &Inspection) -> Self {
        let holder = |held: &locker_runtime::primitives::inspection::Held| Holder {
            age: held.age.map(millis),
            time_left: held.time_left.map(millis),
            fence: held.fence,
        };
        Self {
            kind: kind.segment(),
            name,
            size: seen.size,
            used: seen.used,
            holders: (kind == Kind::Semaphore).then(|| seen.holders.iter().map(holder).collect()),
            waiting: seen.waiting,
            sent: seen.fired.filter(|_| kind == Kind::Event),
            expired: seen.fired.filter(|_| kind == Kind::Watchdog),
            time_left: seen.resets_in.map(millis),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn json(value: &impl Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value);
    text.map(Answer::json).map_err(|error| Error::new(locker_runtime::ErrorKind::Conflict, error.to_string()))
}
