//! Reads and writes of values.

use super::{
    client::{Client, PAUSE},
    clock::{Left, ZkClock},
    draft::Draft,
    errors::{Failure, Meaning},
    keys::{BUCKETS, Keys, Place},
    known::{Known, Memory},
    mails::{self, Batch, MAX_REQUEST, Mails},
    ops::{ANY, Data, Done, Op},
    removal::Removal,
    shared::Shared,
    stored::{stored, value},
    wire::Stat,
};
use futures_util::future::{join_all, join3};
use locker_cas::{ABSENT, Basis, Inbox, Message, Outcome, Write};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
};
use std::{sync::Arc, time::Duration};

/// The maximum of bytes of a value. Beside it, a request has room for its operations and for some messages.
pub(super) const MAX_VALUE: usize = 1_000_000;

/// From which data version on the node of a value is made anew: after the greatest number come negative ones, and -1 is
/// taken for any version.
const RENEW_AT: i32 = 1 << 30;

/// How often a write is repeated because other values of the bucket were inserted.
const REPETITIONS: u32 = 3;

/// What reads and writes values.
pub(super) struct Exchange {
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    pub(super) memory: Memory,
    pub(super) clock: Arc<ZkClock>,
    pub(super) shared: Arc<Shared>,
    pub(super) removal: Removal,
    /// Held while this process inserts a value into a bucket: each insertion refuses those that are under way.
    insertions: Box<[tokio::sync::Mutex<()>]>,
    pub(super) renew_at: i32,
}

/// A value as it was read.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) known: Known,
    pub(super) value: Option<Vec<u8>>,
    /// Whether the clock had the version that was named.
    is_timely: bool,
}

/// What a write is made of, as often as it is tried.
struct Work<'a> {
    write: &'a Write,
    place: Place,
    value: Option<Data>,
    left: Option<Left>,
    batch: Batch,
    by: Timestamp,
}

impl Seen {
    fn outcome(self) -> Outcome {
        Outcome::Differs { version: self.known.version, value: self.value }
    }
}

impl Exchange {
    pub(super) fn new(
        client: Arc<Client>,
        keys: Keys,
        clock: Arc<ZkClock>,
        shared: Arc<Shared>,
        margin: Duration,
    ) -> Self {
        let (memory, removal) = (Memory::default(), Removal::new(margin));
        let insertions = (0..BUCKETS).map(|_| tokio::sync::Mutex::default()).collect();
        Self { client, keys, memory, clock, shared, removal, insertions, renew_at: RENEW_AT }
    }

    pub(super) async fn carry_out(&self, write: Write) -> Result<Outcome> {
        let by = Timestamp::now() + self.client.limits.call;
        let key = write.key.as_str();
        let place = self.keys.place(key)?;
        if write.value.as_ref().is_some_and(|value| value.len() > MAX_VALUE) {
            return Err(too_large());
        }
        self.check_epoch(&write)?;
        let known = self.memory.get(key).filter(|known| known.version == write.expected);
        let is_of_absence = write.value.is_none() && write.expected <= ABSENT;
        let known = known.filter(|_| !is_of_absence);
        if let Some(known) = known {
            return self.write(&write, place, known, by).await;
        }
        let sent = Timestamp::now();
        let seen = self.look(by, key, &place, &write.basis).await.map_err(Failure::before)?;
        if seen.known.version != write.expected {
            return Ok(seen.outcome());
        }
        if is_of_absence {
            return self.absence(by, &write, sent, seen.is_timely).await;
        }
        self.write(&write, place, seen.known, by).await
    }

    /// What was known of a value says nothing of one in nodes that were made anew.
    fn check_epoch(&self, write: &Write) -> Result<()> {
        if write.epoch.is_some_and(|epoch| epoch != self.shared.epoch()) {
            let message = "the nodes of the store in ZooKeeper were removed and made anew";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    /// Returns what came of a comparison that has found no value, as it was to be.
    async fn absence(
        &self,
        by: Timestamp,
        write: &Write,
        sent: Timestamp,
        is_timely: bool,
    ) -> Result<Outcome> {
        if !is_timely {
            return self.ticked(by, &write.basis, sent).await;
        }
        let gone = self.send(write.messages.clone()).await?;
        Ok(Outcome::Matched { version: ABSENT, gone })
    }

    /// Writes or compares a value that has the expected version as far as this process knows.
    async fn write(&self, write: &Write, place: Place, known: Known, by: Timestamp) -> Result<Outcome> {
        let value = write.value.as_ref().map(|value| stored(write.lasts, value));
        let mut left = None;
        if value.is_some() && write.leaves {
            self.clock.settle().await;
            left = self.clock.leave(&write.basis);
        }
        let mut mails = Mails::new(write.messages.clone(), &self.keys);
        let batch =
            mails.beside(5 * (place.value.len() + 100) + value.as_ref().map_or(0, |value| value.len()));
        let work = Work { write, place, value, left, batch, by };
        let (outcome, mut gone) = self.try_write(work, known).await?;
        let Outcome::Matched { version, .. } = outcome else { return Ok(outcome) };
        if !mails.is_empty() {
            // Messages are hints: the write counts without them.
            gone.extend(self.send_all(mails).await.unwrap_or_default());
        }
        Ok(Outcome::Matched { version, gone })
    }

    /// Makes a transaction again as long as it has provably not been carried out. Returns the inboxes that are gone.
    async fn try_write(&self, mut work: Work<'_>, mut known: Known) -> Result<(Outcome, Vec<Inbox>)> {
        let (mut gone, mut repetitions) = (Vec::new(), 0);
        let key = work.write.key.as_str();
        let inserts = Draft::inserts(known, work.value.is_some(), self.renew_at);
        let _alone = if inserts { Some(self.alone(work.place.number, work.by).await?) } else { None };
        loop {
            known = self.memory.after_insertions(&work.place.bucket, key, known);
            let left = work.left.as_ref().map(|left| left.op.clone());
            let clock = left.or_else(|| self.clock.check(&work.write.basis));
            let draft = Draft::new(&work.place, known, work.value.as_ref(), self.renew_at)
                .with(clock, mails::ops(&work.batch, &self.keys));
            let link = self.client.link(work.by).await?;
            self.check_epoch(work.write)?;
            let sent = Timestamp::now();
            if sent >= work.by {
                return Err(Error::new(ErrorKind::Unavailable, "ZooKeeper has refused each transaction"));
            }
            let (place, failure) = match self.client.within(work.by, link.multi(draft.ops.clone())).await {
                Ok(Done::All(stats)) => return Ok((self.written(&work, known, &draft, &stats)?, gone)),
                Ok(Done::Nothing(place, failure)) => (place, failure),
                Err(failure) if failure.is_unserved() => {
                    background::sleep(PAUSE).await;
                    continue;
                }
                Err(failure) => return Err(failure.error),
            };
            if !matches!(failure.meaning, Meaning::Absent | Meaning::Exists | Meaning::Differs) {
                return Err(failure.error);
            }
            if place >= draft.mail {
                let absent = self.absent(work.by, &work.batch).await?;
                work.batch.retain(|(inbox, _)| !absent.contains(inbox));
                gone.extend(absent);
            } else if draft.clock == Some(place) {
                return Ok((self.ticked(work.by, &work.write.basis, sent).await?, gone));
            } else {
                let seen = self.look(work.by, key, &work.place, &Basis::Served).await;
                let seen = seen.map_err(Failure::before)?;
                // With the expected version, the store tries again.
                if seen.known.version != work.write.expected || repetitions == REPETITIONS {
                    return Ok((seen.outcome(), gone));
                }
                known = seen.known;
                repetitions += 1;
            }
        }
    }

    /// Waits until no other value is inserted into the bucket by this process.
    async fn alone(&self, bucket: usize, by: Timestamp) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        tokio::select! {
            biased;
            alone = self.insertions[bucket].lock() => Ok(alone),
            () = background::sleep_from(Timestamp::now(), by) => {
                Err(Error::new(ErrorKind::Unavailable, "ZooKeeper has not answered the writes before this one"))
            }
        }
    }

    /// Takes note of a transaction that was carried out.
    fn written(
        &self,
        work: &Work<'_>,
        known: Known,
        draft: &Draft,
        stats: &[Option<Stat>],
    ) -> Result<Outcome> {
        let stat = |place: Option<usize>| place.and_then(|place| *stats.get(place)?);
        if let (Some(left), Some(stat)) = (&work.left, stat(draft.clock)) {
            self.clock.note_own(left, &stat);
        }
        let mut version = known.version;
        if draft.set.is_some() {
            let unreadable =
                || Error::new(ErrorKind::Conflict, "ZooKeeper has not told the new version").unknown();
            let stat = stat(draft.set).ok_or_else(unreadable)?;
            version = stat.mzxid;
            let key = work.write.key.as_str();
            if draft.bucket != known.bucket {
                self.memory.note_insertion(&work.place.bucket, known.bucket, key);
            }
            self.memory.put(key, Known { version, data: stat.version, bucket: draft.bucket });
            self.removal.note(key, version, work.write.lasts);
        }
        Ok(Outcome::Matched { version, gone: Vec::new() })
    }

    /// Returns how the clock was found by a request that was sent at `sent`. The read has seen all that the refusal
    /// had.
    async fn ticked(&self, by: Timestamp, basis: &Basis, sent: Timestamp) -> Result<Outcome> {
        Ok(Outcome::Ticked(self.clock.refused(by, basis, sent).await.map_err(Failure::before)?))
    }

    /// Reads a value, as it is at a moment after this was called: a server knows all that others had been told when it
    /// answers what a majority has agreed to.
    pub(super) async fn look(
        &self,
        by: Timestamp,
        key: &str,
        place: &Place,
        basis: &Basis,
    ) -> Result<Seen, Failure> {
        let mut agreed = vec![Op::Check(Arc::clone(&place.bucket), ANY)];
        agreed.extend(self.clock.check(basis));
        let (done, bucket, got) = self
            .client
            .repeat(by, |link| {
                // The bucket before the value: an insertion in between then shows.
                let asked =
                    join3(link.multi(agreed.clone()), link.exists(&place.bucket), link.get(&place.value));
                async move {
                    let (done, bucket, got) = asked.await;
                    Ok((done?, bucket?, got?))
                }
            })
            .await?;
        let is_timely = match done {
            Done::All(_) => true,
            Done::Nothing(1, failure) if matches!(failure.meaning, Meaning::Absent | Meaning::Differs) => {
                false
            }
            Done::Nothing(_, failure) => return Err(failure),
        };
        let bucket = bucket.ok_or_else(|| Failure::absent(&place.bucket))?;
        // No fence of a value that was removed here is above this.
        self.client.saw(bucket.mzxid.max(bucket.pzxid));
        let known = match &got {
            Some((_, stat)) => Known { version: stat.mzxid, data: stat.version, bucket: bucket.version },
            None => Known { version: ABSENT, data: 0, bucket: bucket.version },
        };
        self.memory.put(key, known);
        Ok(Seen { known, value: got.map(|(stored, _)| value(stored)), is_timely })
    }

    pub(super) async fn send(&self, messages: Vec<Message>) -> Result<Vec<Inbox>> {
        self.send_all(Mails::new(messages, &self.keys)).await
    }

    async fn send_all(&self, mut mails: Mails) -> Result<Vec<Inbox>> {
        let mut gone = Vec::new();
        while !mails.is_empty() {
            let mut batch = mails.beside(0);
            let by = Timestamp::now() + self.client.limits.call;
            while !batch.is_empty() {
                let ops: Vec<_> = mails::ops(&batch, &self.keys).collect();
                // A message that is sent twice does no harm.
                match self.client.repeat(by, |link| link.multi(ops.clone())).await? {
                    Done::All(_) => break,
                    Done::Nothing(_, failure) if failure.meaning == Meaning::Absent => {
                        let absent = self.absent(by, &batch).await?;
                        batch.retain(|(inbox, _)| !absent.contains(inbox));
                        gone.extend(absent);
                    }
                    Done::Nothing(_, failure) => return Err(failure.error),
                }
            }
        }
        Ok(gone)
    }

    /// Returns which receivers do not listen.
    async fn absent(&self, by: Timestamp, batch: &Batch) -> Result<Vec<Inbox>> {
        let found = self.client.repeat(by, |link| {
            let of = |(inbox, _): &(Inbox, String)| {
                let (place, mail) =
                    (link.exists(&self.keys.inbox(*inbox)), link.exists(&self.keys.mail(*inbox)));
                async move { Ok::<_, Failure>(place.await?.is_some() && mail.await?.is_some()) }
            };
            let asked = join_all(batch.iter().map(of));
            async move { asked.await.into_iter().collect::<Result<Vec<_>, _>>() }
        });
        let found = found.await.map_err(Failure::before)?;
        let all = batch.iter().zip(found);
        Ok(all.filter(|(_, is_there)| !is_there).map(|((inbox, _), _)| *inbox).collect())
    }
}

fn too_large() -> Error {
    let message = format!("the value is larger than {MAX_VALUE} bytes, which ZooKeeper does not take");
    Error::new(ErrorKind::Misused, message)
}

const _: () = assert!(MAX_VALUE + 30_000 < MAX_REQUEST);
