//! Removes values that matter no more: each process those that it was the last to write.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    keys::Place,
    link::{Link, data},
    ops::{Done, Op},
};
use futures_util::future::try_join_all;
use locker_cas::Version;
use locker_core::{
    background,
    clock::Timestamp,
    sync::{Mutex, lock},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// How long a value is kept after it has begun to matter no more. Longer than a process relies on a key to be without a
/// value that it has found to be so.
const KEPT: Duration = Duration::from_secs(60);

/// How often values are removed.
const EVERY: Duration = Duration::from_secs(10);

/// How many values are remembered: others are removed by a sweep.
const REMEMBERED: usize = 100_000;

/// How many values one transaction removes.
const AT_ONCE: usize = 100;

/// The values to remove.
#[derive(Debug)]
pub(super) struct Removal {
    /// How much later than it was decided on a write may arrive.
    margin: Duration,
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Due {
    by_key: HashMap<Arc<str>, (Version, Timestamp)>,
    in_order: BTreeSet<(Timestamp, Arc<str>)>,
}

impl Due {
    fn forget(&mut self, key: &str) {
        if let Some((key, (_, at))) = self.by_key.remove_entry(key) {
            self.in_order.remove(&(at, key));
        }
    }
}

/// Returns how long after a write its value may be removed, if it matters for `lasts`. Clocks may drift apart.
pub(super) fn kept(lasts: Duration) -> Option<Duration> {
    (lasts < Duration::MAX).then(|| lasts.saturating_add(lasts / 500).saturating_add(KEPT))
}

impl Removal {
    pub(super) fn new(margin: Duration) -> Self {
        Self { margin, due: Mutex::default() }
    }

    /// Records a write of this process that has just been answered.
    pub(super) fn note(&self, key: &str, version: Version, lasts: Duration) {
        let mut due = lock(&self.due);
        due.forget(key);
        if let Some(kept) = kept(lasts)
            && due.by_key.len() < REMEMBERED
        {
            let (key, at) = (Arc::<str>::from(key), Timestamp::now() + kept + self.margin);
            due.by_key.insert(Arc::clone(&key), (version, at));
            due.in_order.insert((at, key));
        }
    }

    /// Takes out what is due at `now`.
    fn take(&self, now: Timestamp) -> Vec<(Arc<str>, Version)> {
        let (mut due, mut taken) = (lock(&self.due), Vec::new());
        while due.in_order.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = due.in_order.pop_first() else { break };
            if let Some((version, _)) = due.by_key.remove(&key) {
                taken.push((key, version));
            }
        }
        taken
    }
}

impl Exchange {
    /// Removes values until it is dropped.
    pub(super) async fn keep_removing(&self) {
        loop {
            background::sleep(EVERY).await;
            self.remove_due(Timestamp::now()).await;
        }
    }

    /// Removes what is due at `now`. What fails is left to a sweep.
    pub(super) async fn remove_due(&self, now: Timestamp) {
        let mut by_bucket = BTreeMap::<Arc<str>, Vec<_>>::new();
        for (key, version) in self.removal.take(now) {
            if let Ok(Place { bucket, value }) = self.keys.place(&key) {
                by_bucket.entry(bucket).or_default().push((value, version));
            }
        }
        for (bucket, values) in by_bucket {
            for values in values.chunks(AT_ONCE) {
                drop(self.remove(&bucket, values).await);
            }
        }
    }

    /// Removes those values of a bucket that still have these versions. Returns how many.
    ///
    /// The data version of the bucket rises with that: what others know of its values does not count any more, and no
    /// fence of a value that is removed is above the number of this transaction.
    pub(super) async fn remove(
        &self,
        bucket: &Arc<str>,
        values: &[(Arc<str>, Version)],
    ) -> Result<usize, Failure> {
        let by = Timestamp::now() + self.client.limits.call;
        let asked = |link: Link| {
            // The bucket before the values. They may be old: the transaction checks the versions.
            let bucket = link.exists(bucket);
            let found = try_join_all(values.iter().map(|(path, _)| link.exists(path)));
            async move { Ok((bucket.await?, found.await?)) }
        };
        let (Some(count), found) = self.client.repeat(by, asked).await? else { return Ok(0) };
        let mut ops = vec![Op::Set(Arc::clone(bucket), data(b""), count.version)];
        for ((path, version), stat) in values.iter().zip(found) {
            ops.extend(
                stat.filter(|stat| stat.mzxid == *version)
                    .map(|stat| Op::Delete(Arc::clone(path), stat.version)),
            );
        }
        let removed = ops.len() - 1;
        if removed == 0 {
            return Ok(0);
        }
        let link = self.client.link(by).await?;
        match self.client.within(by, link.multi(ops)).await? {
            Done::All(_) => Ok(removed),
            Done::Nothing(_, failure) if failure.meaning == Meaning::Differs => Ok(0),
            Done::Nothing(_, failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_due_once_and_after_their_time() {
        let removal = Removal::new(Duration::from_secs(2));
        let (started, minute) = (Timestamp::now(), Duration::from_secs(60));
        removal.note("a", 1, minute);
        removal.note("b", 2, Duration::MAX);
        removal.note("a", 3, Duration::from_secs(1));
        removal.note("c", 4, minute);
        removal.note("c", 5, Duration::MAX);
        assert_eq!(removal.take(started + KEPT + Duration::from_secs(3)), [], "too early");
        let later = Timestamp::now() + 3 * minute;
        assert_eq!(removal.take(later), [(Arc::from("a"), 3)]);
        assert_eq!(removal.take(later), []);
    }

    #[test]
    fn memory_is_bounded() {
        let removal = Removal::new(Duration::ZERO);
        for number in 0..=REMEMBERED {
            removal.note(&number.to_string(), 1, Duration::ZERO);
        }
        assert_eq!(removal.take(Timestamp::NEVER).len(), REMEMBERED);
    }
}
