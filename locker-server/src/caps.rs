//! Caps on connections, calls and waits. A request beyond a cap is refused with an answer, never queued silently.

use crate::{
    api::{Answer, Resource},
    sync::lock,
};
use locker_runtime::{Error, ErrorKind};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A counter with an upper limit.
#[derive(Debug)]
pub(crate) struct Cap {
    count: AtomicUsize,
    limit: usize,
}

impl Cap {
    pub(crate) fn new(limit: usize) -> Self {
        Self { count: AtomicUsize::new(0), limit }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds one until [`leave`](Self::leave). Returns `false` if the limit is reached.
    #[must_use]
    pub(crate) fn try_enter(&self) -> bool {
        self.try_add(1)
    }

    /// Adds `number` until [`subtract`](Self::subtract). Returns `false` if that would exceed the limit.
    #[must_use]
    pub(crate) fn try_add(&self, number: usize) -> bool {
        let more = |count: usize| count.checked_add(number).filter(|count| *count <= self.limit);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Adds one until the permit is dropped. Returns `None` if the limit is reached.
    #[must_use]
    pub(crate) fn permit(&self) -> Option<Permit<'_>> {
        self.permits(1)
    }

    /// Adds `number` until the permit is dropped. Returns `None` if that would exceed the limit.
    #[must_use]
    pub(crate) fn permits(&self, number: usize) -> Option<Permit<'_>> {
        self.try_add(number).then(|| Permit { cap: self, number })
    }

    pub(crate) fn leave(&self) {
        self.subtract(1);
    }

    pub(crate) fn subtract(&self, number: usize) {
        self.count.fetch_sub(number, Ordering::Relaxed);
    }
}

/// Units of a [`Cap`], returned on drop.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    cap: &'a Cap,
    number: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.cap.subtract(self.number);
    }
}

/// The cap on the holds of one name. It applies to each action that takes one of several places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldCap(u64);

impl HoldCap {
    pub(crate) fn new(limit: u64) -> Self {
        Self(limit)
    }

    /// Returns the size and the wait to request from the store. Beyond the cap a call must not wait: it would wait for
    /// a place that its size promises and the cap refuses.
    pub(crate) fn limit(self, size: u64, maxwait: Duration) -> (u64, Duration) {
        if size > self.0 { (self.0, Duration::ZERO) } else { (size, maxwait) }
    }

    /// Returns 429 if the cap, and not the size that the client chose, made the call fail.
    pub(crate) fn refusal(self, size: u64, error: &Error) -> Option<Answer> {
        let refused = size > self.0 && error.kind() == ErrorKind::TimedOut;
        refused.then(|| {
            Answer::too_many(format!("too many holds of this name: the limit is {} (--max-holds)", self.0))
        })
    }
}

/// The queue in which a call waits: a resource and a name, or no resource for the time slots of ZeroMQ.
pub(crate) type Queue<'a> = (Option<Resource>, &'a str);

/// The caps on waiting calls: in total and per name.
#[derive(Debug)]
pub(crate) struct WaitCaps {
    total: Cap,
    /// By resource and name: when the waits began. The last map is for calls without a resource.
    names: [Mutex<HashMap<String, Starts>>; Resource::ALL.len() + 1],
    limit_per_name: usize,
    created: Instant,
}

/// The starts of the waits of one name in milliseconds since the start of the server, earliest first.
type Starts = VecDeque<u64>;

/// A possible wait in one queue. It counts from [`enter`](Self::enter) until it is dropped.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    caps: &'a WaitCaps,
    resource: Option<Resource>,
    name: &'a str,
    /// Its start if it counts.
    started: Option<u64>,
}

impl WaitCaps {
    pub(crate) fn new(limit: usize, limit_per_name: usize) -> Self {
        let names = std::array::from_fn(|_| Mutex::default());
        Self { total: Cap::new(limit), names, limit_per_name, created: Instant::now() }
    }

    /// Returns the number of waiting calls.
    pub(crate) fn count(&self) -> usize {
        self.total.count()
    }

    /// Returns a wait in `queue` that does not count yet.
    pub(crate) fn wait_in<'a>(&'a self, (resource, name): Queue<'a>) -> Wait<'a> {
        Wait { caps: self, resource, name, started: None }
    }

    /// Returns since when the first of the waits of a name waits.
    pub(crate) fn longest(&self, resource: Resource, name: &str) -> Option<Instant> {
        let first = *self.names_of(Some(resource)).get(name)?.front()?;
        Some(self.created + Duration::from_millis(first))
    }

    fn names_of(&self, resource: Option<Resource>) -> MutexGuard<'_, HashMap<String, Starts>> {
        lock(&self.names[resource.map_or(Resource::ALL.len(), |resource| resource as usize)])
    }
}

impl Wait<'_> {
    /// Counts this wait.
    ///
    /// # Errors
    /// 503 if too many calls wait in total, 429 if too many calls wait for this name.
    pub(crate) fn enter(&mut self) -> Result<(), Answer> {
        let WaitCaps { total, limit_per_name, created, .. } = self.caps;
        if !total.try_enter() {
            return Err(Answer::unavailable(format!(
                "too many waiting calls: the limit is {} (--max-waits)",
                total.limit
            )));
        }
        let mut names = self.caps.names_of(self.resource);
        let starts = names.entry(self.name.to_owned()).or_default();
        // Read under the lock, so that they are in order.
        let started = u64::try_from(created.elapsed().as_millis()).unwrap_or(u64::MAX);
        starts.push_back(started);
        self.started = Some(started);
        if starts.len() > *limit_per_name {
            return Err(Answer::too_many(format!(
                "too many calls wait for this name: the limit is {limit_per_name} (--max-waits-per-name)"
            )));
        }
        Ok(())
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(started) = self.started else { return };
        self.caps.total.leave();
        let mut names = self.caps.names_of(self.resource);
        if let Some(starts) = names.get_mut(self.name) {
            // Waits that began in the same millisecond are alike.
            if let Ok(at) = starts.binary_search(&started) {
                starts.remove(at);
            }
            if starts.is_empty() {
                names.remove(self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_is_returned() {
        let cap = Cap::new(1);
        let permit = cap.permit();
        assert!(permit.is_some() && cap.permit().is_none());
        drop(permit);
        assert!(cap.permit().is_some());
        let (cap, two) = (Cap::new(3), 2);
        let permits = cap.permits(two);
        assert!(permits.is_some() && cap.permits(two).is_none() && cap.count() == 2);
    }

    fn enter<'a>(caps: &'a WaitCaps, queue: Queue<'a>) -> Result<Wait<'a>, Answer> {
        let mut wait = caps.wait_in(queue);
        wait.enter().map(|()| wait)
    }

    #[test]
    fn waits_are_capped_in_total_and_per_name() {
        let (caps, event) = (WaitCaps::new(3, 2), Some(Resource::Event));
        let (first, _second) = (enter(&caps, (event, "a")).unwrap(), enter(&caps, (event, "a")).unwrap());
        assert_eq!(enter(&caps, (event, "a")).unwrap_err().status, 429);
        let _third = enter(&caps, (Some(Resource::Watchdog), "a")).unwrap();
        assert_eq!(enter(&caps, (None, "")).unwrap_err().status, 503);
        assert_eq!(caps.count(), 3);
        drop(first);
        assert!(enter(&caps, (event, "a")).is_ok());
    }

    #[test]
    fn longest_wait_is_that_of_the_first_waiter() {
        let (caps, event) = (WaitCaps::new(10, 10), Some(Resource::Event));
        let begin = || {
            let wait = enter(&caps, (event, "a")).unwrap();
            let started = caps.names_of(event)["a"].back().copied();
            // Under test: waits that began at different times.
            std::thread::sleep(Duration::from_millis(2));
            (wait, started.map(|started| caps.created + Duration::from_millis(started)))
        };
        let ((first, since), (second, later)) = (begin(), begin());
        assert!(since < later && caps.longest(Resource::Event, "a") == since);
        drop(first);
        assert_eq!(caps.longest(Resource::Event, "a"), later);
        drop(second);
        assert_eq!(caps.longest(Resource::Event, "a"), None);
    }

    #[test]
    fn names_without_waits_are_forgotten() {
        let (caps, event) = (WaitCaps::new(10, 10), Some(Resource::Event));
        drop((enter(&caps, (event, "a")).unwrap(), enter(&caps, (event, "a")).unwrap()));
        assert_eq!(caps.count(), 0);
        assert!(caps.names.iter().all(|names| names.lock().unwrap().is_empty()));
    }
}
