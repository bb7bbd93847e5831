//! Removes values that matter no more: each process those that it was the last to write.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    keys::Place,
    link::Link,
    ops::{Done, Op, data},
};
use futures_util::future::try_join_all;
use locker_cas::Version;
use locker_core::{background, clock::Timestamp};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How often values are removed.
const EVERY: Duration = Duration::from_secs(10);

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
