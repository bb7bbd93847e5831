//! Caps: what is beyond them is answered, never queued in silence.

use crate::calls::{Answer, Kind};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
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

    /// The cap.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Counts one more until [`leave`](Self::leave); `false`: the cap is reached.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.add(1)
    }

    /// Counts so many more until they are [taken off](Self::take_off); `false`: there is no room for them.
    #[must_use]
    pub fn add(&self, number: usize) -> bool {
        let more = |now: usize| now.checked_add(number).filter(|now| *now <= self.most);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one more until what is returned is dropped; `None`: the cap is reached.
    #[must_use]
    pub fn place(&self) -> Option<Place<'_>> {
        self.enter().then(|| Place(self))
    }

    /// Counts one less.
    pub fn leave(&self) {
        self.take_off(1);
    }

    /// Counts so many less.
    pub fn take_off(&self, number: usize) {
        self.now.fetch_sub(number, Ordering::Relaxed);
    }
}

/// One that a [`Gauge`] counts.
#[derive(Debug)]
pub struct Place<'a>(&'a Gauge);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What happens again and again is to be told now and then, each on its own.
#[derive(Debug, Default)]
pub struct Seldom([Mutex<Option<Instant>>; 4]);

/// What happens again and again.
#[derive(Clone, Copy, Debug)]
pub enum Often {
    /// An HTTP connection is one too many.
    HttpRefused,
    /// A ZeroMQ connection is.
    ZmqRefused,
    /// A connection cannot be accepted.
    NotAccepted,
    /// The store does not answer.
    NoStore,
}

impl Seldom {
    const APART: Duration = Duration::from_secs(10);

    /// Whether `thing` is to be told again.
    #[must_use]
    pub fn is_due(&self, thing: Often) -> bool {
        let mut last = self.0[thing as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= Self::APART);
        if due {
            *last = Some(Instant::now());
        }
        due
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

/// A place to wait at. A wait there counts from [`enter`](Self::enter) until this is dropped.
#[derive(Debug)]
pub struct Waiting<'a> {
    waits: &'a Waits,
    kind: Option<Kind>,
    name: &'a str,
    counts: bool,
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

    /// A place to wait at. Nobody waits there yet.
    #[must_use]
    pub fn at<'a>(&'a self, (kind, name): (Option<Kind>, &'a str)) -> Waiting<'a> {
        Waiting { waits: self, kind, name, counts: false }
    }

    fn of(&self, kind: Option<Kind>) -> MutexGuard<'_, HashMap<String, usize>> {
        let index = kind.map_or(Kind::ALL.len(), |kind| kind as usize);
        self.names[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    /// Counts a wait here.
    ///
    /// # Errors
    /// 503 when too many wait in all, 429 when too many wait at this name.
    pub fn enter(&mut self) -> Result<(), Answer> {
        let Waits { all, most_per_name, .. } = self.waits;
        if !all.enter() {
            return Err(Answer::unavailable(format!("{} wait already, as many as may", all.most)));
        }
        self.counts = true;
        let mut names = self.waits.of(self.kind);
        let count = match names.entry(self.name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(0),
        };
        *count += 1;
        if *count > *most_per_name {
            return Err(Answer::too_many(format!("{most_per_name} wait at this name, as many as may")));
        }
        Ok(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
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

/// Caps on two kinds of connections that fit together into `files`: to each half of them, and what the other leaves.
#[must_use]
pub fn share(files: usize, http: usize, zmq: usize) -> (usize, usize) {
    let most = |wanted: usize, other: usize| wanted.min(files.saturating_sub(other).max(files / 2)).max(1);
    (most(http, zmq), most(zmq, http))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shared() {
        assert_eq!(share(100, 60, 40), (60, 40));
        assert_eq!(share(100, 65_536, 3), (97, 3));
        assert_eq!(share(100, 65_536, 4_096), (50, 50));
        assert_eq!(share(1, 65_536, 4_096), (1, 1), "each gets one");
        assert_eq!(share(usize::MAX, usize::MAX, 1), (usize::MAX - 1, 1));
    }

    #[test]
    fn what_happens_often_is_told_seldom() {
        let (seldom, one, other) = (Seldom::default(), Often::HttpRefused, Often::NoStore);
        assert_eq!([one, other, one, other].map(|thing| seldom.is_due(thing)), [true, true, false, false]);
    }

    #[test]
    fn a_place_is_given_back() {
        let gauge = Gauge::new(1);
        let place = gauge.place();
        assert!(place.is_some() && gauge.place().is_none());
        drop(place);
        assert!(gauge.place().is_some());
    }

    fn enter<'a>(waits: &'a Waits, place: (Option<Kind>, &'a str)) -> Result<Waiting<'a>, Answer> {
        let mut waiting = waits.at(place);
        waiting.enter().map(|()| waiting)
    }

    #[test]
    fn waits_are_capped_in_all_and_per_name() {
        let (waits, kind) = (Waits::new(3, 2), Some(Kind::Event));
        let (first, _second) = (enter(&waits, (kind, "a")).unwrap(), enter(&waits, (kind, "a")).unwrap());
        assert_eq!(enter(&waits, (kind, "a")).unwrap_err().status, 429);
        let _third = enter(&waits, (Some(Kind::Watchdog), "a")).unwrap();
        assert_eq!(enter(&waits, (None, "")).unwrap_err().status, 503);
        assert_eq!(waits.now(), 3);
        drop(first);
        assert!(enter(&waits, (kind, "a")).is_ok());
    }

    #[test]
    fn names_are_forgotten() {
        let (waits, kind) = (Waits::new(10, 10), Some(Kind::Event));
        drop((enter(&waits, (kind, "a")).unwrap(), enter(&waits, (kind, "a")).unwrap()));
        assert_eq!(waits.now(), 0);
        assert!(waits.names.iter().all(|names| names.lock().unwrap().is_empty()));
    }
}
