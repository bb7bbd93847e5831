//! One key of the overview.

use crate::{
    activity::{Activity, NameId},
    api::Resource,
    caps::WaitCaps,
};
use locker_runtime::{Admin, FunctionSource, Inspection, Key, Listed, Named};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Times that differ by less are the same: they were measured twice.
const JITTER: Duration = Duration::from_millis(1500);

/// A key in use, with what the page shows of it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    /// As paths spell it.
    pub(super) kind: &'static str,
    name: Name,
    pub(super) function: Option<Arc<FunctionSource>>,
    pub(super) used: u64,
    size: Option<u64>,
    pub(super) waiting: u64,
    /// Since when the first waiter of this server waits.
    pub(super) waits_since: Option<Instant>,
    /// When all holds will have ended, if none is renewed.
    ends: Option<Instant>,
    /// When the oldest hold was granted.
    pub(super) granted: Option<Instant>,
    /// The highest fence of a hold, or 0.
    pub(super) fence: u64,
    /// For what happened at it.
    pub(super) id: NameId,
}

/// A name without a copy of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    None,
    /// The key from this byte on.
    Within(u32),
    /// A name that the key cannot spell.
    Spelled(Box<str>),
}

/// A row as the page gets it; times in milliseconds.
#[derive(Serialize)]
pub(super) struct ShownRow<'a> {
    key: &'a str,
    kind: &'static str,
    name: Option<&'a str>,
    function: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    used: u64,
    size: Option<u64>,
    waiting: u64,
    longest_ms: Option<u64>,
    left_ms: Option<u64>,
    age_ms: Option<u64>,
}

/// Makes rows of what the store lists.
pub(super) struct RowMaker<'a> {
    pub(super) admin: &'a Admin,
    /// By resource: the names that keys cannot spell.
    pub(super) spelled: [HashMap<String, String>; Resource::ALL.len()],
    /// Each function once.
    pub(super) functions: HashMap<FunctionSource, Arc<FunctionSource>>,
    pub(super) waits: &'a WaitCaps,
    pub(super) activity: &'a Activity,
}

impl RowMaker<'_> {
    pub(super) fn row(&mut self, listed: Listed, seen: &Inspection, now: Instant) -> Row {
        let kind = listed.named.kind();
        let resource = Resource::ALL.into_iter().find(|resource| resource.key_kind() == kind);
        let name = self.name(&listed, resource);
        let function = listed.function.map(|function| {
            self.functions.entry(function).or_insert_with_key(|function| Arc::new(function.clone())).clone()
        });
        let text = name.within(&listed.key);
        let (of, text) = resource.zip(text).unwrap_or((Resource::LockByKey, listed.key.as_str()));
        let (waits_since, id) = (self.waits.longest(of, text), self.activity.id(of, text));
        let is_lock = matches!(resource, Some(Resource::Lock | Resource::Leader)) && seen.used.is_none();
        let held = seen.holders.len() as u64;
        let end = |left: Option<Duration>| left.and_then(|left| now.checked_add(left));
        Row {
            kind: resource.map_or(kind, Resource::segment),
            name,
            function,
            // The permits of a read/write lock are beyond all numbers that a client could use.
            used: if kind == Resource::RwLock.key_kind() { held } else { seen.used.unwrap_or(held) },
            size: match resource {
                Some(Resource::RwLock) => None,
                _ => seen.size.or(is_lock.then_some(1)),
            },
            waiting: seen.waiting,
            waits_since,
            ends: seen.holders.iter().filter_map(|held| end(held.time_left)).max().or(end(seen.resets_in)),
            granted: seen.holders.iter().filter_map(|held| now.checked_sub(self.admin.age(held)?)).min(),
            fence: seen.holders.iter().map(|held| held.fence).max().unwrap_or_default(),
            id,
            key: listed.key,
        }
    }

    fn name(&self, listed: &Listed, resource: Option<Resource>) -> Name {
        let Named::Kind { name, .. } = &listed.named else { return Name::None };
        let spelled = resource.and_then(|resource| self.spelled[resource as usize].get(name));
        match (spelled, u32::try_from(listed.key.as_str().len() - name.len())) {
            (Some(spelled), _) => Name::Spelled(spelled.as_str().into()),
            (None, Ok(start)) => Name::Within(start),
            (None, Err(_)) => Name::Spelled(name.as_str().into()),
        }
    }
}

impl Name {
    fn within<'a>(&'a self, key: &'a Key) -> Option<&'a str> {
        match self {
            Self::None => None,
            Self::Within(start) => key.as_str().get(*start as usize..),
            Self::Spelled(name) => Some(name),
        }
    }
}

impl Row {
    pub(super) fn name(&self) -> Option<&str> {
        self.name.within(&self.key)
    }

    /// Returns when its holds have ended, if none was renewed.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// Returns what the page calls it.
    pub(super) fn title(&self) -> &str {
        self.name().or(self.function.as_ref().map(|function| &*function.name)).unwrap_or_default()
    }

    /// Returns whether the page would show the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let facts =
            |row: &Self| (row.key.clone(), row.used, row.size, row.waiting, row.fence, row.function.clone());
        let times = |row: &Self| [row.waits_since, row.ends, row.granted];
        facts(self) == facts(other)
            && times(self).into_iter().zip(times(other)).all(|(one, other)| is_about(one, other))
    }

    pub(super) fn shown(&self, now: Instant) -> ShownRow<'_> {
        let function = self.function.as_deref();
        let since = |start: Option<Instant>| start.map(|start| millis(now.saturating_duration_since(start)));
        ShownRow {
            key: self.key.as_str(),
            kind: self.kind,
            name: self.name(),
            function: function.map(|function| &*function.name),
            file: function.map(|function| &*function.file),
            line: function.map(|function| function.line),
            used: self.used,
            size: self.size,
            waiting: self.waiting,
            longest_ms: since(self.waits_since),
            left_ms: self.ends.map(|ends| millis(ends.saturating_duration_since(now))),
            age_ms: since(self.granted),
        }
    }
}

fn is_about(one: Option<Instant>, other: Option<Instant>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.max(other) - one.min(other) < JITTER,
        (one, other) => one == other,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
