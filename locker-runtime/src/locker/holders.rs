//! The holders of a key with what is known of them, for errors and operators.

use super::{
    Ahead, Inner, Locker,
    descriptions::{FunctionSource, LONGEST_NOTE, cut, elected_subject, function_subject, holder_subject},
};
use futures_util::FutureExt;
use locker_core::{
    background,
    clock::Timestamp,
    error::{Blocked, Holder},
    id::Id,
    key::{Key, Named},
    primitives::{
        Reply, Request,
        inspection::{Held, Inspection},
    },
    sync::{Mutex, lock},
};
use std::{collections::HashMap, time::Duration};
use tokio::sync::oneshot;

/// How long an error may be delayed for what stood in the way of its call.
const DELAY: Duration = Duration::from_millis(100);

/// The part of the delay after which names are not awaited any longer.
const NAMES_DELAY: Duration = Duration::from_millis(80);

/// How long a text of the store is used. A note never changes; a function may move to another line.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// The maximum of texts that a locker remembers.
const MOST_KNOWN: usize = 1_000;

/// The kind of keys whose holders are leaders.
pub(crate) const LEADER: &str = "leader";

/// The texts that a locker has read in the store lately, by subject.
#[derive(Debug, Default)]
pub(super) struct KnownTexts(Mutex<HashMap<String, (String, Timestamp)>>);

impl KnownTexts {
    /// Moves the subjects that are known to `texts`.
    fn take_known(&self, subjects: &mut Vec<String>, texts: &mut Texts) {
        let (known, now) = (lock(&self.0), Timestamp::now());
        subjects.retain(|subject| match known.get(subject) {
            Some((text, until)) if *until > now => {
                texts.0.insert(subject.clone(), text.clone());
                false
            }
            _ => true,
        });
    }

    fn add(&self, subject: &str, text: &str) {
        let mut known = lock(&self.0);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(subject.to_owned(), (text.to_owned(), Timestamp::now() + KNOWN_FOR));
    }
}

/// Texts by subject.
#[derive(Debug, Default)]
pub(crate) struct Texts(HashMap<String, String>);

impl Texts {
    /// Returns the note of the locker whose ids have this tag, as one line that is no longer than notes are.
    pub(crate) fn note(&self, tag: u64) -> Option<&str> {
        self.line(&holder_subject(tag))
    }

    /// Returns what a holder says about itself: a leader about this term, or else the note of its locker.
    pub(crate) fn note_of(&self, key: &Key, named: Option<&Named>, held: &Held) -> Option<&str> {
        let elected = is_election(named).then(|| self.elected(key, held.fence)).flatten();
        elected.or_else(|| held.tag.and_then(|tag| self.note(tag)))
    }

    /// Returns what the leader with this fence says about itself.
    pub(crate) fn elected(&self, key: &Key, fence: u64) -> Option<&str> {
        self.line(&elected_subject(key, fence))
    }

    fn line(&self, subject: &str) -> Option<&str> {
        let note = self.0.get(subject)?;
        Some(cut(note.lines().next().unwrap_or_default(), LONGEST_NOTE))
    }

    /// Returns the function of a key.
    pub(crate) fn function(&self, named: Option<&Named>) -> Option<FunctionSource> {
        let Some(Named::Function { digest, .. }) = named else { return None };
        FunctionSource::read(self.0.get(&function_subject(digest))?)
    }
}

fn is_election(named: Option<&Named>) -> bool {
    named.is_some_and(|named| named.kind() == LEADER)
}

/// Returns the subjects of the texts about a key and its holders.
pub(crate) fn subjects_of(key: &Key, named: Option<&Named>, seen: &Inspection) -> Vec<String> {
    let mut subjects: Vec<_> = seen.holders.iter().filter_map(|held| held.tag).map(holder_subject).collect();
    if is_election(named) {
        subjects.extend(seen.holders.iter().map(|held| elected_subject(key, held.fence)));
    }
    if let Some(Named::Function { digest, .. }) = named {
        subjects.push(function_subject(digest));
    }
    subjects
}

impl Locker {
    /// Returns these texts, as far as the store tells them: a role may have no right to read them.
    pub(crate) async fn texts(&self, mut subjects: Vec<String>) -> Texts {
        let mut texts = Texts::default();
        if self.ready().is_err() {
            return texts;
        }
        subjects.sort_unstable();
        subjects.dedup();
        let Inner { descriptions, known_texts, .. } = &*self.0;
        let (own, note) = descriptions.own();
        texts.0.insert(own, note.to_owned());
        subjects.retain(|subject| !texts.0.contains_key(subject));
        known_texts.take_known(&mut subjects, &mut texts);
        if subjects.is_empty() {
            return texts;
        }
        let found = self.descriptions(&subjects).await.unwrap_or_default();
        for (subject, text) in subjects.into_iter().zip(found) {
            if let Some(text) = text {
                let text = printable(text);
                known_texts.add(&subject, &text);
                texts.0.insert(subject, text);
            }
        }
        texts
    }

    /// Returns the holders in the state of a key.
    pub(crate) fn holders(
        &self,
        (key, named): (&Key, Option<&Named>),
        function: Option<&FunctionSource>,
        seen: &Inspection,
        texts: &Texts,
    ) -> Vec<Holder> {
        let holder = |held: &Held| {
            let mut holder = Holder::default();
            holder.note = texts.note_of(key, named, held).map(str::to_owned);
            holder.function = function.map(|function| function.name.clone());
            holder.file = function.map(|function| function.file.clone());
            holder.line = function.map(|function| function.line);
            holder.fence = held.fence;
            holder.age = held.age.or_else(|| self.age(held.fence));
            holder.time_left = held.time_left;
            holder.permits = held.permits;
            holder
        };
        seen.holders.iter().map(holder).collect()
    }

    /// Returns the time since the grant with this fence. A hold of another program has none, and a fence that is ahead
    /// of the clock does not tell it.
    pub(crate) fn age(&self, fence: u64) -> Option<Duration> {
        let (store, granted) = (self.store(), Timestamp::from_micros(fence));
        let now = Timestamp::now() + Ahead::default().moved(store);
        (fence > 0 && granted <= now && store.fence_is_time()).then(|| now.since(granted))
    }

    /// Asks the store what stands in the way of the attempt `id`, in the order of the calls of the background thread.
    pub(super) fn look(&self, key: &Key, id: Id) -> Look {
        let (sender, seen) = oneshot::channel();
        let now = Timestamp::now();
        let inline = self.call_inline(key, &Request::Inspect, None);
        let is_inline = inline.is_some();
        let (locker, key) = (self.clone(), key.clone());
        let looking = async move {
            let reply = match inline {
                Some(reply) => reply,
                None => locker.call_contained(&key, &Request::Inspect).await,
            };
            if let Ok(Reply::Inspected(seen)) = reply {
                // An error means that the caller no longer waits for it.
                let _ = sender.send(locker.blocked(&key, id, &seen, now).await);
            }
        };
        let mut looking = Box::pin(looking);
        if !is_inline || looking.as_mut().now_or_never().is_none() {
            background::spawn(async move {
                tokio::select! {
                    biased;
                    () = looking => {}
                    () = background::sleep_from(now, now + DELAY) => {}
                }
            });
        }
        Look { seen, now }
    }

    /// Returns what stands in the way of the attempt `id` in this state. Texts that come too late are missing.
    pub(super) async fn blocked(&self, key: &Key, id: Id, seen: &Inspection, asked: Timestamp) -> Blocked {
        let named = Named::of(self.prefix(), key);
        let texts = tokio::select! {
            biased;
            texts = self.texts(subjects_of(key, named.as_ref(), seen)) => texts,
            () = background::sleep_from(asked, asked + NAMES_DELAY) => Texts::default(),
        };
        let function = texts.function(named.as_ref());
        let holders = self.holders((key, named.as_ref()), function.as_ref(), seen, &texts);
        Blocked::new(holders, seen.waiters.iter().position(|waiter| *waiter == id))
    }
}

/// Returns a text without control characters, which other users of the store may have written. Lines stay.
pub(super) fn printable(text: String) -> String {
    let is_odd = |letter: char| letter.is_control() && letter != '\n';
    if text.contains(is_odd) { text.replace(is_odd, " ") } else { text }
}

/// A question under way.
#[derive(Debug)]
pub(super) struct Look {
    seen: oneshot::Receiver<Blocked>,
    now: Timestamp,
}

impl Look {
    /// Returns the answer. Without one in time, the holders are missing.
    pub(super) async fn answer(self) -> Blocked {
        tokio::select! {
            biased;
            seen = self.seen => seen.unwrap_or_default(),
            () = background::sleep_from(self.now, self.now + DELAY) => Blocked::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::{
        blocking::block_on,
        error::{Error, ErrorKind},
        store::{Description, Store, memory::Memory},
    };
    use locker_harness::ScriptedStore;

    /// Fences run ahead of the clock after many grants, and if the clock of the store is ahead of this host's.
    #[test]
    fn age_is_not_known_of_a_fence_of_the_future() {
        let (locker, now) = (Locker::memory(), Timestamp::now());
        let age = |fence| {
            let mut seen = Inspection::default();
            seen.holders.push(Held::new(fence, 1));
            locker.holders((&Key::new("lock:a"), None), None, &seen, &Texts::default())[0].age
        };
        let minute = Duration::from_mins(1);
        assert!(age(now.as_micros() - 60_000_000).unwrap() >= minute);
        assert_eq!((age((now + minute).as_micros()), age(0)), (None, None));
    }

    /// Any user of the store can write one, and errors go to logs.
    #[test]
    fn hostile_note_is_one_short_line() {
        let (store, tag, keep) = (Memory::new(), 7, Duration::from_mins(1));
        let locker = Locker::builder().store(store.clone()).build_blocking().unwrap();
        for (text, shown) in [("web-1\n2026 INFO granted", "web-1"), (&*"ä".repeat(1_000), &*"ä".repeat(60))]
        {
            let text = Description { subject: holder_subject(tag), text: text.to_owned(), keep };
            block_on(store.describe("", &[text])).unwrap();
            lock(&locker.0.known_texts.0).clear();
            assert_eq!(block_on(locker.texts(vec![holder_subject(tag)])).note(tag), Some(shown));
        }
    }

    #[test]
    fn holders_are_explained_without_texts() {
        let store = ScriptedStore::remote();
        let (locker, other) = (Locker::with_defaults(store.clone()), Locker::with_defaults(store.clone()));
        store.refuse_texts(Error::new(ErrorKind::Misused, "this role may not read them"));
        let guard = other.lock("a").acquire_blocking().unwrap();
        let explained = block_on(locker.admin().explain(&Key::new("lock:a"))).unwrap();
        assert_eq!((explained.holders()[0].fence, &explained.holders()[0].note), (guard.fence(), &None));
        guard.release_blocking().unwrap();
    }
}
