//! The stream of `view=names`.

use super::{
    INTERVAL, Live, Looking, StreamPermit, View,
    batch::{Event, Failed},
    row::{Row, ShownRow},
    view::Shown,
};
use crate::activity::{self, Second};
use locker_runtime::Key;
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// What one stream has sent.
#[derive(Debug)]
pub(crate) struct NamesView {
    live: Arc<Live>,
    view: View,
    /// The rows that the page has.
    sent: Option<Sent>,
    next: Option<tokio::time::Instant>,
    #[expect(dead_code, reason = "counts until it is dropped")]
    held: (StreamPermit, Looking),
}

/// The rows that were sent, without the overview that they are from.
#[derive(Debug)]
struct Sent {
    version: u64,
    order: Vec<Key>,
    rows: HashMap<Key, Row>,
}

#[derive(Serialize)]
struct Totals<'a> {
    at: u64,
    names: usize,
    /// Whether the store has more names than the server looks at.
    more: bool,
    holds: u64,
    waiting: u64,
    grants: u32,
    refusals: u32,
    store: &'a str,
    round_trip_ms: Option<f64>,
    seen_ms_ago: Option<u64>,
    /// Whether the server has looked at all names: not while the first pass over them is on its way.
    whole: bool,
    matching: usize,
    shown: usize,
}

#[derive(Serialize)]
struct Past {
    every_ms: u64,
    grants: Vec<u32>,
    refusals: Vec<u32>,
    waiting: Vec<u32>,
}

#[derive(Serialize)]
struct Rows<'a> {
    rows: Vec<ShownRow<'a>>,
}

#[derive(Serialize)]
struct Changes<'a> {
    put: Vec<ShownRow<'a>>,
    gone: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Vec<&'a str>>,
}

impl NamesView {
    pub(crate) fn new(permit: StreamPermit, view: View) -> Self {
        let live = permit.0.clone();
        let held = (permit, live.look());
        Self { live, view, sent: None, next: None, held }
    }

    /// Returns the next batch: the first one at once, the others with a second between them.
    pub(crate) async fn batch(&mut self) -> Vec<Event> {
        let Some(next) = self.next else {
            self.next = Some(tokio::time::Instant::now());
            return vec![self.past()];
        };
        tokio::time::sleep_until(next).await;
        let overview = {
            let mut overviews = self.live.overview.subscribe();
            // The sender is dropped after the streams.
            let Ok(overview) = overviews.wait_for(Option::is_some).await.map(|one| one.clone()) else {
                return Vec::new();
            };
            overview
        };
        self.next = Some(tokio::time::Instant::now() + INTERVAL);
        let Some(overview) = overview else { return Vec::new() };
        let mut batch = Vec::new();
        // The store is not empty because it could not be read.
        if overview.seen.is_some() {
            let shown = self.live.shown(&self.view, &overview);
            batch.extend(self.rows(&shown));
            batch.push(self.totals(&shown));
        }
        batch.extend(overview.error.as_deref().map(|text| Event::new("error", &Failed { text })));
        batch
    }

    fn past(&self) -> Event {
        let millis = INTERVAL.as_millis();
        let every_ms = u64::try_from(millis).unwrap_or(u64::MAX);
        let past = self.live.sources.activity.past();
        let all = |figure: fn(&Second) -> u32| past.iter().map(figure).collect();
        let past = Past {
            every_ms,
            grants: all(|second| second.grants),
            refusals: all(|second| second.refusals),
            waiting: all(|second| second.waiting),
        };
        Event::new("past", &past)
    }

    fn totals(&self, shown: &Shown) -> Event {
        let overview = shown.overview();
        let Second { grants, refusals, .. } = self.live.sources.activity.last_second();
        let totals = Totals {
            at: activity::now(),
            names: overview.rows.len(),
            more: overview.has_more,
            holds: overview.holds,
            waiting: overview.waiting,
            grants,
            refusals,
            store: self.live.store(),
            round_trip_ms: self.live.round_trip(),
            seen_ms_ago: overview.seen.map(|seen| millis(seen.elapsed())),
            whole: overview.is_whole,
            matching: shown.matching,
            shown: shown.rows().len(),
        };
        Event::new("totals", &totals)
    }

    /// Returns the rows, or what has changed of them.
    fn rows(&mut self, shown: &Shown) -> Vec<Event> {
        let now = Instant::now();
        let event = match &self.sent {
            Some(sent) if sent.version == shown.version() => return Vec::new(),
            Some(sent) => sent.changes(shown, now),
            None => {
                Some(Event::new("rows", &Rows { rows: shown.rows().map(|row| row.shown(now)).collect() }))
            }
        };
        self.sent = Some(Sent::of(shown));
        event.into_iter().collect()
    }
}

impl Sent {
    fn of(shown: &Shown) -> Self {
        Self {
            version: shown.version(),
            order: shown.rows().map(|row| row.key.clone()).collect(),
            rows: shown.rows().map(|row| (row.key.clone(), row.clone())).collect(),
        }
    }

    fn changes(&self, shown: &Shown, now: Instant) -> Option<Event> {
        let is_new = |row: &&Row| !self.rows.get(&row.key).is_some_and(|known| known.is_same(row));
        let left: HashSet<&Key> = shown.rows().map(|row| &row.key).collect();
        let order: Vec<&str> = shown.rows().map(|row| row.key.as_str()).collect();
        let is_reordered = order.len() != self.order.len()
            || order.iter().zip(&self.order).any(|(new, old)| *new != old.as_str());
        let changes = Changes {
            put: shown.rows().filter(is_new).map(|row| row.shown(now)).collect(),
            gone: self.order.iter().filter(|key| !left.contains(key)).map(Key::as_str).collect(),
            order: is_reordered.then_some(order),
        };
        let is_change = !changes.put.is_empty() || !changes.gone.is_empty() || changes.order.is_some();
        is_change.then(|| Event::new("changes", &changes))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
