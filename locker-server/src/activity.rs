//! What the calls of this server did: the last 10,000 events, and how many there were in each of the last 300 seconds.
//!
//! Each event takes the same memory, and has neither the name nor the key of a client.

use crate::{api::Resource, sync::lock};
use serde::{Serialize, Serializer};
use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

/// How many events are kept of all names.
const KEPT: usize = 10_000;

/// How many events are shown of one name.
const SHOWN: usize = 200;

/// How many seconds are kept.
const SECONDS: usize = 300;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Granted,
    /// Without waiting.
    Refused,
    /// A hold had ended before its holder renewed or released it.
    Lost,
    /// The name was deleted, or its holds were ended by force.
    Evicted,
    Released,
    TimedOut,
}

/// The identity of a name or a key, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameId(u64);

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Happened {
    /// In milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) what: What,
    #[serde(serialize_with = "unless_zero")]
    pub(crate) fence: u64,
    pub(crate) waited_ms: Option<u32>,
}

/// The figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) grants: u32,
    pub(crate) refusals: u32,
    /// The waiting calls at its end.
    pub(crate) waiting: u32,
}

/// What a server has noted.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// With a random key, so that no client can make two names alike.
    hashes: RandomState,
    grants: AtomicU64,
    refusals: AtomicU64,
    here: Mutex<Ring>,
    elsewhere: Mutex<Ring>,
    past: Mutex<Past>,
}

/// Events, latest last. What is searched for is apart from the rest.
#[derive(Debug, Default)]
struct Ring {
    names: VecDeque<NameId>,
    events: VecDeque<Happened>,
}

#[derive(Debug, Default)]
struct Past {
    seconds: VecDeque<Second>,
    grants: u64,
    refusals: u64,
}

/// What this server has changed since a time.
#[derive(Debug, Default)]
pub(crate) struct Own {
    granted: HashSet<(NameId, u64)>,
    ended: HashSet<NameId>,
}

impl Activity {
    pub(crate) fn id(&self, resource: Resource, name: &str) -> NameId {
        NameId(self.hashes.hash_one((resource.key_kind(), name)))
    }

    /// Notes an event of a call. `fence` is 0 if it has none.
    pub(crate) fn note(
        &self,
        (resource, name): (Resource, &str),
        what: What,
        fence: u64,
        waited: Option<Duration>,
    ) {
        match what {
            What::Granted => self.grants.fetch_add(1, Relaxed),
            What::Refused | What::TimedOut => self.refusals.fetch_add(1, Relaxed),
            What::Lost | What::Evicted | What::Released => 0,
        };
        let waited_ms = waited.map(|waited| u32::try_from(waited.as_millis()).unwrap_or(u32::MAX));
        let event = Happened { at: now(), what, fence, waited_ms };
        let name = self.id(resource, name);
        lock(&self.here).push(name, event);
    }

    /// Notes a change that this server has not made.
    pub(crate) fn note_elsewhere(&self, name: NameId, what: What, fence: u64) {
        lock(&self.elsewhere).push(name, Happened { at: now(), what, fence, waited_ms: None });
    }

    /// Returns the last events of a name: those of this server and others, latest first.
    pub(crate) fn of(&self, name: NameId) -> [Vec<Happened>; 2] {
        [&self.here, &self.elsewhere].map(|ring| lock(ring).of(name))
    }

    /// Returns what this server has changed since a time in milliseconds, or `None` if the events do not reach back.
    pub(crate) fn own_since(&self, start: u64) -> Option<Own> {
        let (ring, mut own) = (lock(&self.here), Own::default());
        if ring.events.len() == KEPT && ring.events.front().is_some_and(|first| first.at >= start) {
            return None;
        }
        for (name, event) in
            ring.names.iter().zip(&ring.events).rev().take_while(|(_, event)| event.at >= start)
        {
            match event.what {
                What::Granted => drop(own.granted.insert((*name, event.fence))),
                What::Lost | What::Evicted | What::Released => drop(own.ended.insert(*name)),
                What::Refused | What::TimedOut => {}
            }
        }
        Some(own)
    }

    /// Notes the second that has just passed.
    pub(crate) fn pass_second(&self, waiting: usize) {
        let mut past = lock(&self.past);
        let (grants, refusals) = (self.grants.load(Relaxed), self.refusals.load(Relaxed));
        let less = |number: u64, before: u64| u32::try_from(number - before).unwrap_or(u32::MAX);
        let second = Second {
            grants: less(grants, past.grants),
            refusals: less(refusals, past.refusals),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
        };
        (past.grants, past.refusals) = (grants, refusals);
        if past.seconds.len() == SECONDS {
            past.seconds.pop_front();
        }
        past.seconds.push_back(second);
    }

    /// Returns the last 300 seconds, or fewer after the start, latest last.
    pub(crate) fn past(&self) -> Vec<Second> {
        lock(&self.past).seconds.iter().copied().collect()
    }

    /// Returns the last second.
    pub(crate) fn last_second(&self) -> Second {
        lock(&self.past).seconds.back().copied().unwrap_or_default()
    }
}

impl Own {
    pub(crate) fn granted(&self, name: NameId, fence: u64) -> bool {
        self.granted.contains(&(name, fence))
    }

    pub(crate) fn ended(&self, name: NameId) -> bool {
        self.ended.contains(&name)
    }
}

impl Ring {
    fn push(&mut self, name: NameId, event: Happened) {
        if self.names.len() == KEPT {
            self.names.pop_front();
            self.events.pop_front();
        }
        self.names.push_back(name);
        self.events.push_back(event);
    }

    fn of(&self, name: NameId) -> Vec<Happened> {
        let places = self.names.iter().enumerate().rev().filter(|(_, one)| **one == name);
        places.take(SHOWN).map(|(place, _)| self.events[place]).collect()
    }
}

/// Returns milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn unless_zero<S: Serializer>(fence: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*fence).filter(|fence| *fence > 0).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Resource = Resource::Lock;

    #[test]
    fn last_events_of_a_name_are_kept() {
        let activity = Activity::default();
        let note = |name: &str, fence| activity.note((LOCK, name), What::Granted, fence, None);
        note("old", 1);
        let long = "x".repeat(200);
        for fence in 2..=KEPT as u64 {
            note(if fence % 2 == 0 { "even" } else { &long }, fence);
        }
        let of = |name: &str| activity.of(activity.id(LOCK, name))[0].clone();
        assert_eq!(of("old").len(), 1);
        note("even", 20_000);
        assert_eq!((of("old").len(), of(&long).len()), (0, SHOWN));
        let fences: Vec<u64> = of("even").iter().map(|event| event.fence).collect();
        assert_eq!((fences[..2].to_vec(), fences.len()), (vec![20_000, KEPT as u64], SHOWN));
        assert_ne!(activity.id(LOCK, "even"), activity.id(Resource::Event, "even"));
    }

    #[test]
    fn seconds_count_grants_and_refusals() {
        let activity = Activity::default();
        let note = |what| activity.note((LOCK, "a"), what, 0, None);
        for what in [What::Granted, What::Granted, What::Refused, What::TimedOut, What::Released, What::Lost]
        {
            note(what);
        }
        activity.pass_second(7);
        note(What::Granted);
        for _ in 0..SECONDS {
            activity.pass_second(0);
        }
        assert_eq!(activity.past().len(), SECONDS);
        assert_eq!(activity.past()[0], Second { grants: 1, refusals: 0, waiting: 0 });
        note(What::Refused);
        activity.pass_second(1);
        assert_eq!(activity.last_second(), Second { grants: 0, refusals: 1, waiting: 1 });
    }

    #[test]
    fn own_changes_are_told_from_others() {
        let activity = Activity::default();
        let (start, id) = (now(), activity.id(LOCK, "a"));
        activity.note((LOCK, "a"), What::Granted, 5, None);
        let own = activity.own_since(start).unwrap();
        assert!(own.granted(id, 5) && !own.granted(id, 6) && !own.ended(id));
        activity.note((LOCK, "a"), What::Released, 0, None);
        assert!(activity.own_since(start).unwrap().ended(id));
        for _ in 0..KEPT {
            activity.note((LOCK, "b"), What::Released, 0, None);
        }
        assert!(activity.own_since(start).is_none(), "older events are gone");
    }

    #[test]
    fn events_are_json_as_documented() {
        let event = Happened { at: 7, what: What::TimedOut, fence: 0, waited_ms: Some(3) };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"at":7,"what":"timed_out","fence":null,"waited_ms":3}"#);
    }
}
