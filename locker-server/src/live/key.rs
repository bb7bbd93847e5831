//! The stream of `view=key`.

use super::{
    Live, Looking, Sources, StreamPermit,
    batch::{Event, Failed},
};
use crate::{
    activity::{Happened, NameId},
    api::{
        Method, Resource,
        explained::{self, Explained},
        parse,
    },
};
use locker_runtime::{Explanation, Key, Named};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// The pause between two looks at the key.
const EVERY: Duration = Duration::from_secs(2);

/// How many holders of each key are shown, as many as waiters.
const MOST_HOLDERS: usize = 100;

/// What one stream shows of a key.
#[derive(Debug)]
pub(crate) struct KeyView {
    live: Arc<Live>,
    key: Key,
    /// Whether the client may change anything.
    may_release: bool,
    id: NameId,
    /// The path of the key. A name that the library has used may have none.
    path: Option<String>,
    next: Option<tokio::time::Instant>,
    /// The events that were sent.
    sent: Option<[Vec<Happened>; 2]>,
    #[expect(dead_code, reason = "counts until it is dropped")]
    held: (StreamPermit, Looking),
}

#[derive(Serialize)]
struct Seen<'a> {
    explained: Explained,
    text: &'a str,
    deadlock: bool,
    can_release: bool,
    release: Option<Release>,
    /// With those that are not shown.
    holders_in_all: usize,
    /// Of the holders shown, in their order.
    ages_ms: Vec<Option<u64>>,
    /// The notes of the first waiters, in their order.
    waiters: &'a [Option<String>],
}

/// The call that ends the holds.
#[derive(Serialize)]
struct Release {
    method: &'static str,
    path: String,
}

/// What happened at the key, latest first.
#[derive(Serialize)]
struct Events<'a> {
    server: &'a [Happened],
    elsewhere: &'a [Happened],
}

impl KeyView {
    pub(crate) fn new(permit: StreamPermit, key: Key, may_release: bool) -> Self {
        let live = permit.0.clone();
        let held = (permit, live.look());
        let (resource, name) = live.sources.name_of(&key);
        let id = live.sources.activity.id(resource, &name);
        let path = path(resource, &name);
        Self { live, key, may_release, id, path, next: None, sent: None, held }
    }

    /// Returns the next batch: the first one at once, the others with two seconds between them.
    pub(crate) async fn batch(&mut self) -> Vec<Event> {
        if let Some(next) = self.next {
            tokio::time::sleep_until(next).await;
        }
        let seen = self.seen().await;
        self.next = Some(tokio::time::Instant::now() + EVERY);
        std::iter::once(seen).chain(self.events()).collect()
    }

    /// Returns the events if there are others than those that were sent.
    fn events(&mut self) -> Option<Event> {
        let all = self.live.sources.activity.of(self.id);
        if self.sent.as_ref() == Some(&all) {
            return None;
        }
        let [server, elsewhere] = self.sent.insert(all);
        Some(Event::new("events", &Events { server, elsewhere }))
    }

    async fn seen(&self) -> Event {
        let admin = &self.live.sources.admin;
        match tokio::try_join!(admin.explain(&self.key), admin.deadlock(&self.key)) {
            Ok((explanation, deadlock)) => self.told(&explanation, deadlock.as_deref()),
            Err(error) => Event::new("error", &Failed { text: &error.to_string() }),
        }
    }

    fn told(&self, explanation: &Explanation, deadlock: Option<&str>) -> Event {
        let holders = explanation.holders();
        // Those that the page counts: nobody who was granted it since.
        let fence = holders.iter().map(|holder| holder.fence).max();
        let release = fence.and_then(|fence| Some(format!("{}?fence={fence}", self.path.as_ref()?)));
        let deadlock = deadlock.map(|message| format!("deadlock: {message}"));
        let lines = explained::lines(explanation, Some(MOST_HOLDERS));
        let lines: Vec<_> = std::iter::once(lines).chain(deadlock.clone()).collect();
        let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let seen = Seen {
            text: &lines.join("\n"),
            deadlock: deadlock.is_some(),
            can_release: self.may_release && release.is_some(),
            release: release.map(|path| Release { method: "DELETE", path }),
            holders_in_all: holders.len(),
            ages_ms: holders.iter().take(MOST_HOLDERS).map(|holder| holder.age.map(millis)).collect(),
            waiters: explanation.waiters(),
            explained: Explained::of_first(explanation, MOST_HOLDERS),
        };
        Event::new("key", &seen)
    }
}

/// Returns the path of what can be held, if a browser can call it: the parsers of URLs drop a segment that is one or
/// two dots, also if they are encoded.
fn path(resource: Resource, name: &str) -> Option<String> {
    let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let path = format!("/v1/{}/{encoded}", resource.segment());
    let is_callable = resource.is_held() && !matches!(name, "." | "..");
    (is_callable && parse(Method::Delete, &path, "", "").is_ok()).then_some(path)
}

impl Sources {
    /// Returns the name of a key as paths spell it, or the whole key.
    fn name_of(&self, key: &Key) -> (Resource, String) {
        if let Some(Named::Kind { kind, name, .. }) = self.admin.named(key)
            && let Some(resource) = Resource::ALL.into_iter().find(|resource| resource.key_kind() == kind)
        {
            let spelled = self.names.spelling(resource, &name);
            return (resource, spelled.unwrap_or(name));
        }
        (Resource::LockByKey, key.to_string())
    }
}
