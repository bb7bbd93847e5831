//! Why a caller would wait for a key.

use super::Admin;
use crate::locker::{FunctionSource, Picture, holder_subject, subjects_of};
use futures_util::future::join_all;
use locker_core::{
    error::{Holder, Result},
    key::{Key, Named},
    primitives::inspection::Inspection,
};
use std::{
    collections::HashMap,
    fmt::{self, Write},
};

/// The maximum of keys below an explanation.
const MOST_NESTED: usize = 256;

/// The holders of a key and the callers that wait for it. [`Admin::explain`] returns it.
///
/// `Display` writes the key, a line for each holder, the waiters, and what the holders wait for:
///
/// ```text
/// lock:invoice 7
/// held by web-3:4711 for 41s, fence 1732285812000000
/// 2 waiting: web-4:1, web-5:2
///   waits for lock:customer 3
///   held by web-8:20 for 50s, fence 1732285803000000
///   1 waiting: web-3:4711
/// ```
///
/// A precision limits the holders of each key: `{:.100}` writes the first 100, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    key: Key,
    named: Option<Named>,
    function: Option<FunctionSource>,
    holders: Vec<Holder>,
    waiting: u64,
    waiters: Vec<Option<String>>,
    waiting_for: Vec<Explanation>,
}

impl Explanation {
    /// Returns the whole key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the kind and the name, or the function, of the key. Returns `None` for a key of another form.
    #[must_use]
    pub fn named(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    /// Returns the function with the attribute whose key it is, if a process has told the store about it.
    #[must_use]
    pub fn function(&self) -> Option<&FunctionSource> {
        self.function.as_ref()
    }

    /// Returns the holders, in the order of their fences. Empty if nobody holds the key.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns the number of callers that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the notes of the first 100 callers that wait for a lock or for permits, in the order in which they are
    /// served; `None` for a caller whose note is not known. Members of a run of waiters that hold a lock on Redis one
    /// after the other are missing.
    #[must_use]
    pub fn waiters(&self) -> &[Option<String>] {
        &self.waiters
    }

    /// Returns the keys that the holders wait for while they hold this one, and what the holders of those wait for, and
    /// so on. Each key has its own once, where it comes first: in a circle, the key that it began with comes again
    /// without. Empty for waits below 1 s and for holders that [deadlocks](crate::LockerBuilder::deadlocks) would not
    /// be found with. It has up to 256 keys.
    #[must_use]
    pub fn waiting_for(&self) -> &[Explanation] {
        &self.waiting_for
    }

    /// Adds what the holders wait for. Takes the keys with their explanations from `known`.
    fn nest(&mut self, seen: &Picture, known: &HashMap<Key, Self>, passed: &mut Vec<Key>, room: &mut usize) {
        if passed.contains(&self.key) {
            return;
        }
        passed.push(self.key.clone());
        let next = seen.after(&self.key);
        for mut next in next.iter().filter_map(|key| known.get(key).cloned()) {
            let Some(left) = room.checked_sub(1) else { return };
            *room = left;
            next.nest(seen, known, passed, room);
            self.waiting_for.push(next);
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        if let Some(function) = &self.function {
            write!(f, "  {function}")?;
        }
        if self.holders.is_empty() {
            write!(f, "\nnot held")?;
        }
        let most = f.precision();
        let shown = most.unwrap_or(usize::MAX).min(self.holders.len());
        for holder in &self.holders[..shown] {
            write!(f, "\nheld by {holder}")?;
        }
        if shown < self.holders.len() {
            write!(f, "\nheld by {} more", self.holders.len() - shown)?;
        }
        if self.waiting > 0 {
            let notes: Vec<_> =
                self.waiters.iter().map(|note| note.as_deref().unwrap_or("unknown")).collect();
            let notes = if notes.is_empty() { String::new() } else { format!(": {}", notes.join(", ")) };
            write!(f, "\n{} waiting{notes}", self.waiting)?;
        }
        for next in &self.waiting_for {
            match most {
                Some(most) => write!(Indented(f), "\nwaits for {next:.most$}")?,
                None => write!(Indented(f), "\nwaits for {next}")?,
            }
        }
        Ok(())
    }
}

/// Writes each line two columns further to the right.
struct Indented<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Indented<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&text.replace('\n', "\n  "))
    }
}

impl Admin {
    /// Returns the holders of a key, the callers that wait for it, and what the holders wait for themselves. Notes and
    /// functions of the last ten minutes are remembered, and are missing if the store does not tell them. A key that is
    /// not in use has no holders.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// ```
    /// # use locker_runtime as locker;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> locker::Result<()> {
    /// use locker::Locker;
    /// let locker = Locker::memory();
    /// let guard = locker.lock("invoice 7").acquire().await?;
    /// let admin = locker.admin();
    /// let explanation = admin.explain(&admin.key("lock", "invoice 7")).await?;
    /// assert_eq!(explanation.holders()[0].fence, guard.fence());
    /// println!("{explanation}");
    /// # guard.release().await }
    /// ```
    pub async fn explain(&self, key: &Key) -> Result<Explanation> {
        let seen = self.look(key).await?.unwrap_or_default();
        let mut explanation = self.explain_state(key, &seen).await;
        if !seen.holders.is_empty() {
            let look = self.0.look_from(key).await?;
            // Any user of the store can write that it waits for something.
            let states = look.states.iter().filter(|(key, _)| self.named(key).is_some());
            let known = join_all(states.map(|(key, seen)| self.explain_state(key, seen))).await;
            let known = known.into_iter().map(|one| (one.key.clone(), one)).collect();
            explanation.nest(&look.seen, &known, &mut Vec::new(), &mut { MOST_NESTED });
        }
        Ok(explanation)
    }

    /// Returns how callers wait for each other in a deadlock that the holders of a key are in, or wait for: a line such
    /// as the message of [`ErrorKind::Deadlock`](locker_core::error::ErrorKind::Deadlock). Returns `None` if there is
    /// none, or it is one that is [not found](crate::LockerBuilder::deadlocks). Ends no wait.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn deadlock(&self, key: &Key) -> Result<Option<String>> {
        self.0.deadlock_from(key).await
    }

    async fn explain_state(&self, key: &Key, seen: &Inspection) -> Explanation {
        let named = self.named(key);
        let mut subjects = subjects_of(key, named.as_ref(), seen);
        subjects.extend(seen.waiters.iter().map(|id| holder_subject(id.tag())));
        let texts = self.0.texts(subjects).await;
        let function = texts.function(named.as_ref());
        Explanation {
            key: key.clone(),
            holders: self.0.holders((key, named.as_ref()), function.as_ref(), seen, &texts),
            waiters: seen.waiters.iter().map(|id| texts.note(id.tag()).map(str::to_owned)).collect(),
            waiting: seen.waiting,
            waiting_for: Vec::new(),
            named,
            function,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locker::{Around, Wait};
    use locker_core::id::Id;

    /// Callers that each hold one key and wait for another.
    fn seen(callers: &[(u64, &str, &str)]) -> Picture {
        let mut seen = Picture::default();
        for &(fence, has, asks) in callers {
            let id = Id::random();
            let around = vec![Around { key: Key::new(has), fence, tag: id.tag() }];
            let (function, place) = Default::default();
            let wait = Wait { id, key: Key::new(asks), permits: 1, fair: true, function, place, around };
            seen.queues.entry(Key::new(has)).or_default().holders.push((fence, id.tag(), 1));
            seen.queues.entry(Key::new(asks)).or_default().waiters.push(id);
            seen.waits.insert(id, wait);
        }
        seen
    }

    fn explained(seen: &Picture, of: &str, room: usize) -> String {
        let explanation = |key: &Key| Explanation {
            key: key.clone(),
            named: None,
            function: None,
            holders: vec![Holder::default()],
            waiting: 0,
            waiters: Vec::new(),
            waiting_for: Vec::new(),
        };
        let known = seen.queues.keys().map(|key| (key.clone(), explanation(key))).collect();
        let mut explained = explanation(&Key::new(of));
        explained.nest(seen, &known, &mut Vec::new(), &mut { room });
        explained.to_string().replace("held by an unknown holder, fence 0", "held")
    }

    #[test]
    fn precision_limits_the_holders() {
        let explanation = |key: &str, holders: usize, waiting_for| Explanation {
            key: Key::new(key),
            named: None,
            function: None,
            holders: vec![Holder::default(); holders],
            waiting: 0,
            waiters: Vec::new(),
            waiting_for,
        };
        let explanation = explanation("a", 3, vec![explanation("b", 2, Vec::new())]);
        let written = |text: String| text.replace(" an unknown holder, fence 0", "");
        let all = "a\nheld by\nheld by\nheld by\n  waits for b\n  held by\n  held by";
        assert_eq!(written(format!("{explanation}")), all);
        assert_eq!(written(format!("{explanation:.3}")), all);
        let some = "a\nheld by\nheld by\nheld by 1 more\n  waits for b\n  held by\n  held by";
        assert_eq!(written(format!("{explanation:.2}")), some);
        let none = "a\nheld by 3 more\n  waits for b\n  held by 2 more";
        assert_eq!(written(format!("{explanation:.0}")), none);
    }

    #[test]
    fn circle_is_explained_once() {
        let mut seen = seen(&[(1, "a", "b"), (2, "b", "c"), (3, "c", "a"), (4, "d", "b")]);
        let circle = "b\n  held\n    waits for c\n    held\n      waits for a\n      held";
        assert_eq!(explained(&seen, "a", 9), format!("a\nheld\n  waits for {circle}"));
        assert_eq!(
            explained(&seen, "d", 9),
            format!("d\nheld\n  waits for {circle}\n        waits for b\n        held")
        );
        assert_eq!(explained(&seen, "a", 1), "a\nheld\n  waits for b\n  held");
        seen.queues.get_mut(&Key::new("b")).unwrap().holders[0].0 = 9;
        assert_eq!(explained(&seen, "a", 9), "a\nheld\n  waits for b\n  held", "another hold");
        seen.queues.get_mut(&Key::new("b")).unwrap().waiters.clear();
        assert_eq!(explained(&seen, "a", 9), "a\nheld", "a wait that has ended");
    }
}
