//! Looks at the store that find deadlocks.

use super::{Listed, subject, text};
use crate::locker::{
    Locker,
    deadlock::{Picture, Queue, Wait},
    descriptions::holder_subject,
    holders::printable,
};
use futures_util::future::join_all;
use locker_core::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{Reply, Request, inspection::Inspection},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
    sync::Arc,
};

/// The maximum of keys, and of texts, that one look reads.
const MOST_KEYS: usize = 256;
pub(super) const MOST_TEXTS: usize = 256;

/// Makes those of `starts` fail that have to break a deadlock. `own` are the waits of this locker. What the store does
/// not tell is not known, which counts as able to end.
pub(super) async fn detect(locker: &Locker, own: &[Arc<Listed>], starts: &[Arc<Listed>]) {
    let keys = starts.iter().map(|start| start.wait.key.clone()).collect();
    let seen = Look::at(locker, own, keys).await.seen;
    let keys = {
        let stuck = seen.stuck();
        let cycles = stuck.cycles_to_break();
        if !starts.iter().any(|start| cycles.contains_key(&start.wait.id)) {
            return;
        }
        stuck.keys()
    };
    // The second look reads no texts: which holds are around a wait never changes.
    let states = inspect(locker, keys).await;
    let both = seen.also_in(&queues(&states));
    let stuck = both.stuck();
    let cycles = stuck.cycles_to_break();
    for start in starts {
        if let Some(cycle) = cycles.get(&start.wait.id) {
            let Wait { key, id, .. } = &start.wait;
            let blocked = locker.blocked(key, *id, &states[key], Timestamp::now()).await;
            start.fail(locker, with_notes(locker, cycle).await, blocked);
        }
    }
}

/// Returns the message of a deadlock among what a look has seen, if it lasts. Nothing fails by it.
pub(super) async fn found_from(locker: &Locker, seen: Picture) -> Option<String> {
    let keys = seen.stuck().keys();
    if keys.is_empty() {
        return None;
    }
    let both = seen.also_in(&queues(&inspect(locker, keys).await));
    let cycles = both.stuck().cycles_to_break();
    let (_, cycle) = cycles.into_iter().min_by_key(|(id, _)| *id)?;
    Some(with_notes(locker, &cycle).await)
}

/// Returns the message of a cycle. Without notes it has the functions and places.
async fn with_notes(locker: &Locker, cycle: &[&Wait]) -> String {
    let texts = locker.texts(cycle.iter().map(|wait| holder_subject(wait.id.tag())).collect()).await;
    message(cycle, |tag| texts.note(tag))
}

/// The first look: from keys to their holders, and on to what these wait for.
pub(crate) struct Look<'a> {
    locker: &'a Locker,
    pub(crate) seen: Picture,
    /// The state of each key that was read. One that is not in use has none.
    pub(crate) states: HashMap<Key, Inspection>,
    /// Waits that texts have told, and that may not matter.
    told: HashMap<Id, Wait>,
    /// The lockers whose texts were read.
    read: HashSet<u64>,
}

impl<'a> Look<'a> {
    pub(super) async fn at(locker: &'a Locker, own: &[Arc<Listed>], mut keys: BTreeSet<Key>) -> Self {
        let told = own.iter().map(|listed| (listed.wait.id, listed.wait.clone())).collect();
        let read = HashSet::from([locker.0.descriptions.ids.tag()]);
        let (seen, states) = Default::default();
        let mut look = Self { locker, seen, states, told, read };
        while !keys.is_empty() && look.seen.queues.len() + keys.len() <= MOST_KEYS {
            let tags = look.inspect(keys).await;
            look.read_texts(tags).await;
            keys = look.follow();
        }
        look
    }

    /// Returns the lockers that hold, and wait for permits. Of a lock its holder alone says enough.
    async fn inspect(&mut self, keys: BTreeSet<Key>) -> BTreeSet<u64> {
        let states = inspect(self.locker, keys).await;
        let found = queues(&states);
        let holders = |queue: &Queue| queue.holders.iter().map(|holder| holder.1).collect::<Vec<_>>();
        let waiters = |queue: &Queue| {
            let most = if queue.size == 1 { 0 } else { queue.waiters.len() };
            queue.waiters[..most].iter().map(|id| id.tag()).collect::<Vec<_>>()
        };
        let tags =
            found.values().flat_map(|queue| holders(queue).into_iter().chain(waiters(queue))).collect();
        self.seen.queues.extend(found);
        self.states.extend(states);
        tags
    }

    async fn read_texts(&mut self, mut tags: BTreeSet<u64>) {
        tags.retain(|tag| !self.read.contains(tag));
        let room = MOST_TEXTS.saturating_sub(self.read.len());
        let tags: Vec<u64> = tags.into_iter().take(room).collect();
        self.read.extend(&tags);
        if tags.is_empty() {
            return;
        }
        let subjects: Vec<_> = tags.iter().copied().map(subject).collect();
        let texts = self.locker.descriptions(&subjects).await.unwrap_or_default();
        let known = tags.into_iter().zip(texts).filter_map(|(tag, text)| Some((tag, text?)));
        let waits = known.flat_map(|(tag, text)| text::read(&text, tag));
        self.told.extend(waits.map(|wait| (wait.id, wait)));
    }

    /// Takes the waits that matter: of callers that hold or wait at a key that was read. Returns the keys to read next.
    fn follow(&mut self) -> BTreeSet<Key> {
        let queues = &self.seen.queues;
        let waits = |wait: &Wait| queues.get(&wait.key).is_some_and(|queue| queue.waiters.contains(&wait.id));
        let holds = |wait: &Wait| {
            wait.around.iter().any(|hold| {
                let holders = queues.get(&hold.key).into_iter().flat_map(|queue| &queue.holders);
                holders.into_iter().any(|holder| (holder.0, holder.1) == (hold.fence, hold.tag))
            })
        };
        let taken: Vec<Id> =
            self.told.values().filter(|wait| waits(wait) || holds(wait)).map(|wait| wait.id).collect();
        let taken: Vec<Wait> = taken.iter().filter_map(|id| self.told.remove(id)).collect();
        let keys =
            taken.iter().map(|wait| wait.key.clone()).filter(|key| !queues.contains_key(key)).collect();
        self.seen.waits.extend(taken.into_iter().map(|wait| (wait.id, wait)));
        keys
    }
}

/// Returns the present states of these keys. A key that is not in use has an empty state, and so has a key of which the
/// store tells nothing.
pub(super) async fn inspect(locker: &Locker, keys: BTreeSet<Key>) -> HashMap<Key, Inspection> {
    let state = async |key: Key| {
        let now = Timestamp::now();
        let reply = locker.call_until(&key, Request::Inspect, now, now + locker.command_timeout()).await;
        let state = match reply {
            Ok(Reply::Inspected(seen)) => *seen,
            _ => Inspection::default(),
        };
        (key, state)
    };
    join_all(keys.into_iter().map(state)).await.into_iter().collect()
}

fn queues(states: &HashMap<Key, Inspection>) -> HashMap<Key, Queue> {
    states.iter().map(|(key, seen)| (key.clone(), Queue::of(seen))).collect()
}

/// Says how each wait of a cycle waits for the next one.
fn message<'a>(cycle: &[&Wait], note: impl Fn(u64) -> Option<&'a str>) -> String {
    let mut message = "would wait for itself: ".to_owned();
    for (at, wait) in cycle.iter().enumerate() {
        let before = cycle[(at + cycle.len() - 1) % cycle.len()];
        let function = if wait.function.is_empty() { "a caller" } else { &wait.function };
        let from = [note(wait.id.tag()).unwrap_or_default(), &wait.place];
        let from: Vec<_> = from.into_iter().filter(|part| !part.is_empty()).collect();
        let from = if from.is_empty() { String::new() } else { format!(" ({})", from.join(", ")) };
        let holds = wait.around.iter().any(|hold| hold.key == before.key);
        let has =
            if holds { format!("holds {} and waits", before.key) } else { "waits before it".to_owned() };
        let end = if at == 0 { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(message, "{end}{function}{from} {has} for {}", wait.key);
    }
    printable(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locker::deadlock::Around;

    #[test]
    fn message_names_callers_holds_and_waits() {
        let wait = |key: &str, function: &str, place: &str, held: &str| Wait {
            id: Id::random(),
            key: Key::new(key),
            permits: 1,
            fair: true,
            function: function.to_owned(),
            place: place.to_owned(),
            around: vec![Around { key: Key::new(held), fence: 1, tag: 1 }],
        };
        let (one, other) = (wait("y", "bank.pay", "src/a.rs:1", "x"), wait("x", "", "", "y"));
        let note = |tag| (tag == one.id.tag()).then_some("web-3:4711");
        assert_eq!(
            message(&[&one, &other], note),
            "would wait for itself: bank.pay (web-3:4711, src/a.rs:1) holds x and waits for y; a caller holds y and \
             waits for x"
        );
        let hostile = Wait { key: Key::new("y\u{1b}[2J"), ..one.clone() };
        assert!(
            message(&[&hostile], |_| None).ends_with("for y [2J"),
            "any user of the store can wait there"
        );
        let ahead = Wait { around: Vec::new(), ..one.clone() };
        assert!(
            message(&[&one, &ahead], |_| None).ends_with("; bank.pay (src/a.rs:1) waits before it for y")
        );
    }
}
