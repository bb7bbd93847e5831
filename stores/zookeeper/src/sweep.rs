//! Removes what processes have left behind that have ended: values that matter no more, and messages.
//!
//! No clock of a server enters: a value is removed that has mattered no more for a while by the clock of the store.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    keys::BUCKETS,
    link::Link,
    ops::{ANY, Done, Kind, Op},
    removal::kept,
    stored::{lasts, value},
};
use futures_util::future::join_all;
use locker_cas::{Stamped, ticker::Ticking};
use locker_core::{background, clock::Timestamp, id::Id};
use std::{collections::HashSet, mem::replace, sync::Arc, time::Duration};

/// How often one of the processes sweeps. Up to a quarter is added: the others look whether there is one.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// How many values are read at once.
const AT_ONCE: usize = 32;

/// How many messages one transaction removes.
const MESSAGES_AT_ONCE: usize = 500;

/// How soon a process looks at some of the values: after its first calls.
const SOON: Duration = Duration::from_millis(50);

/// When it tries again without an answer.
const LATER: Duration = Duration::from_secs(1);

impl Exchange {
    /// Sweeps until it is dropped.
    pub(super) async fn keep_sweeping(&self) {
        let mut gone = HashSet::new();
        // Where no process lives long enough to sweep, many come.
        background::sleep(SOON).await;
        // The buckets have no names before this process is connected.
        while self.glean(&self.keys.bucket(Id::random().jitter(BUCKETS)).into()).await.is_err() {
            background::sleep(LATER).await;
        }
        loop {
            background::sleep(EVERY + EVERY / 1024 * Id::random().jitter(256)).await;
            // An error is for the next time.
            drop(self.sweep(&mut gone).await);
        }
    }

    /// Sweeps once, if this process is the one to do so. `gone` are the names of the inboxes that were gone the last
    /// time.
    pub(super) async fn sweep(&self, gone: &mut HashSet<String>) -> Result<(), Failure> {
        if !self.sweeps().await? {
            gone.clear();
            return Ok(());
        }
        let mut result = Ok(());
        for number in 0..BUCKETS {
            // One that cannot be swept, such as one that was deleted by hand, does not keep the others.
            result = result.and(self.sweep_bucket(&self.keys.bucket(number).into()).await);
        }
        result.and(self.sweep_mail(gone).await)
    }

    fn by(&self) -> Timestamp {
        Timestamp::now() + self.client.limits.call
    }

    /// Returns whether this process holds the node of the one that sweeps.
    async fn sweeps(&self) -> Result<bool, Failure> {
        let path = self.keys.sweeper();
        let create = Op::create(&path, &self.shared.inbox().to_be_bytes(), Kind::Ephemeral);
        match self.client.repeat(self.by(), |link| link.carry_out(&create)).await {
            Ok(_) => return Ok(true),
            Err(failure) if failure.meaning == Meaning::Exists => {}
            Err(failure) => return Err(failure),
        }
        let found = self.client.repeat(self.by(), |link| link.get(&path)).await?;
        Ok(found.is_some_and(|(inbox, _)| inbox == self.shared.inbox().to_be_bytes()))
    }

    async fn names(&self, path: &str) -> Result<Vec<String>, Failure> {
        self.client.repeat(self.by(), |link| link.children(path)).await
    }

    async fn sweep_bucket(&self, bucket: &Arc<str>) -> Result<(), Failure> {
        for names in self.names(bucket).await?.chunks(AT_ONCE) {
            self.sweep_values(bucket, names).await?;
        }
        Ok(())
    }

    /// Sweeps some of the values of a bucket. Returns how many were removed.
    pub(super) async fn glean(&self, bucket: &Arc<str>) -> Result<usize, Failure> {
        let mut names = self.names(bucket).await?;
        let first = names.len() * usize::try_from(Id::random().jitter(1024)).unwrap_or(0) / 1024;
        names.rotate_left(first);
        names.truncate(AT_ONCE);
        self.sweep_values(bucket, &names).await
    }

    /// Removes those of these values that have mattered no more for long enough.
    async fn sweep_values(&self, bucket: &Arc<str>, names: &[String]) -> Result<usize, Failure> {
        let paths: Vec<Arc<str>> = names.iter().map(|name| format!("{bucket}/{name}").into()).collect();
        let asked = |link: Link| {
            let asked = join_all(paths.iter().map(|path| link.get(path)));
            async move { asked.await.into_iter().collect::<Result<Vec<_>, _>>() }
        };
        let found = self.client.repeat(self.by(), asked).await?;
        let Some(time) = self.clock.clock().time() else { return Ok(0) };
        let is_over = |stored: Vec<u8>| {
            let kept = kept(lasts(&stored));
            let stamped = Stamped::of(&value(stored));
            stamped.zip(kept).is_some_and(|(stamped, kept)| stamped.is_past(&time, kept))
        };
        let found = paths.into_iter().zip(found).filter_map(|(path, found)| Some((path, found?)));
        let over = found.filter_map(|(path, (stored, stat))| is_over(stored).then_some((path, stat.mzxid)));
        self.remove(bucket, &over.collect::<Vec<_>>()).await
    }

    /// Removes the messages to processes that were gone the last time, too.
    async fn sweep_mail(&self, gone: &mut HashSet<String>) -> Result<(), Failure> {
        let mails = self.names(&self.keys.mails()).await?;
        // After them: each message node has an inbox from its beginning on.
        let living: HashSet<_> = self.names(&self.keys.inboxes()).await?.into_iter().collect();
        let now: HashSet<_> = mails.into_iter().filter(|name| !living.contains(name)).collect();
        let before = replace(gone, now);
        for name in gone.intersection(&before) {
            self.remove_mail(name).await?;
        }
        Ok(())
    }

    /// Removes the messages to an inbox, unless a process listens there.
    pub(super) async fn remove_mail(&self, name: &str) -> Result<(), Failure> {
        let (mail, inbox) =
            (format!("{}/{name}", self.keys.mails()), format!("{}/{name}", self.keys.inboxes()));
        let mut names = self.names(&mail).await?;
        loop {
            let rest = names.split_off(names.len().min(MESSAGES_AT_ONCE));
            // The inbox can only be created if it is gone.
            let mut ops = vec![Op::create(&inbox, b"", Kind::Kept)];
            ops.extend(names.iter().map(|name| Op::Delete(format!("{mail}/{name}").into(), ANY)));
            if rest.is_empty() {
                ops.push(Op::Delete(mail.as_str().into(), ANY));
            }
            ops.push(Op::Delete(inbox.as_str().into(), ANY));
            match self.client.repeat(self.by(), |link| link.multi(ops.clone())).await? {
                // One was on its way.
                Done::Nothing(_, failure) if failure.meaning == Meaning::HasChildren => {
                    names = self.names(&mail).await?;
                }
                Done::All(_) if !rest.is_empty() => names = rest,
                Done::All(_) | Done::Nothing(..) => return Ok(()),
            }
        }
    }
}
