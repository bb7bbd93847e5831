//! Removes what processes have left behind that have ended: values that matter no more, and messages.
//!
//! No clock of a server enters. A value is removed if a process has seen it unchanged for as long as it matters, or if
//! by the clock of the store it was written that long ago: the first needs a process that lives for hours, the second
//! only many that come.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    keys::BUCKETS,
    link::Link,
    ops::{ANY, Done, Kind, Op},
    removal::kept,
    stored::{lasts, value},
    wire::Stat,
};
use futures_util::future::join_all;
use locker_cas::{Stamped, Version, ticker::Ticking};
use locker_core::{background, clock::Timestamp, id::Id};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// How often one of the processes sweeps. Up to a quarter is added: the others look whether there is one.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// How many values are read at once, and how many a process remembers.
const AT_ONCE: usize = 32;
const REMEMBERED: usize = 100_000;

/// How soon a process looks at some of the values: after its first calls.
const SOON: Duration = Duration::from_millis(50);

/// What one process has seen of what it may remove.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    /// By path: the version, since when it was seen, and after how long it may be removed.
    values: HashMap<Arc<str>, (Version, Timestamp, Duration)>,
    /// The names of inboxes that were gone.
    gone: HashSet<String>,
}

impl Exchange {
    /// Sweeps until it is dropped.
    pub(super) async fn keep_sweeping(&self) {
        let mut sweeper = Sweeper::default();
        background::sleep(SOON).await;
        // An error is for the next process.
        drop(self.glean(&self.keys.bucket(Id::random().jitter(BUCKETS)).into()).await);
        loop {
            background::sleep(EVERY + EVERY / 1024 * Id::random().jitter(256)).await;
            // An error is for the next time.
            drop(self.sweep(&mut sweeper).await);
        }
    }

    /// Sweeps once, if this process is the one to do so.
    pub(super) async fn sweep(&self, sweeper: &mut Sweeper) -> Result<(), Failure> {
        if !self.sweeps().await? {
            *sweeper = Sweeper::default();
            return Ok(());
        }
        for number in 0..BUCKETS {
            self.sweep_bucket(&self.keys.bucket(number).into(), sweeper).await?;
        }
        let seen = sweeper.values.len();
        if seen >= REMEMBERED {
            // Others have their turn.
            sweeper.values.clear();
        }
        self.sweep_mail(sweeper).await
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

    async fn sweep_bucket(&self, bucket: &Arc<str>, sweeper: &mut Sweeper) -> Result<(), Failure> {
        let names = self.client.repeat(self.by(), |link| link.children(bucket)).await?;
        let paths: Vec<Arc<str>> = names.into_iter().map(|name| format!("{bucket}/{name}").into()).collect();
        let present: HashSet<_> = paths.iter().cloned().collect();
        let is_here = |path: &str| path.strip_prefix(&**bucket).is_some_and(|rest| rest.starts_with('/'));
        sweeper.values.retain(|path, _| present.contains(path) || !is_here(path));
        let mut over = Vec::new();
        for page in paths.chunks(AT_ONCE) {
            let found = self.read(page).await?;
            // After the answer: it was there by then.
            let now = Timestamp::now();
            for (path, (stored, stat)) in found {
                if let Some(kept) = kept(lasts(&stored))
                    && sweeper.is_over(path, stat.mzxid, kept, now)
                {
                    over.push((Arc::clone(path), stat.mzxid));
                }
            }
        }
        for over in over.chunks(AT_ONCE) {
            self.remove(bucket, over).await?;
        }
        Ok(())
    }

    /// Removes those of some values of a bucket that matter no more by the clock of the store. Returns how many.
    pub(super) async fn glean(&self, bucket: &Arc<str>) -> Result<usize, Failure> {
        let mut names = self.client.repeat(self.by(), |link| link.children(bucket)).await?;
        if !names.is_empty() {
            let len = u32::try_from(names.len()).unwrap_or(u32::MAX);
            names.rotate_left(usize::try_from(Id::random().jitter(len)).unwrap_or(0));
        }
        let paths: Vec<Arc<str>> =
            names.into_iter().take(AT_ONCE).map(|name| format!("{bucket}/{name}").into()).collect();
        let found = self.read(&paths).await?;
        let Some(time) = self.clock.clock().time() else { return Ok(0) };
        let is_over = |stored: &[u8]| {
            let (Some(kept), Some(stamped)) = (kept(lasts(stored)), Stamped::of(&value(stored.to_vec())))
            else {
                return false;
            };
            let gaps = if stamped.counts_gaps { time.gaps } else { Duration::ZERO };
            time.now + gaps > stamped.at + kept
        };
        let over = found.into_iter().filter(|(_, (stored, _))| is_over(stored));
        let over: Vec<_> = over.map(|(path, (_, stat))| (Arc::clone(path), stat.mzxid)).collect();
        self.remove(bucket, &over).await
    }

    /// Reads those of these values that are there.
    async fn read<'a>(&self, paths: &'a [Arc<str>]) -> Result<Vec<(&'a Arc<str>, (Vec<u8>, Stat))>, Failure> {
        let asked = |link: Link| {
            let asked = join_all(paths.iter().map(|path| link.get(path)));
            async move { asked.await.into_iter().collect::<Result<Vec<_>, _>>() }
        };
        let found = self.client.repeat(self.by(), asked).await?;
        Ok(paths.iter().zip(found).filter_map(|(path, found)| Some((path, found?))).collect())
    }

    /// Removes the messages to processes that were gone the last time, too.
    async fn sweep_mail(&self, sweeper: &mut Sweeper) -> Result<(), Failure> {
        let asked = |link: Link| {
            let (mails, inboxes) = (link.children(&self.keys.mails()), link.children(&self.keys.inboxes()));
            async move { Ok((mails.await?, inboxes.await?)) }
        };
        let (mails, inboxes) = self.client.repeat(self.by(), asked).await?;
        let living: HashSet<_> = inboxes.into_iter().collect();
        let gone: HashSet<_> = mails.into_iter().filter(|name| !living.contains(name)).collect();
        let before = std::mem::replace(&mut sweeper.gone, gone.clone());
        for name in gone.intersection(&before) {
            self.remove_mail(name).await?;
        }
        Ok(())
    }

    /// Removes the messages to an inbox, unless a process listens there.
    async fn remove_mail(&self, name: &str) -> Result<(), Failure> {
        let (mail, inbox) =
            (format!("{}/{name}", self.keys.mails()), format!("{}/{name}", self.keys.inboxes()));
        let mut names = self.client.repeat(self.by(), |link| link.children(&mail)).await?;
        loop {
            let rest = names.split_off(names.len().min(AT_ONCE));
            // The inbox can only be created if it is gone.
            let mut ops = vec![Op::create(&inbox, b"", Kind::Kept)];
            ops.extend(names.iter().map(|name| Op::Delete(format!("{mail}/{name}").into(), ANY)));
            if rest.is_empty() {
                ops.push(Op::Delete(mail.as_str().into(), ANY));
            }
            ops.push(Op::Delete(inbox.as_str().into(), ANY));
            let done = self.client.repeat(self.by(), |link| link.multi(ops.clone())).await?;
            if rest.is_empty() || matches!(done, Done::Nothing(..)) {
                return Ok(());
            }
            names = rest;
        }
    }
}

impl Sweeper {
    /// Takes note of a value that is there at `now`. Returns whether it has been unchanged for as long as it is kept.
    fn is_over(&mut self, path: &Arc<str>, version: Version, kept: Duration, now: Timestamp) -> bool {
        match self.values.get(path) {
            Some((seen, since, kept)) if *seen == version => return now.since(*since) > *kept,
            None if self.values.len() >= REMEMBERED => {}
            _ => drop(self.values.insert(Arc::clone(path), (version, now, kept))),
        }
        false
    }
}

#[cfg(test)]
impl Sweeper {
    /// Has all values have been seen that much earlier.
    pub(super) fn set_back(&mut self, by: Duration) {
        self.values.values_mut().for_each(|(_, since, _)| *since = *since - by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_over_when_it_was_long_unchanged() {
        let (mut sweeper, path, kept) = (Sweeper::default(), Arc::from("/a"), Duration::from_secs(100));
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        assert!(!sweeper.is_over(&path, 1, kept, at(1_000)));
        assert!(!sweeper.is_over(&path, 1, kept, at(1_100)));
        assert!(!sweeper.is_over(&path, 2, kept, at(2_000)), "written since");
        assert!(!sweeper.is_over(&path, 2, kept, at(2_100)));
        assert!(sweeper.is_over(&path, 2, kept, at(2_101)));
    }
}
