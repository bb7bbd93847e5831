//! One call of an action.

use crate::{
    activity::Activity,
    api::{Action, Answer, Params, Resource},
    caps::HoldCap,
    counts::{Counting, Counts},
    name_registry::NameRegistry,
    ranges::MAX_TIME,
};
use locker_runtime::{Admin, Key, Locker, Result};
use std::{sync::Arc, time::Duration};

/// What the calls of a service share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) locker: Locker,
    pub(super) admin: Admin,
    pub(super) names: Arc<NameRegistry>,
    pub(super) holds: HoldCap,
    pub(super) counts: Counts,
    pub(super) activity: Arc<Activity>,
    /// How long a sent event is remembered.
    pub(super) event_ttl: Duration,
}

impl Shared {
    pub(super) fn key(&self, resource: Resource, name: &str) -> Key {
        match resource {
            Resource::LockByKey => Key::new(name),
            _ => self.admin.key(resource.key_kind(), name),
        }
    }
}

/// One call of an action. Its methods take only `self`, because every waiter stores arguments of an `async fn` twice.
#[derive(Clone, Copy)]
pub(super) struct ActionCall<'a> {
    pub(super) shared: &'a Shared,
    pub(super) action: Action,
    pub(super) name: &'a str,
    pub(super) params: &'a Params,
}

impl ActionCall<'_> {
    pub(super) async fn answer(&self) -> Result<Answer> {
        if let Some(refusal) = self.admit_name().await {
            self.note_refusal();
            return Ok(refusal);
        }
        let counting = self.shared.counts.begin(self.action, self.name, &self.shared.names);
        let answer = self.run().await;
        self.note(&answer, counting.as_ref().map(Counting::elapsed));
        if let Some(counting) = counting {
            counting.end(self.action, self.params, &answer);
        }
        answer
    }

    async fn run(&self) -> Result<Answer> {
        match self.resource() {
            Resource::TokenBucket => self.acquire_token().await,
            Resource::Once => self.change_run().await,
            resource if resource.is_held() => self.change_hold().await,
            _ => self.signal().await,
        }
    }

    /// Returns `None` if the name may be used, and the refusal otherwise.
    async fn admit_name(&self) -> Option<Answer> {
        if !self.action.uses_name() {
            return None;
        }
        self.shared.names.admit(self.resource(), self.name, self.maxwait()).await
    }

    pub(super) fn resource(&self) -> Resource {
        self.action.row().resource
    }

    pub(super) fn maxwait(&self) -> Duration {
        max_if_beyond_range(Some(self.params.maxwait))
    }
}

pub(super) fn max_if_beyond_range(time: Option<Duration>) -> Duration {
    time.filter(|time| *time <= MAX_TIME).unwrap_or(Duration::MAX)
}
