//! A shard of the embedded store: the keys that hash to it, and their due times.

use crate::{
    capacity::shrunk,
    clock::Timestamp,
    key::Key,
    primitives::{AnyState, Context, Notification, Reply, Request},
    store::FirstKeys,
};
use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// How late the end of a lease may be noticed if it has no waiters.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Shard {
    keys: HashMap<Key, Entry, foldhash::fast::RandomState>,
    /// The due times of keys with waiters. Other keys are found by sweeping.
    alarms: BTreeSet<Alarm>,
    sweep_at: Timestamp,
    /// The highest fence of all forgotten keys.
    fence_floor: u64,
    /// The latest time that a limiter has seen. Their coarse clock may go back by microseconds between threads.
    limiters_at: Timestamp,
}

impl Default for Shard {
    fn default() -> Self {
        let keys = HashMap::default();
        Self {
            keys,
            alarms: BTreeSet::new(),
            sweep_at: Timestamp::NEVER,
            fence_floor: 0,
            limiters_at: Timestamp::default(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    state: AnyState,
    alarm: Option<Timestamp>,
}

impl Entry {
    /// Returns whether the entry stays, and an alarm or sweep covers its due time.
    fn is_scheduled(&self, sweep_at: Timestamp, now: Timestamp) -> bool {
        if self.state.is_idle() {
            return false;
        }
        if !self.state.has_waiters() && sweep_at <= now + SWEEP_EVERY {
            return true;
        }
        let kept_from = if self.state.has_waiters() { self.alarm } else { Some(sweep_at) };
        self.state.next_tick().is_none_or(|due| kept_from.is_some_and(|kept| kept <= due))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Alarm {
    at: Timestamp,
    key: Key,
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.key.as_str()).cmp(&(other.at, other.key.as_str()))
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Adds the keys with state to a page, after a sweep.
    pub(super) fn list(
        &mut self,
        prefix: &str,
        now: Timestamp,
        first: &mut FirstKeys<'_>,
        notifications: &mut Vec<Notification>,
    ) {
        self.sweep(now, notifications);
        for key in self.keys.keys().filter(|key| key.as_str().starts_with(prefix)) {
            if first.takes(key.as_str()) {
                first.add(key.clone());
            }
        }
    }

    pub(super) fn users(&self) -> usize {
        self.keys.values().map(|entry| entry.state.users()).sum()
    }

    pub(super) fn next_due(&self) -> Timestamp {
        self.alarms.first().map_or(self.sweep_at, |alarm| alarm.at.min(self.sweep_at))
    }

    pub(super) fn step(
        &mut self,
        key: &Key,
        request: &Request,
        now: Timestamp,
        notifications: &mut Vec<Notification>,
    ) -> Reply {
        let now = self.in_order(request, now);
        if let Some(entry) = self.keys.get_mut(key) {
            let reply = entry.state.step(request, &mut Context::new(key, now, notifications));
            if !entry.is_scheduled(self.sweep_at, now) {
                self.schedule(key, now);
            }
            if !matches!(reply, Reply::WrongKind) || !self.is_over(key, now, notifications) {
                return reply;
            }
        }
        let Some(mut state) = AnyState::for_request(request) else { return Reply::Unknown };
        state.raise_fence(self.fence_floor);
        let reply = state.step(request, &mut Context::new(key, now, notifications));
        if state.is_idle() {
            self.fence_floor = self.fence_floor.max(state.last_fence());
        } else {
            self.keys.insert(key.clone(), Entry { state, alarm: None });
            self.schedule(key, now);
        }
        reply
    }

    /// Returns whether `key` has no state any more, after applying what is due for it.
    #[cold]
    fn is_over(&mut self, key: &Key, now: Timestamp, notifications: &mut Vec<Notification>) -> bool {
        self.limiters_at = self.limiters_at.max(now);
        if let Some(entry) = self.keys.get_mut(key) {
            entry.state.tick(&mut Context::new(key, now, notifications));
            self.schedule(key, now);
        }
        !self.keys.contains_key(key)
    }

    fn in_order(&mut self, request: &Request, now: Timestamp) -> Timestamp {
        if !matches!(request, Request::RateLimiter(_)) {
            return now;
        }
        self.limiters_at = self.limiters_at.max(now);
        self.limiters_at
    }

    pub(super) fn tick(&mut self, now: Timestamp, notifications: &mut Vec<Notification>) {
        while self.alarms.first().is_some_and(|alarm| alarm.at <= now) {
            let Some(Alarm { key, .. }) = self.alarms.pop_first() else { break };
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.alarm = None;
                entry.state.tick(&mut Context::new(&key, now, notifications));
                self.schedule(&key, now);
            }
        }
        if self.sweep_at <= now {
            self.sweep(now, notifications);
        }
    }

    fn sweep(&mut self, now: Timestamp, notifications: &mut Vec<Notification>) {
        self.limiters_at = self.limiters_at.max(now);
        let over = |entry: &Entry| entry.state.next_tick().is_some_and(|due| due <= now);
        let due: Vec<Key> =
            self.keys.iter().filter(|(_, entry)| over(entry)).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.state.tick(&mut Context::new(&key, now, notifications));
                self.schedule(&key, now);
            }
        }
        let next = self.keys.values().filter_map(|entry| entry.state.next_tick()).min();
        self.sweep_at = next.map_or(Timestamp::NEVER, |next| next.max(now + SWEEP_EVERY));
    }

    /// Forgets `key` if it is idle, or schedules its due time. To be called after each change.
    fn schedule(&mut self, key: &Key, now: Timestamp) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        if entry.state.is_idle() {
            let (alarm, last_fence) = (entry.alarm, entry.state.last_fence());
            self.fence_floor = self.fence_floor.max(last_fence);
            self.keys.remove(key);
            self.cancel(key, alarm);
            if let Some(capacity) = shrunk(self.keys.len(), self.keys.capacity()) {
                self.keys.shrink_to(capacity);
            }
            return;
        }
        let Some(due) = entry.state.next_tick() else { return };
        if !entry.state.has_waiters() {
            self.sweep_at = self.sweep_at.min(due.max(now + SWEEP_EVERY));
        } else if entry.alarm.is_none_or(|alarm| due < alarm) {
            let old = entry.alarm.replace(due);
            self.cancel(key, old);
            self.alarms.insert(Alarm { at: due, key: key.clone() });
        }
    }

    fn cancel(&mut self, key: &Key, alarm: Option<Timestamp>) {
        if let Some(at) = alarm {
            self.alarms.remove(&Alarm { at, key: key.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::Id,
        primitives::{
            HoldKind, Wait,
            rate_limiter::{self, Quota},
            rwlock::Mode,
        },
    };

    /// The clocks of two threads may differ by microseconds permanently.
    #[test]
    fn alternating_time_adds_no_tokens() {
        let (mut shard, key) = (Shard::default(), Key::new("limited"));
        let quota = Quota::gcra(1_000_000, Duration::from_secs(1)).burst(5);
        let take = rate_limiter::Request::Take {
            id: Id::from(0),
            tokens: 1,
            quota,
            patience: Duration::ZERO,
            wait: None,
        };
        let mut is_admitted = |micros: u64| {
            let now = Timestamp::from_micros(1_000_000_000 + micros);
            let reply = shard.step(&key, &Request::RateLimiter(take.clone()), now, &mut Vec::new());
            matches!(reply, Reply::Admitted { .. })
        };
        let admitted = (0..10_000).filter(|call| is_admitted(2 * (call % 2))).count();
        assert_eq!(admitted, 1 + 5, "one token was refilled in two microseconds");
    }

    /// The sweep may notice the end of the hold a second later.
    #[test]
    fn expired_key_serves_another_kind() {
        let (mut shard, key, mut notifications) = (Shard::default(), Key::new("one"), Vec::new());
        let (lease, mut now) = (Duration::from_millis(100), Timestamp::from_micros(1_000_000_000));
        let (mut last, read) = (0, HoldKind::ReadWrite(Mode::Read));
        for (kind, other) in [(HoldKind::Lock, read), (read, HoldKind::Lock), (HoldKind::Lock, read)] {
            let mut ask = |kind: HoldKind, now| {
                shard.step(&key, &kind.acquire(Id::random(), lease, None), now, &mut notifications)
            };
            let reply = ask(kind, now);
            let Reply::Granted { fence } = reply else { panic!("{kind:?}: {reply:?}") };
            assert!(fence > std::mem::replace(&mut last, fence), "{fence}");
            assert_eq!(ask(other, now + lease - Duration::from_micros(1)), Reply::WrongKind);
            now = now + lease;
        }
        assert_eq!(shard.len(), 1);
    }

    /// The sweep's time may be ahead of a limiter's by microseconds.
    #[test]
    fn sweep_moves_no_reservation() {
        let (mut shard, key, mut notifications) = (Shard::default(), Key::new("limited"), Vec::new());
        let (second, start) = (Duration::from_secs(1), Timestamp::from_micros(1_000_000_000));
        let take = |id: u128| {
            Request::RateLimiter(rate_limiter::Request::Take {
                id: Id::from(id),
                tokens: 1,
                quota: Quota::fixed_window(1, second),
                patience: Duration::MAX,
                wait: Some(Wait { live: None, fair: true }),
            })
        };
        for id in 1..=3 {
            shard.step(&key, &take(id), start, &mut notifications);
        }
        shard.tick(start + second, &mut notifications);
        let late = start + second - Duration::from_micros(1);
        let reply = shard.step(&key, &take(4), late, &mut notifications);
        assert!(matches!(reply, Reply::Admitted { wait, .. } if wait == 2 * second), "{reply:?}");
        assert_eq!(notifications, []);
    }
}
