//! Caps: what is beyond them is answered, never queued in silence.

use crate::calls::{Answer, Kind};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A number that may not pass its cap.
#[derive(Debug)]
pub struct Gauge {
    now: AtomicUsize,
    most: usize,
}

impl Gauge {
    /// Starts at zero.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { now: AtomicUsize::new(0), most }
    }

    /// The present number.
    #[must_use]
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Counts one more until [`leave`](Self::leave); `false`: the cap is reached.
    #[must_use]
    pub fn enter(&self) -> bool {
        let more = |now| (now < self.most).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one less.
    pub fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who waits, in all and per name.
#[derive(Debug)]
pub struct Waits {
    all: Gauge,
    /// By kind; the last is for what has none.
    names: [Mutex<HashMap<String, usize>>; Kind::ALL.len() + 1],
    most_per_name: usize,
}

/// A wait that counts while this lives.
#[derive(Debug)]
pub struct Waiting<'a> {
    waits: &'a Waits,
    kind: Option<Kind>,
    name: &'a str,
}

impl Waits {
    /// With these caps.
    #[must_use]
    pub fn new(most: usize, most_per_name: usize) -> Self {
        Self { all: Gauge::new(most), names: std::array::from_fn(|_| Mutex::default()), most_per_name }
    }

    /// How many wait.
    #[must_use]
    pub fn now(&self) -> usize {
        self.all.now()
    }

    /// Counts a wait at `name`.
    ///
    /// # Errors
    /// 503 when too many wait in all, 429 when too many wait at this name.
    pub fn enter<'a>(&'a self, kind: Option<Kind>, name: &'a str) -> Result<Waiting<'a>, Answer> {
        if !self.all.enter() {
            return Err(Answer::unavailable(format!("{} wait already, as many as may", self.all.most)));
        }
        let waiting = Waiting { waits: self, kind, name };
        let mut names = self.of(kind);
        let count = match names.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(0),
        };
        *count += 1;
        let full = *count > self.most_per_name;
        drop(names);
        if full {
            return Err(Answer::too_many(format!(
                "{} wait at this name, as many as may",
                self.most_per_name
            )));
        }
        Ok(waiting)
    }

    fn of(&self, kind: Option<Kind>) -> MutexGuard<'_, HashMap<String, usize>> {
        let index = kind.map_or(Kind::ALL.len(), |kind| kind as usize);
        self.names[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.all.leave();
        let mut names = self.waits.of(self.kind);
        if let Some(count) = names.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(self.name);
            }
        }
    }
}

/// Raises the soft limit on open files to the hard one and returns it.
#[must_use]
pub fn open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_capped_in_all_and_per_name() {
        let (waits, kind) = (Waits::new(3, 2), Some(Kind::Event));
        let (first, _second) = (waits.enter(kind, "a").unwrap(), waits.enter(kind, "a").unwrap());
        assert_eq!(waits.enter(kind, "a").unwrap_err().status, 429);
        let _third = waits.enter(Some(Kind::Watchdog), "a").unwrap();
        assert_eq!(waits.enter(None, "").unwrap_err().status, 503);
        assert_eq!(waits.now(), 3);
        drop(first);
        assert!(waits.enter(kind, "a").is_ok());
    }

    #[test]
    fn names_are_forgotten() {
        let (waits, kind) = (Waits::new(10, 10), Some(Kind::Event));
        drop((waits.enter(kind, "a").unwrap(), waits.enter(kind, "a").unwrap()));
        assert_eq!(waits.now(), 0);
        assert!(waits.names.iter().all(|names| names.lock().unwrap().is_empty()));
    }
}
