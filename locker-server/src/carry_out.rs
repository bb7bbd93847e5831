//! Calls become calls on the library.

use crate::{
    calls::{Answer, Ask, Call, Kind, name::quoted, table::Action},
    server::Server,
};
use locker_runtime::{
    Error, Result,
    primitives::{inspection::Inspection, rate_limiter::Quota},
};
use serde::Serialize;
use std::{pin::pin, task::Poll, time::Duration};

/// Longer times are as good as for ever.
pub(crate) const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// More tokens are as good as any number: they cannot be taken within an interval.
const MOST_TOKENS: u64 = (1 << 53) - 1;

pub(crate) async fn carry_out(server: &Server, call: &Call) -> Answer {
    let answer = match call {
        Call::Act { action, name, ask } => act(server, *action, name, ask).await,
        Call::Delete(kind, name) => delete(server, *kind, name).await,
        Call::Show(kind, name) => show(server, *kind, name).await,
        Call::List => list(server).await,
    };
    answer.unwrap_or_else(Answer::from)
}

async fn act(server: &Server, action: Action, name: &str, ask: &Ask) -> Result<Answer> {
    let uses = !matches!(action, Action::ReleaseSlot | Action::RenewSlot);
    if uses && let Some(full) = server.names.admit(&server.door, action.row().kind, name).await {
        return Ok(full);
    }
    match action {
        Action::AcquireToken => acquire_token(server, name, ask).await,
        Action::AcquireSlot => acquire_slot(server, name, ask).await,
        Action::ReleaseSlot => {
            let released = server.door.release(name, key(ask)).await?;
            Ok(done_or_not_held(released))
        }
        Action::RenewSlot => {
            let renewed = server.door.renew(name, key(ask), for_ever_beyond(ask.expires)).await?;
            Ok(done_or_not_held(renewed))
        }
        Action::WaitEvent => {
            let message = server.locker.event(name).wait(for_ever_beyond(Some(ask.maxwait))).await?;
            Ok(if message.is_empty() { Answer::done() } else { Answer::text(message) })
        }
        Action::SendEvent => {
            let event = server.locker.event(name).keep(server.event_ttl.min(LONGEST));
            event.send(ask.message.as_deref().unwrap_or_default()).await.map(|()| Answer::done())
        }
        Action::WaitWatchdog => {
            let expired = server.locker.watchdog(name).wait(for_ever_beyond(Some(ask.maxwait))).await;
            expired.map(|()| Answer::done())
        }
        Action::KickWatchdog => {
            let expires = ask.expires.unwrap_or(LONGEST).min(LONGEST);
            server.locker.watchdog(name).kick(expires).await.map(|()| Answer::done())
        }
    }
}

/// The turn is waited for until `maxwait` even when it lies beyond: another call may enlarge the bucket meanwhile.
async fn acquire_token(server: &Server, name: &str, ask: &Ask) -> Result<Answer> {
    let quota = Quota::token_bucket(ask.size.min(MOST_TOKENS), ask.interval.min(LONGEST));
    let patience = if ask.maxwait.is_zero() { Duration::ZERO } else { Duration::MAX };
    let limiter = server.locker.rate_limiter(name, quota).timeout(patience);
    let mut acquire = pin!(limiter.acquire());
    if let Poll::Ready(admission) = futures_util::poll!(acquire.as_mut()) {
        return admission.map(|_| Answer::done());
    }
    // A store across a network needs a moment even where nobody waits.
    if ask.maxwait.is_zero() || ask.maxwait > LONGEST {
        return acquire.await.map(|_| Answer::done());
    }
    tokio::select! {
        biased;
        () = Box::pin(tokio::time::sleep(ask.maxwait)) => Ok(Answer::timed_out(None)),
        admission = acquire => admission.map(|_| Answer::done()),
    }
}

async fn acquire_slot(server: &Server, name: &str, ask: &Ask) -> Result<Answer> {
    let key = ask.key.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let (expires, maxwait) = (for_ever_beyond(ask.expires), for_ever_beyond(Some(ask.maxwait)));
    let held = server.door.acquire(name, ask.size, &key, expires, maxwait).await?;
    Ok(Answer::text(key).with_fence(held.fence))
}

fn key(ask: &Ask) -> &str {
    ask.key.as_deref().unwrap_or_default()
}

fn for_ever_beyond(time: Option<Duration>) -> Duration {
    time.filter(|time| *time <= LONGEST).unwrap_or(Duration::MAX)
}

fn done_or_not_held(held: bool) -> Answer {
    if held { Answer::done() } else { Answer::conflict("nothing is held under this key") }
}

async fn delete(server: &Server, kind: Kind, name: &str) -> Result<Answer> {
    let deleted = server.door.delete(&server.door.key(word(kind), name)).await?;
    tracing::info!(kind = kind.segment(), name = quoted(name), deleted, "delete");
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
    let known = |(word_of, name): (String, String)| {
        let kind = Kind::ALL.into_iter().find(|kind| word(*kind) == word_of)?;
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

#[derive(Serialize)]
struct Name {
    kind: &'static str,
    name: String,
}

/// The state of a name; times in milliseconds.
#[derive(Serialize)]
struct State<'a> {
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
    waiting: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_left: Option<u64>,
}

#[derive(Serialize)]
struct Holder {
    age: Option<u64>,
    /// `null`: it lasts until it is released.
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
