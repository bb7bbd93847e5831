//! The clock of one store: a node whose time the processes move on.
//!
//! The data version of a node tells its ticks apart, but not from those of another node of that name. So each life of
//! the clock has a node of its own, and the node around them names the present one.

use super::{
    client::Client,
    errors::{Failure, Meaning},
    keys::Keys,
    link::Link,
    list,
    ops::{ANY, Done, Kind, Op, data},
    shared::Shared,
    stored::value,
    wire::Stat,
};
use futures_util::future::{BoxFuture, join_all};
use locker_cas::{
    Basis, Found, Latest,
    ticked::{Next, Source, Tick},
    ticker::{self, Clock, Ticking},
};
use locker_core::{
    clock::Timestamp,
    error::ErrorKind,
    sync::{Mutex, lock},
};
use std::{fmt, str::from_utf8, sync::Arc, time::Duration};

/// How long after a tick by a write that leaves the next one may be: a process that is busy is no visitor.
const LEAVES_EVERY: Duration = Duration::from_millis(250);

/// How often a clock is made that others delete at once.
const TRIES: u32 = 3;

/// How many values are read at once when a clock is made anew.
const PAGE: usize = 100;

/// The clock, and the way to it.
pub(super) struct ZkClock {
    client: Arc<Client>,
    keys: Keys,
    shared: Arc<Shared>,
    clock: Clock,
    mark: Mutex<Mark>,
    /// When a write has last left the time behind.
    left: Mutex<Timestamp>,
}

/// What the time with the gaps was at the known tick, and when that was written, on the clock of which leader.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    life: i64,
    at: Timestamp,
    written: Written,
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// The high half of the numbers of a leader's transactions.
    leader: i64,
    millis: i64,
}

impl Written {
    fn of(stat: &Stat) -> Self {
        Self { leader: stat.mzxid >> 32, millis: stat.mtime }
    }

    /// Returns what has passed since, nothing between two leaders: their clocks may differ.
    fn since(self, earlier: Self) -> Duration {
        let passed =
            if self.leader == earlier.leader { self.millis.saturating_sub(earlier.millis) } else { 0 };
        Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }
}

/// A tick that comes with a write.
pub(super) struct Left {
    pub(super) op: Op,
    life: i64,
    next: Next,
}

/// Returns what is in the node: the time in microseconds since 1970, and how long it has stood still in all.
fn text(Next { time, gaps }: Next) -> String {
    format!("{} {}", time.as_micros(), gaps.as_micros())
}

pub(super) fn read_text(bytes: &[u8]) -> Option<Next> {
    let (time, gaps) = from_utf8(bytes).ok()?.split_once(' ')?;
    let time = Timestamp::from_micros(time.parse().ok()?);
    Some(Next { time, gaps: Duration::from_micros(gaps.parse().ok()?) })
}

/// Returns the data version that the version of a tick stands for.
fn data_version(version: &[u8]) -> i32 {
    version.try_into().map_or(0, i32::from_be_bytes)
}

impl ZkClock {
    pub(super) fn new(client: Arc<Client>, keys: Keys, shared: Arc<Shared>) -> Self {
        let (clock, mark, left) = Default::default();
        Self { client, keys, shared, clock, mark, left }
    }

    /// Forgets everything: the nodes were made anew.
    pub(super) fn forget(&self) {
        self.clock.forget();
    }

    /// Returns the check that a transaction needs.
    pub(super) fn check(&self, basis: &Basis) -> Option<Op> {
        let (life, version) = match basis {
            Basis::Served => return None,
            Basis::Tick { life, version } => (*life, data_version(version)),
            Basis::Life(life) => (*life, ANY),
        };
        Some(Op::Check(self.keys.life(life).into(), version))
    }

    /// Returns the clock after it has refused a request that named `basis` and was sent at `sent`. `None` if another
    /// life has begun.
    pub(super) async fn refused(
        &self,
        by: Timestamp,
        basis: &Basis,
        sent: Timestamp,
    ) -> Result<Option<Found>, Failure> {
        let life = match basis {
            Basis::Tick { life, .. } | Basis::Life(life) => *life,
            Basis::Served => return Ok(None),
        };
        let path = self.keys.life(life);
        if let Some((text, stat)) = self.client.repeat(by, |link| link.get(&path)).await? {
            let time = self.find(life, &text, &stat, Source::Read)?.time;
            return Ok(Some(Found { life, time, sent }));
        }
        self.client.repeat(by, |link| self.ensure(link)).await?;
        Ok(None)
    }

    /// Takes over the clock as it was read.
    pub(super) fn find(&self, life: i64, text: &[u8], stat: &Stat, source: Source) -> Result<Tick, Failure> {
        let Some(next) = read_text(text) else {
            let what = format!("the node {} of ZooKeeper holds no time", self.keys.life(life));
            return Err(Failure::refused(ErrorKind::Conflict, what));
        };
        Ok(self.learn(life, next, stat, source))
    }

    fn learn(&self, life: i64, next: Next, stat: &Stat, source: Source) -> Tick {
        let (version, at) = (stat.version.to_be_bytes(), next.time + next.gaps);
        let tick = Tick { life, version: version.into(), time: next.time, gaps: next.gaps };
        {
            let mut mark = lock(&self.mark);
            if (life, at) > (mark.life, mark.at) {
                *mark = Mark { life, at, written: Written::of(stat) };
            }
        }
        self.clock.learn(tick.clone(), source);
        tick
    }

    /// Makes sure that it is known how old the known tick is, if this process has just come: the tick that a write
    /// leaves behind would hide the time before.
    pub(super) async fn settle(&self) {
        if self.clock.is_old() {
            ticker::settle(self).await;
        }
    }

    /// Returns the tick that leaves the time of this process behind, for a write that compares the clock.
    pub(super) fn leave(&self, basis: &Basis) -> Option<Left> {
        let (from, next) = self.clock.next_of_known_age()?;
        let Basis::Tick { life, version } = basis else { return None };
        let (now, mut left) = (Timestamp::now(), lock(&self.left));
        if (*life, version) != (from.life, &from.version) || now < *left + LEAVES_EVERY {
            return None;
        }
        *left = now;
        let op = Op::set(&self.keys.life(from.life), text(next).as_bytes(), data_version(&from.version));
        Some(Left { op, life: from.life, next })
    }

    /// Takes over the tick of a write that has succeeded.
    pub(super) fn note_own(&self, left: &Left, stat: &Stat) {
        self.learn(left.life, left.next, stat, Source::Own);
    }

    /// Makes sure that the clock exists and is known.
    pub(super) async fn ensure(&self, link: Link) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let path = self.keys.clock();
            // The session makes the node anew.
            let absent = || Failure::absent(&path);
            let (name, stat) = link.get(&path).await?.ok_or_else(absent)?;
            let life = from_utf8(&name).ok().and_then(|name| name.parse::<i64>().ok());
            if let Some(life) = life
                && let Some((text, stat)) = link.get(&self.keys.life(life)).await?
            {
                return self.find(life, &text, &stat, Source::Read).map(drop);
            }
            // Above all former lives: the end of the last one was seen.
            let next_life = self.client.zxid().max(life.unwrap_or(0).saturating_add(1));
            self.make(&link, next_life, stat.version).await?;
        }
        Err(deleted())
    }

    /// Begins a life, unless another process has done so: at the time of this process if it knew the last one, else at
    /// the latest time of all values, and at the wall clock only if there are none.
    async fn make(&self, link: &Link, life: i64, version: i32) -> Result<(), Failure> {
        let next = match self.clock.time() {
            Some(time) => Next { time: time.now, gaps: time.gaps },
            None => self.of_values(link).await?,
        };
        let ops = vec![
            Op::set(&self.keys.clock(), life.to_string().as_bytes(), version),
            Op::create(&self.keys.life(life), text(next).as_bytes(), Kind::Kept),
        ];
        match link.multi(ops).await? {
            Done::Nothing(_, failure) if !matches!(failure.meaning, Meaning::Differs | Meaning::Exists) => {
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Returns the latest time of all values.
    async fn of_values(&self, link: &Link) -> Result<Next, Failure> {
        let mut latest = Latest::default();
        for page in list::paths(link, &self.keys).await?.chunks(PAGE) {
            for got in join_all(page.iter().map(|path| link.get(path))).await {
                let Some((stored, _)) = got? else { continue };
                latest.see(&value(stored));
            }
        }
        Ok(latest.next())
    }

    async fn write(&self, from: Tick, next: Next) -> Result<(), Failure> {
        let by = Timestamp::now() + self.client.limits.server;
        let link = self.client.link(by).await?;
        let set = Op::set(&self.keys.life(from.life), text(next).as_bytes(), data_version(&from.version));
        match self.client.within(by, link.carry_out(&set)).await {
            Ok(stat) => {
                let stat = stat.ok_or_else(deleted)?;
                self.learn(from.life, next, &stat, Source::Own);
                Ok(())
            }
            Err(failure) if matches!(failure.meaning, Meaning::Differs | Meaning::Absent) => {
                self.client.within(by, self.ensure(link)).await
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns what the time with the gaps is at least: what it was at the known tick, and what has passed since on the
    /// clock of the leader.
    async fn least_time(&self) -> Result<Timestamp, Failure> {
        let by = Timestamp::now() + self.client.limits.server;
        let link = self.client.link(by).await?;
        let own = Op::Set(self.keys.mail(self.shared.inbox()).into(), data(b""), ANY);
        let stat = self.client.within(by, link.carry_out(&own)).await?.ok_or_else(deleted)?;
        let mark = *lock(&self.mark);
        Ok(mark.at + Written::of(&stat).since(mark.written))
    }
}

impl Ticking for ZkClock {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn tick(&self, from: Tick, next: Next) -> BoxFuture<'_, ()> {
        // An error is for the next tick: until then `now` stops at its cap.
        Box::pin(async move { drop(self.write(from, next).await) })
    }

    fn least(&self) -> BoxFuture<'_, Option<Timestamp>> {
        Box::pin(async { self.least_time().await.ok() })
    }

    fn round_trip(&self) -> Duration {
        self.client.round_trip()
    }
}

impl fmt::Debug for ZkClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkClock").field("clock", &self.clock).finish_non_exhaustive()
    }
}

fn deleted() -> Failure {
    Failure::unsent("the clock in ZooKeeper was deleted while it was used")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wall clock of the next leader may be hours ahead.
    #[test]
    fn time_between_two_leaders_is_unknown() {
        let at = |mzxid, mtime| Written::of(&Stat { mzxid, mtime, ..Stat::default() });
        let before = at(5 << 32 | 7, 1_000);
        assert_eq!(at(5 << 32 | 9, 4_000).since(before), Duration::from_secs(3));
        assert_eq!(at(6 << 32 | 1, 36_000_000).since(before), Duration::ZERO);
        assert_eq!(at(5 << 32 | 9, 400).since(before), Duration::ZERO);
    }

    #[test]
    fn texts_are_read_as_written() {
        let time = Timestamp::from_micros(1_764_000_000_000_000);
        let next = Next { time, gaps: Duration::from_secs(3) };
        assert_eq!(read_text(text(next).as_bytes()), Some(next));
        for other in ["", "1", "1 2 3", "x 2", "-1 2", "1  2"] {
            assert_eq!(read_text(other.as_bytes()), None, "{other}");
        }
        assert_eq!(
            [-7, 0, i32::MAX].map(|number: i32| data_version(&number.to_be_bytes())),
            [-7, 0, i32::MAX]
        );
    }
}
