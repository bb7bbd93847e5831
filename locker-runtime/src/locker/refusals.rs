//! Cached refusals: calls that a store across a network would refuse again.

use locker_core::{
    clock::Timestamp,
    key::Key,
    primitives::rate_limiter::Quota,
    sync::{Mutex, lock},
};
use std::{collections::HashMap, time::Duration};

/// How long a refusal is cached at most. A change by another process is noticed within this time.
const LONGEST: Duration = Duration::from_millis(50);

/// How many refusals are cached before expired ones are removed.
const FEW: usize = 64;

/// The latest refusal of each key.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    by_key: HashMap<Key, Refusal, foldhash::fast::RandomState>,
    sweep_at: usize,
}

/// A refusal, as the caller gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    /// When to come back. `None` if no tokens come before the quota changes.
    pub(crate) retry_after: Option<Duration>,
}

/// A refusal by the store. No caller was waiting, so none can return tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) quota: Quota,
    pub(crate) tokens: u64,
    /// Just before the request was sent. The refusal ends by this time, so that it is over before the store admits.
    pub(crate) sent: Timestamp,
    /// When the reply arrived. `retry_after` counts from here.
    pub(crate) received: Timestamp,
    pub(crate) limited: Limited,
}

impl Refusal {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.sent + self.limited.retry_after.map_or(LONGEST, |after| after.min(LONGEST))
    }

    /// Returns the refusal of a caller that waits for `patience` at most, or `None` if the store may admit it.
    fn of(&self, tokens: u64, patience: Duration, now: Timestamp) -> Option<Limited> {
        let more = tokens.checked_sub(self.tokens)?;
        let Some(retry_after) = self.limited.retry_after else {
            return patience.is_zero().then_some(self.limited);
        };
        let wait = retry_after.saturating_add(self.quota.time_of(more));
        let left = (self.received + wait).since(now);
        (now + patience < self.sent + wait).then_some(Limited { retry_after: Some(left) })
    }
}

impl Refusals {
    /// Returns the refusal of a call without a request to the store. A call with another quota removes the refusal of
    /// its key.
    pub(crate) fn find(&self, key: &Key, quota: Quota, tokens: u64, patience: Duration) -> Option<Limited> {
        let mut latest = lock(&self.0);
        let (refusal, now) = (latest.by_key.get(key)?, Timestamp::now());
        if refusal.quota == quota && !refusal.is_over(now) {
            return refusal.of(tokens, patience, now);
        }
        latest.by_key.remove(key);
        None
    }

    /// Caches a refusal until it is over. Of the cached ones, half and 64 may be over.
    pub(crate) fn keep(&self, key: &Key, refusal: Refusal) {
        let (mut latest, now) = (lock(&self.0), refusal.received);
        if latest.by_key.len() >= latest.sweep_at.max(FEW) {
            latest.by_key.retain(|_, old| !old.is_over(now));
            latest.sweep_at = latest.by_key.len() * 2;
        }
        latest.by_key.insert(key.clone(), refusal);
    }

    /// Removes the refusal of a deleted key.
    pub(crate) fn forget(&self, key: &Key) {
        lock(&self.0).by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLI: Duration = Duration::from_millis(1);
    const SENT: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn refusal(quota: Quota, retry_after: Option<Duration>) -> Refusal {
        Refusal { quota, tokens: 2, sent: SENT, received: SENT + 3 * MILLI, limited: Limited { retry_after } }
    }

    #[test]
    fn refusal_ends_before_tokens_or_after_50_ms() {
        let quota = Quota::fixed_window(5, SECOND);
        for (retry_after, end) in
            [(Some(SECOND), 50), (Some(50 * MILLI), 50), (Some(7 * MILLI), 7), (None, 50)]
        {
            let refusal = refusal(quota, retry_after);
            assert!(!refusal.is_over(SENT + end * MILLI - Duration::from_micros(1)), "{retry_after:?}");
            assert!(refusal.is_over(SENT + end * MILLI), "{retry_after:?}");
        }
    }

    #[test]
    fn refused_caller_is_told_the_time_left() {
        let now = SENT + 10 * MILLI;
        let told = |quota, tokens| {
            refusal(quota, Some(SECOND)).of(tokens, Duration::ZERO, now).map(|limited| limited.retry_after)
        };
        let left = 993 * MILLI;
        let (window, gcra) = (Quota::fixed_window(5, SECOND), Quota::gcra(5, SECOND));
        assert_eq!([1, 2, 4].map(|tokens| told(window, tokens)), [None, Some(Some(left)), Some(Some(left))]);
        assert_eq!(told(gcra, 2), Some(Some(left)));
        assert_eq!(told(gcra, 4), Some(Some(left + 2 * SECOND / 5)), "two tokens more");
    }

    #[test]
    fn patient_caller_is_refused_only_if_tokens_come_too_late() {
        let now = SENT + 10 * MILLI;
        let quota = Quota::gcra(5, SECOND);
        let refused = |retry_after, patience| refusal(quota, retry_after).of(2, patience, now).is_some();
        assert!(refused(Some(SECOND), Duration::from_micros(989_999)));
        assert!(!refused(Some(SECOND), 990 * MILLI));
        assert!(!refused(Some(SECOND), Duration::MAX));
        assert!(refused(None, Duration::ZERO));
        assert!(!refused(None, MILLI), "a caller is parked at size 0");
    }

    #[test]
    fn another_quota_ends_a_refusal() {
        let (refusals, key) = (Refusals::default(), Key::new("limited"));
        let [small, large] = [2, 5].map(|size| Quota::fixed_window(size, SECOND));
        let now = Timestamp::now();
        let fresh = Refusal { sent: now + SECOND, received: now + SECOND, ..refusal(small, Some(SECOND)) };
        refusals.keep(&key, fresh);
        assert!(refusals.find(&key, small, 2, Duration::ZERO).is_some());
        assert_eq!(refusals.find(&key, large, 2, Duration::ZERO), None);
        assert_eq!(refusals.find(&key, small, 2, Duration::ZERO), None);
        refusals.keep(&key, fresh);
        refusals.forget(&key);
        assert_eq!(refusals.find(&key, small, 2, Duration::ZERO), None);
    }

    #[test]
    fn refusals_that_are_over_do_not_pile_up() {
        let (refusals, quota) = (Refusals::default(), Quota::fixed_window(2, SECOND));
        for number in 0..10_000 {
            let sent = SENT + MILLI * number;
            let refusal = Refusal { sent, received: sent, ..refusal(quota, Some(SECOND)) };
            refusals.keep(&Key::new(&number.to_string()), refusal);
            assert!(lock(&refusals.0).by_key.len() <= 2 * 50 + FEW);
        }
    }
}
