//! The clock of one prefix: a key whose time the processes move on.

use super::{
    client::{Client, Limits, Repeat},
    errors::{Failure, Meaning},
    gauge::{Gauge, Mark},
    keys::{Keys, end_of_prefix, successor},
    leases,
    messages::{Compare, KeyValue, Op, Range, RangeAnswer, Txn, TxnAnswer},
};
use futures_util::future::BoxFuture;
use locker_cas::{
    Basis, Found, Latest,
    ticked::{Least, Next, Source, Tick},
    ticker::{Clock, Ticking},
};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    sync::{Mutex, lock},
};
use prost::bytes::Bytes;
use std::{
    fmt,
    str::from_utf8,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

/// How many values are read at once when a clock is made anew.
const PAGE: i64 = 100;

/// How long after a tick by a write that leaves the next one may be: a process that is busy is no visitor.
const LEAVES_EVERY: Duration = Duration::from_millis(250);

/// The clock, and the way to it.
pub(super) struct EtcdClock {
    client: Arc<Client>,
    keys: Keys,
    limits: Limits,
    clock: Clock,
    gauge: Gauge,
    /// When a write has last left the time behind.
    left: Mutex<Timestamp>,
    /// How often the cluster has gone back to an earlier state.
    epoch: AtomicI64,
}

/// A tick that comes with a write.
pub(super) struct Left {
    pub(super) op: Op,
    tick: Tick,
}

/// What is in the key: the time in microseconds since 1970, how long it has stood still in all, the lease that measures
/// gaps and since when it does, and a random number, so that a restored snapshot brings no version twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    next: Next,
    mark: Mark,
    nonce: u64,
}

impl Text {
    fn new(next: Next, mark: Mark) -> Self {
        Self { next, mark, nonce: Id::random().low_half() }
    }

    pub(super) fn bytes(self) -> Bytes {
        let Self { next: Next { time, gaps }, mark: Mark { lease, at }, nonce } = self;
        format!("{} {} {lease:x} {} {nonce:016x}", time.as_micros(), gaps.as_micros(), at.as_micros()).into()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = from_utf8(bytes).ok()?.split(' ');
        let mut number = |radix| u64::from_str_radix(words.next()?, radix).ok();
        let (time, gaps) = (Timestamp::from_micros(number(10)?), Duration::from_micros(number(10)?));
        let mark = Mark { lease: number(16)?.cast_signed(), at: Timestamp::from_micros(number(10)?) };
        let text = Self { next: Next { time, gaps }, mark, nonce: number(16)? };
        words.next().is_none().then_some(text)
    }

    fn tick(self, life: i64, bytes: &[u8]) -> Tick {
        let Next { time, gaps } = self.next;
        Tick { life, version: bytes.into(), time, gaps, jump: Timestamp::default() }
    }
}

impl EtcdClock {
    pub(super) fn new(client: Arc<Client>, keys: Keys, limits: Limits) -> Self {
        let gauge = Gauge::new(Arc::clone(&client));
        let (clock, left, epoch) = Default::default();
        Self { client, keys, limits, clock, gauge, left, epoch }
    }

    /// Returns a number that changes when the cluster goes back to an earlier state, as far as this process knows. What
    /// was seen before is then not compared any more: another value may have the same revision.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Forgets everything: the cluster is another one, or was restored from a copy.
    pub(super) fn went_back(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.clock.forget();
    }

    /// Returns the operation that reads the clock.
    pub(super) fn get(&self) -> Op {
        Op::get(self.keys.clock())
    }

    /// Returns the comparison that a write needs.
    pub(super) fn compare(&self, basis: &Basis) -> Option<Compare> {
        match basis {
            Basis::Served => None,
            Basis::Tick { version, .. } => {
                Some(Compare::has(self.keys.clock(), Bytes::copy_from_slice(version)))
            }
            Basis::Life(life) => Some(Compare::is_of(self.keys.clock(), *life)),
        }
    }

    /// Takes over the clock as a write was refused that named `basis` and was sent at `sent`.
    pub(super) fn refused(&self, kv: &KeyValue, basis: &Basis, sent: Timestamp) -> Result<Found, Failure> {
        let tick = self.read(kv)?;
        let named = match basis {
            Basis::Tick { life, version } => Text::read(version).map(|text| (*life, text.next.time)),
            Basis::Life(life) => Some((*life, Timestamp::default())),
            Basis::Served => None,
        };
        if named.is_some_and(|named| (tick.life, tick.time) < named) {
            // A restored snapshot: `now` begins anew.
            self.went_back();
        }
        self.find(kv, Source::Read, sent)
    }

    /// Takes over the clock as it was read. Returns it as an answer to a request that was sent at `sent`.
    pub(super) fn find(&self, kv: &KeyValue, source: Source, sent: Timestamp) -> Result<Found, Failure> {
        let tick = self.read(kv)?;
        let found = Found { life: tick.life, latest: tick.latest(), sent };
        self.clock.learn(tick, source);
        Ok(found)
    }

    /// Returns the tick that leaves the time of this process behind, for a write that compares the clock.
    pub(super) fn leave(&self, basis: &Basis) -> Option<Left> {
        let (from, next) = self.clock.next(Least::default())?;
        let is_latest = matches!(basis, Basis::Tick { version, .. } if *version == from.version);
        let (now, mut left) = (Timestamp::now(), lock(&self.left));
        if !is_latest || now < *left + LEAVES_EVERY {
            return None;
        }
        *left = now;
        let text = Text::new(next, self.gauge.mark());
        let bytes = text.bytes();
        let tick = text.tick(from.life, &bytes);
        Some(Left { op: Op::put(self.keys.clock(), bytes, 0), tick })
    }

    /// Takes over the tick of a write that has succeeded.
    pub(super) fn note_own(&self, left: Left) {
        self.clock.learn(left.tick, Source::Own);
    }

    /// Makes sure that the clock exists and is known. `present` is what was read.
    pub(super) async fn ensure(&self, present: Option<&KeyValue>) -> Result<(), Failure> {
        let Some(kv) = present else { return self.make().await };
        self.find(kv, Source::Read, Timestamp::now()).map(drop)
    }

    /// Makes a clock: at the latest time of all values, or that of this process if it is later and no other clock was
    /// missed, and at the wall clock only if there are none.
    pub(super) async fn make(&self) -> Result<(), Failure> {
        let mut latest = self.latest_of_values().await?;
        if let Some(time) = self.clock.time().filter(|_| !self.clock.is_old()) {
            latest.know(&time);
        }
        let next = latest.next();
        let mark = self.gauge.begin(next.time + next.gaps).await?;
        let key = self.keys.clock();
        let put = Op::put(key.clone(), Text::new(next, mark).bytes(), 0);
        let txn = Txn { compare: vec![Compare::is_of(key, 0)], success: vec![put], failure: vec![] };
        // Read apart: the answer may be that to an earlier copy.
        let _: TxnAnswer = self.client.call("/etcdserverpb.KV/Txn", txn, Repeat::Yes).await?;
        let range = Range { key: self.keys.clock(), ..Range::default() };
        let answer: RangeAnswer = self.client.call("/etcdserverpb.KV/Range", range, Repeat::Yes).await?;
        let gone = || failure(ErrorKind::Unavailable, "the clock was deleted while it was made".into());
        let kv = answer.kvs.first().ok_or_else(gone)?;
        self.find(kv, Source::Read, Timestamp::now())?;
        if self.gauge.mark().lease != mark.lease {
            // Another process was faster.
            leases::revoke(&self.client, mark.lease).await;
        }
        Ok(())
    }

    async fn latest_of_values(&self) -> Result<Latest, Failure> {
        let mut latest = Latest::default();
        let (mut key, end) = (self.keys.key(""), end_of_prefix(&self.keys.key("")));
        loop {
            let range = Range { key, end: end.clone(), limit: PAGE, revision: 0 };
            let answer: RangeAnswer = self.client.call("/etcdserverpb.KV/Range", range, Repeat::Yes).await?;
            answer.kvs.iter().for_each(|kv| latest.see(&kv.value));
            match answer.kvs.last() {
                Some(last) if answer.more => key = successor(&last.key),
                _ => break,
            }
        }
        Ok(latest)
    }

    fn read(&self, kv: &KeyValue) -> Result<Tick, Failure> {
        let Some(text) = Text::read(&kv.value) else {
            let what = format!("the key {} of etcd holds no time", self.keys.clock_text());
            return Err(failure(ErrorKind::Conflict, what));
        };
        self.gauge.note(text.mark);
        Ok(text.tick(kv.create_revision, &kv.value))
    }

    async fn write(&self, from: Tick, next: Next) -> Result<(), Failure> {
        let text = Text::new(next, self.gauge.keep(next.time + next.gaps).await);
        let (key, bytes) = (self.keys.clock(), text.bytes());
        let compare = vec![Compare::has(key.clone(), Bytes::copy_from_slice(&from.version))];
        let success = vec![Op::put(key, bytes.clone(), 0)];
        let txn = Txn { compare, success, failure: vec![self.get()] };
        let by = Timestamp::now() + self.limits.member;
        let answer: TxnAnswer = self.client.call_until(by, "/etcdserverpb.KV/Txn", txn, Repeat::No).await?;
        if answer.succeeded {
            self.gauge.note(text.mark);
            self.clock.learn(text.tick(from.life, &bytes), Source::Own);
            return Ok(());
        }
        match answer.read(0) {
            Some(kv) => self.find(kv, Source::Read, Timestamp::now()).map(drop),
            None => self.make().await,
        }
    }
}

impl Ticking for EtcdClock {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn tick(&self, from: Tick, next: Next, _: bool) -> BoxFuture<'_, ()> {
        // An error is for the next tick: until then `now` stops at its cap.
        Box::pin(async move { drop(self.write(from, next).await) })
    }

    fn least(&self) -> BoxFuture<'_, Option<Least>> {
        // A lease that does not answer goes on counting.
        Box::pin(async { Some(Least { wall: self.gauge.least().await, ..Least::default() }) })
    }

    fn round_trip(&self) -> Duration {
        self.client.round_trip()
    }
}

impl fmt::Debug for EtcdClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClock").field("clock", &self.clock).finish_non_exhaustive()
    }
}

fn failure(kind: ErrorKind, what: String) -> Failure {
    Failure { meaning: Meaning::Refused, error: Error::new(kind, what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_written() {
        let next = Next { time: Timestamp::from_micros(1_764_000_000_000_000), gaps: Duration::from_secs(3) };
        let text = Text::new(next, Mark { lease: -7, at: next.time });
        assert_eq!(Text::read(&text.bytes()), Some(text));
        for other in ["", "1 2 3 4", "1 2 3 4 5 6", "x 2 3 4 5", "-1 2 3 4 5", "1  2 3 4 5"] {
            assert_eq!(Text::read(other.as_bytes()), None, "{other}");
        }
    }
}
