//! Removes values that matter no more: each process those that it was the last to write.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    keys::Place,
    link::Link,
    ops::{Done, Op},
};
use futures_util::future::try_join_all;
use locker_cas::Version;
use locker_core::{background, clock::Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How often values are removed.
const EVERY: Duration = Duration::from_secs(10);

/// How often a removal is tried that others were faster than. What is left then is for a sweep.
const TRIES: u32 = 4;

/// How many values one transaction removes.
const AT_ONCE: usize = 100;

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
            if let Ok(Place { bucket, value, .. }) = self.keys.place(&key) {
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
    pub(super) async fn remove(
        &self,
        bucket: &Arc<str>,
        values: &[(Arc<str>, Version)],
    ) -> Result<usize, Failure> {
        let by = Timestamp::now() + self.client.limits.call;
        for _ in 0..TRIES {
            let ops = self.removal(by, bucket, values).await?;
            if ops.len() < 2 {
                return Ok(0);
            }
            let removed = ops.len() - 1;
            let link = self.client.link(by).await?;
            match self.client.within(by, link.multi(ops)).await? {
                Done::All(_) => return Ok(removed),
                // Others were faster.
                Done::Nothing(_, failure)
                    if matches!(failure.meaning, Meaning::Absent | Meaning::Differs) => {}
                Done::Nothing(_, failure) => return Err(failure),
            }
        }
        Ok(0)
    }

    /// Returns the transaction that removes values: it checks that no value of the bucket was inserted since they were
    /// read.
    pub(super) async fn removal(
        &self,
        by: Timestamp,
        bucket: &Arc<str>,
        values: &[(Arc<str>, Version)],
    ) -> Result<Vec<Op>, Failure> {
        let asked = |link: Link| {
            // The bucket before the values. They may be old: the transaction checks the versions.
            let bucket = link.exists(bucket);
            let found = try_join_all(values.iter().map(|(path, _)| link.exists(path)));
            async move { Ok((bucket.await?, found.await?)) }
        };
        let (Some(count), found) = self.client.repeat(by, asked).await? else { return Ok(Vec::new()) };
        let mut ops = vec![Op::Check(Arc::clone(bucket), count.version)];
        for ((path, version), stat) in values.iter().zip(found) {
            let stat = stat.filter(|stat| stat.mzxid == *version);
            ops.extend(stat.map(|stat| Op::Delete(Arc::clone(path), stat.version)));
        }
        Ok(ops)
    }
}
