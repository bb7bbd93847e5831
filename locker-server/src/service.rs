//! The service below all transports: answers calls with calls of the library.

mod action;
mod holds;
mod noted;
mod runs;
mod signals;

use crate::{
    activity::{Activity, What},
    api::{
        Answer, Call, Listing, Resource,
        explained::Explained,
        name::{TIME_SLOTS, quoted},
        state::{KeyInUse, State},
    },
    caps::HoldCap,
    cli::Serve,
    counts::Counts,
    log_throttle::{LogEvent, LogThrottle},
    name_registry::NameRegistry,
    ranges::MAX_TIME,
};
use action::{ActionCall, Shared};
use locker_runtime::{Error, ErrorKind, Key, Listed, Locker, Named, Result};
use serde::Serialize;
use std::{future::Future, sync::Arc, time::Duration};

/// How long [`Service::ready`] waits for the store.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The primitives of one store, by name.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Shared,
    log_throttle: LogThrottle,
}

impl Service {
    pub(crate) fn new(locker: Locker, options: &Serve) -> Self {
        let shared = Shared {
            admin: locker.admin(),
            names: NameRegistry::new(locker.admin(), options.max_names),
            locker,
            holds: HoldCap::new(options.max_holds),
            counts: Counts::new(),
            activity: Arc::default(),
            event_ttl: options.event_ttl.min(MAX_TIME),
        };
        Self { shared, log_throttle: LogThrottle::default() }
    }

    pub(crate) fn locker(&self) -> &Locker {
        &self.shared.locker
    }

    /// Returns what the calls did.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.shared.activity
    }

    /// Notes that a call was refused before it was carried out.
    pub(crate) fn note_refusal(&self, call: &Call) {
        if let Call::Action { action, name, params } = call {
            ActionCall { shared: &self.shared, action: *action, name, params }.note_refusal();
        }
    }

    pub(crate) fn names(&self) -> &Arc<NameRegistry> {
        &self.shared.names
    }

    /// Returns `true` if the store is in this process. Its replies are ready when they are first polled.
    pub(crate) fn is_embedded(&self) -> bool {
        self.shared.admin.is_embedded()
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
            if let Some(refusal) = self.refusal_of_key(call) {
                return refusal;
            }
            let answer = match call {
                Call::Action { action, name, params } => {
                    ActionCall { shared: &self.shared, action: *action, name, params }.answer().await
                }
                Call::Delete(resource, name) => Box::pin(self.delete(*resource, name)).await,
                Call::Evict(resource, name, fence) => Box::pin(self.evict(*resource, name, *fence)).await,
                Call::Show(resource, name) => Box::pin(self.show(*resource, name)).await,
                Call::Stats(resource, name) => Box::pin(self.stats(*resource, name)).await,
                Call::List(listing) => Box::pin(self.list(listing)).await,
                Call::Explain(question) => Box::pin(self.explain(&question.key)).await,
            };
            answer.unwrap_or_else(|error| self.failed(&error))
        }
    }

    /// Returns 400 if the key is that of a name, which may be of another kind than a lock.
    fn refusal_of_key(&self, call: &Call) -> Option<Answer> {
        let key = call.key()?;
        let named = self.shared.admin.named(&Key::new(key))?;
        matches!(named, Named::Kind { .. })
            .then(|| Answer::bad_request(format!("this key belongs to a name: {}", quoted(key))))
    }

    /// Returns 200 with this text if the store answers, 503 otherwise.
    pub(crate) async fn ready(&self, text: &'static str) -> Answer {
        match tokio::time::timeout(READY_TIMEOUT, self.shared.admin.ping()).await {
            Ok(Ok(())) => Answer::text(text),
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

    /// Deletes a name. As in bouncer, an idle one that was used here counts as deleted, too.
    async fn delete(&self, resource: Resource, name: &str) -> Result<Answer> {
        let in_use = self.shared.admin.delete(&self.shared.key(resource, name)).await?;
        let deleted = self.shared.counts.forget(resource, name) || in_use;
        tracing::info!(kind = resource.segment(), name = %quoted(name), deleted, "delete");
        if deleted {
            self.shared.activity.note((resource, name), What::Evicted, 0, None);
        }
        Ok(if deleted { Answer::done() } else { Answer::no_such_name(name) })
    }

    /// Ends the holds with this fence or a lower one: those that somebody has seen. Waiters go on.
    async fn evict(&self, resource: Resource, name: &str, fence: u64) -> Result<Answer> {
        let evicted = self.shared.admin.evict_up_to(&self.shared.key(resource, name), fence).await?;
        tracing::info!(kind = resource.segment(), name = %quoted(name), fence, evicted, "evict");
        if evicted {
            self.shared.activity.note((resource, name), What::Evicted, fence, None);
            return Ok(Answer::done());
        }
        Ok(Answer::conflict("nothing is held with this fence or a lower one"))
    }

    async fn show(&self, resource: Resource, name: &str) -> Result<Answer> {
        match self.shared.admin.inspect(&self.shared.key(resource, name)).await? {
            Some(inspection) => json(&State::new(resource, name, &inspection)),
            None => Ok(Answer::no_such_name(name)),
        }
    }

    async fn stats(&self, resource: Resource, name: &str) -> Result<Answer> {
        let state = self.shared.admin.inspect(&self.shared.key(resource, name)).await?;
        match self.shared.counts.body(resource, name, state.as_ref()) {
            Some(counts) => json(&counts),
            None => Ok(Answer::no_such_name(name)),
        }
    }

    /// Says who holds a key. One that is not below the prefix of the server is unknown.
    async fn explain(&self, key: &str) -> Result<Answer> {
        let (key, admin) = (Key::new(key), &self.shared.admin);
        if admin.named(&key).is_none() {
            return Ok(Answer::no_such_name(key.as_str()));
        }
        json(&Explained::from(&admin.explain(&key).await?))
    }

    /// Lists keys in use. The name of the server's own is left out; a page is empty only if no page follows.
    async fn list(&self, listing: &Listing) -> Result<Answer> {
        let Shared { admin, names, .. } = &self.shared;
        let limit = listing.limit.unwrap_or(names.limit()).max(1);
        let (filter, mut after) = (listing.filter(), listing.after.as_deref().map(str::to_owned));
        loop {
            let page = admin.page(&filter, after.as_deref(), limit).await?;
            let keys = self.known(page.keys);
            if keys.is_empty() && page.next.is_some() {
                after = page.next;
                continue;
            }
            let next = page.next.as_deref().map(|after| listing.next(after));
            return json(&keys).map(|page| page.with_next(next));
        }
    }

    fn known(&self, keys: Vec<Listed>) -> Vec<KeyInUse> {
        let spelled = Resource::ALL.map(|resource| self.shared.names.spellings(resource));
        let known = |listed: Listed| {
            let kind = listed.named.kind();
            let resource = Resource::ALL.into_iter().find(|resource| resource.key_kind() == kind);
            let name = match listed.named {
                Named::Kind { name, .. } if name == TIME_SLOTS => return None,
                Named::Kind { name, .. } => {
                    Some(resource.and_then(|one| spelled[one as usize].get(&name).cloned()).unwrap_or(name))
                }
                _ => None,
            };
            let (kind, key) = (resource.map_or(kind, Resource::segment), listed.key.to_string());
            Some(KeyInUse { kind, name, function: listed.function.map(Into::into), key })
        };
        keys.into_iter().filter_map(known).collect()
    }
}

fn json(value: &impl Serialize) -> Result<Answer> {
    let text = serde_json::to_string(value);
    text.map(Answer::json).map_err(|error| Error::new(ErrorKind::Conflict, error.to_string()))
}
