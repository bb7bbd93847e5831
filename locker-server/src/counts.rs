//! What this server has counted at each name in use.

use crate::{
    api::{
        Action, Answer, Params, Resource,
        stats::{Counted, StatsBody},
    },
    name_registry::NameRegistry,
    sync::lock,
};
use locker_runtime::{ErrorKind, Mode, Result, primitives::inspection::Inspection};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// The fewest names at which those are forgotten that are no longer in use.
const FIRST_PURGE: usize = 1024;

/// The counts of all names. Names that the registry does not know are forgotten when their number has doubled.
#[derive(Debug)]
pub(crate) struct Counts {
    by_name: [Mutex<HashMap<Box<str>, Arc<NameCounts>>>; Resource::ALL.len()],
    count: AtomicUsize,
    purge_at: AtomicUsize,
}

/// The counts of one name.
#[derive(Debug)]
struct NameCounts {
    created: SystemTime,
    /// Grants, waits that ended in time, and additions.
    passed: AtomicU64,
    /// Calls under a key that held already, and those of a record that has succeeded.
    again: AtomicU64,
    released: AtomicU64,
    /// Releases under a key that held nothing.
    released_late: AtomicU64,
    timed_out: AtomicU64,
    /// In milliseconds.
    wait_time: AtomicU64,
    /// Sends, count-downs and kicks.
    triggered: AtomicU64,
    resets: AtomicU64,
    most_held: AtomicU64,
    highest_fence: AtomicU64,
    /// In seconds since 1970; 0 if there was none.
    last_kick: AtomicU64,
}

/// One call that is counted when it ends. A call that is dropped does not count.
#[derive(Debug)]
pub(crate) struct Counting {
    counts: Arc<NameCounts>,
    started: Instant,
    /// The highest fence before the call. A hold that was granted by the call has a higher one.
    fence_before: u64,
}

impl Counts {
    pub(crate) fn new() -> Self {
        let by_name = std::array::from_fn(|_| Mutex::default());
        Self { by_name, count: AtomicUsize::new(0), purge_at: AtomicUsize::new(FIRST_PURGE) }
    }

    /// Begins to count a call of an action. `names` knows the names that are in use. Returns `None` if a call that uses
    /// no name is the first one here.
    pub(crate) fn begin(&self, action: Action, name: &str, names: &NameRegistry) -> Option<Counting> {
        let resource = action.row().resource;
        let known = self.of(resource).get(name).cloned();
        let counts = match known {
            Some(counts) => counts,
            None if action.uses_name() => self.add(resource, name, names),
            None => return None,
        };
        let fence_before = counts.highest_fence.load(Relaxed);
        Some(Counting { counts, started: Instant::now(), fence_before })
    }

    fn add(&self, resource: Resource, name: &str, names: &NameRegistry) -> Arc<NameCounts> {
        if self.count.load(Relaxed) >= self.purge_at.load(Relaxed) {
            self.purge(names);
        }
        let mut by_name = self.of(resource);
        let counts = by_name.entry(name.into()).or_insert_with(|| {
            self.count.fetch_add(1, Relaxed);
            Arc::new(NameCounts::new())
        });
        counts.clone()
    }

    fn purge(&self, names: &NameRegistry) {
        for resource in Resource::ALL {
            let mut by_name = self.of(resource);
            let before = by_name.len();
            by_name.retain(|name, _| names.knows(resource, name));
            self.count.fetch_sub(before - by_name.len(), Relaxed);
            by_name.shrink_to_fit();
        }
        self.purge_at.store(FIRST_PURGE.max(2 * self.count.load(Relaxed)), Relaxed);
    }

    /// Forgets a name that was deleted. Returns whether it was known.
    pub(crate) fn forget(&self, resource: Resource, name: &str) -> bool {
        let known = self.of(resource).remove(name).is_some();
        self.count.fetch_sub(usize::from(known), Relaxed);
        known
    }

    /// Returns the counts of a name and its state as a body, or `None` if this server does not know the name.
    pub(crate) fn body(
        &self,
        resource: Resource,
        name: &str,
        state: Option<&Inspection>,
    ) -> Option<StatsBody> {
        let counts = self.of(resource).get(name).cloned()?;
        Some(counts.body(resource, state))
    }

    fn of(&self, resource: Resource) -> MutexGuard<'_, HashMap<Box<str>, Arc<NameCounts>>> {
        lock(&self.by_name[resource as usize])
    }
}

impl Counting {
    /// Returns the time since the start of the call.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts the call with its result.
    pub(crate) fn end(self, action: Action, params: &Params, result: &Result<Answer>) {
        let Self { counts, started, fence_before } = self;
        let add = |counter: &AtomicU64| {
            counter.fetch_add(1, Relaxed);
        };
        let answer = match result {
            Ok(answer) if answer.status < 300 => answer,
            Ok(answer) if answer.status == 409 && action.releases_hold() => return add(&counts.released_late),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Limited) => {
                return add(&counts.timed_out);
            }
            _ => return,
        };
        match action {
            Action::ReadCounter => {}
            Action::ResetCounter => add(&counts.resets),
            Action::SendEvent | Action::CountDownLatch => add(&counts.triggered),
            Action::KickWatchdog => {
                add(&counts.triggered);
                counts.last_kick.store(seconds(SystemTime::now()), Relaxed);
            }
            _ if action.releases_hold() => add(&counts.released),
            _ if action.renews_hold() => {}
            _ if answer.is_replay_of(action) => add(&counts.again),
            _ if answer.fence.is_some_and(|fence| fence <= fence_before) => add(&counts.again),
            _ => {
                add(&counts.passed);
                counts.wait_time.fetch_add(millis(started.elapsed()), Relaxed);
                counts.hold(answer.fence, most_held(action, params));
            }
        }
    }
}

impl NameCounts {
    fn new() -> Self {
        Self {
            created: SystemTime::now(),
            passed: AtomicU64::new(0),
            again: AtomicU64::new(0),
            released: AtomicU64::new(0),
            released_late: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            wait_time: AtomicU64::new(0),
            triggered: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            most_held: AtomicU64::new(0),
            highest_fence: AtomicU64::new(0),
            last_kick: AtomicU64::new(0),
        }
    }

    /// Notes a hold beside which there are fewer than `most`. Holds that have expired count until a smaller number
    /// shows that they have.
    fn hold(&self, fence: Option<u64>, most: u64) {
        let Some(fence) = fence else { return };
        self.highest_fence.fetch_max(fence, Relaxed);
        let held = self.passed.load(Relaxed).saturating_sub(self.released.load(Relaxed));
        self.most_held.fetch_max(held.min(most), Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "an average needs no more")]
    fn body(&self, resource: Resource, state: Option<&Inspection>) -> StatsBody {
        let is = |kinds: &[Counted]| kinds.contains(&resource.counted());
        let some = |counter: &AtomicU64, kinds: &[Counted]| is(kinds).then(|| counter.load(Relaxed));
        let (passed, wait_time) = (self.passed.load(Relaxed), self.wait_time.load(Relaxed));
        let (released, late) = (self.released.load(Relaxed), self.released_late.load(Relaxed));
        let held = state.map_or(0, |state| state.holders.len() as u64);
        let waits = !is(&[Counted::Watchdog, Counted::Counter]);
        StatsBody {
            acquired: some(&self.passed, &[Counted::Holds, Counted::Tokens]),
            reacquired: some(&self.again, &[Counted::Holds]),
            released: is(&[Counted::Holds]).then_some(released + late),
            expired: is(&[Counted::Holds]).then(|| passed.saturating_sub(released + held)),
            max_ever_held: some(&self.most_held, &[Counted::Holds]),
            waiting: is(&[Counted::Barrier]).then(|| state.map_or(0, |state| state.waiting)),
            size: is(&[Counted::Barrier]).then(|| state.and_then(|state| state.size).unwrap_or(0)),
            waited: some(&self.passed, &[Counted::Signals, Counted::Watchdog]),
            total_waited: some(&self.passed, &[Counted::Barrier]),
            timed_out: (!is(&[Counted::Counter])).then(|| self.timed_out.load(Relaxed)),
            triggered: match resource.counted() {
                Counted::Signals => Some(self.triggered.load(Relaxed)),
                Counted::Barrier => Some(u64::from(state.and_then(|state| state.fired) == Some(true))),
                _ => None,
            },
            kicks: some(&self.triggered, &[Counted::Watchdog]),
            last_kick: some(&self.last_kick, &[Counted::Watchdog]).map(|last| match last {
                0 => String::new(),
                last => rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(last)),
            }),
            value: is(&[Counted::Counter]).then(|| state.and_then(|state| state.value).unwrap_or(0)),
            increments: some(&self.passed, &[Counted::Counter]),
            resets: some(&self.resets, &[Counted::Counter]),
            total_wait_time: waits.then_some(wait_time),
            average_wait_time: waits.then(|| wait_time as f64 / passed.max(1) as f64),
            created_at: rfc3339(self.created),
        }
    }
}

/// Returns how many may hold when this call does.
fn most_held(action: Action, params: &Params) -> u64 {
    match action {
        Action::AcquireSlot => params.size,
        Action::AcquireSide if params.mode == Mode::Read => u64::MAX,
        _ => 1,
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_runtime::Locker;

    #[tokio::test]
    async fn counts_of_unknown_names_are_forgotten() {
        let names = NameRegistry::new(Locker::memory().admin(), usize::MAX);
        let counts = Counts::new();
        assert_eq!(names.admit(Resource::Event, "kept", Duration::ZERO).await, None);
        for number in 0..5 * FIRST_PURGE {
            counts.begin(Action::WaitEvent, "kept", &names).unwrap();
            counts.begin(Action::SendEvent, &number.to_string(), &names).unwrap();
            assert!(counts.of(Resource::Event).len() <= FIRST_PURGE);
        }
        assert!(counts.body(Resource::Event, "kept", None).is_some());
        assert!(counts.body(Resource::Event, "0", None).is_none());
        assert_eq!(counts.of(Resource::Event).len(), counts.count.load(Relaxed));
        assert!(counts.forget(Resource::Event, "kept") && !counts.forget(Resource::Event, "kept"));
        assert!(counts.body(Resource::Event, "kept", None).is_none());
        assert!(counts.begin(Action::ReleaseSlot, "never used", &names).is_none());
    }
}
