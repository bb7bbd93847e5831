//! The clock of one store: a node whose time the processes move on.
//!
//! The data version of a node tells its ticks apart, but not from those of another node of that name. So each life of
//! the clock has a node of its own, and the node around them names the present one.

use super::{
    client::Client,
    errors::{Failure, Meaning},
    gauge::{STAYS_AFTER, Text},
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
    ticked::{Least, Next, Source, Tick},
    ticker::{self, Clock, Ticking},
};
use locker_core::{
    clock::Timestamp,
    error::ErrorKind,
    id::Id,
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
    /// When this process has come.
    came: Timestamp,
    /// What the time with the gaps was at the last tick of this process as one that stays.
    stayed: Mutex<Timestamp>,
    /// When a write has last left the time behind.
    left: Mutex<Timestamp>,
}

/// The known tick, and when it was written, on the clock of which leader.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    life: i64,
    text: Text,
    is_own: bool,
    written: Written,
}

impl Mark {
    /// Returns the tick as it was written, if it is this one.
    fn of(&self, tick: &Tick) -> Option<Text> {
        ((self.life, self.text.next.time) == (tick.life, tick.time)).then_some(self.text)
    }
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

/// A tick with a jump, for which no session was opened yet.
pub(super) struct Unmeasured(Mark);

/// A tick that comes with a write.
pub(super) struct Left {
    pub(super) op: Op,
    life: i64,
    text: Text,
}

/// Returns the data version that the version of a tick stands for.
fn data_version(version: &[u8]) -> i32 {
    version.try_into().map_or(0, i32::from_be_bytes)
}

impl ZkClock {
    pub(super) fn new(client: Arc<Client>, keys: Keys, shared: Arc<Shared>) -> Self {
        let (clock, mark, stayed, left) = Default::default();
        Self { client, keys, shared, clock, mark, came: Timestamp::now(), stayed, left }
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
            let latest = self.find(life, &text, &stat, Source::Read)?.latest();
            return Ok(Some(Found { life, latest, sent }));
        }
        self.client.repeat(by, |link| self.ensure(link)).await?;
        Ok(None)
    }

    /// Takes over the clock as it was read.
    pub(super) fn find(&self, life: i64, text: &[u8], stat: &Stat, source: Source) -> Result<Tick, Failure> {
        let Some(text) = Text::read(text) else {
            let what = format!("the node {} of ZooKeeper holds no time", self.keys.life(life));
            return Err(Failure::refused(ErrorKind::Conflict, what));
        };
        Ok(self.learn(life, text, stat, source))
    }

    fn learn(&self, life: i64, text: Text, stat: &Stat, source: Source) -> Tick {
        let tick = text.tick(life, stat.version);
        {
            let mut mark = lock(&self.mark);
            if (life, text.next.time) > (mark.life, mark.text.next.time) {
                *mark = Mark { life, text, is_own: source == Source::Own, written: Written::of(stat) };
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
        let text = self.text(&from, next, false);
        Some(Left { op: self.set(&from, &text), life: from.life, text })
    }

    fn set(&self, from: &Tick, text: &Text) -> Op {
        Op::set(&self.keys.life(from.life), &text.bytes(), data_version(&from.version))
    }

    /// Returns what the tick after `from` is written as.
    fn text(&self, from: &Tick, next: Next, leaves: bool) -> Text {
        if !leaves && Timestamp::now() >= self.came + STAYS_AFTER {
            let text = Text::of_one_that_stays(next);
            *lock(&self.stayed) = text.stayed;
            return text;
        }
        let unknown = || Text::of_one_that_stays(Next { time: from.time, gaps: from.gaps });
        let text = lock(&self.mark).of(from).unwrap_or_else(unknown).of_visitor(next);
        if leaves { text.of_one_that_leaves(*lock(&self.stayed)) } else { text }
    }

    /// Takes over the tick of a write that has succeeded.
    pub(super) fn note_own(&self, left: &Left, stat: &Stat) {
        self.learn(left.life, left.text, stat, Source::Own);
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
            self.make(&link, life, next_life, stat.version).await?;
        }
        Err(deleted())
    }

    /// Begins a life, unless another process has done so: at the latest time of all values, or that of this process if
    /// it is later and of the last life, and at the wall clock only if there are none.
    async fn make(&self, link: &Link, last: Option<i64>, life: i64, version: i32) -> Result<(), Failure> {
        let mut latest = self.latest_of_values(link).await?;
        if let Some(time) = last.and_then(|last| self.clock.time_in(last)) {
            latest.know(&time);
        }
        let next = latest.next();
        let ops = vec![
            Op::set(&self.keys.clock(), life.to_string().as_bytes(), version),
            Op::create(&self.keys.life(life), &Text::of_one_that_stays(next).bytes(), Kind::Kept),
        ];
        match link.multi(ops).await? {
            Done::Nothing(_, failure) if !matches!(failure.meaning, Meaning::Differs | Meaning::Exists) => {
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    async fn latest_of_values(&self, link: &Link) -> Result<Latest, Failure> {
        let mut latest = Latest::default();
        for page in list::paths(link, &self.keys).await?.chunks(PAGE) {
            for got in join_all(page.iter().map(|path| link.get(path))).await {
                let Some((stored, _)) = got? else { continue };
                latest.see(&value(stored));
            }
        }
        Ok(latest)
    }

    async fn write(&self, link: Link, from: Tick, next: Next, leaves: bool) -> Result<(), Failure> {
        let by = Timestamp::now() + self.client.limits.server;
        let text = self.text(&from, next, leaves);
        match self.client.within(by, link.carry_out(&self.set(&from, &text))).await {
            Ok(stat) => {
                let stat = stat.ok_or_else(deleted)?;
                self.learn(from.life, text, &stat, Source::Own);
                Ok(())
            }
            Err(failure) if matches!(failure.meaning, Meaning::Differs | Meaning::Absent) => {
                self.client.within(by, self.ensure(link)).await
            }
            Err(failure) => Err(failure),
        }
    }

    async fn link(&self) -> Result<Link, Failure> {
        self.client.link(Timestamp::now() + self.client.limits.server).await
    }

    /// Returns what the clock shows at least. With the gaps: what it was at the known tick, and what has passed since
    /// on the clock of the leader. Without: the jump, if the session that measures it is over.
    async fn least(&self, link: &Link) -> Result<Least, Failure> {
        let (by, mark) = (Timestamp::now() + self.client.limits.server, *lock(&self.mark));
        let own = Op::Set(self.keys.mail(self.shared.inbox()).into(), data(b""), ANY);
        let stat = self.client.within(by, link.carry_out(&own)).await?.ok_or_else(deleted)?;
        let wall = mark.text.next.wall() + Written::of(&stat).since(mark.written);
        let Some(gauge) = mark.text.measured_by() else { return Ok(Least { wall, ..Least::default() }) };
        // The tick was known before, so the node has been there.
        let is_over = self.client.within(by, link.exists(&self.keys.gauge(gauge))).await?.is_none();
        Ok(Least { jump: if is_over { mark.text.jump } else { Timestamp::default() }, wall })
    }

    /// Has the clock jump, if that is due, for a process that has just come.
    pub(super) async fn jump(&self, link: &Link) -> Result<(), Failure> {
        if lock(&self.mark).text.measured_by().is_none() {
            return Ok(());
        }
        let least = self.least(link).await?;
        match self.clock.next(least) {
            Some((from, next)) if next.time == least.jump => {
                self.write(link.clone(), from, next, false).await
            }
            _ => Ok(()),
        }
    }

    /// Returns the last tick of this process if it names a jump: another session has to measure that.
    pub(super) fn unmeasured(&self) -> Option<Unmeasured> {
        let mark = lock(&self.mark);
        (mark.is_own && mark.text.lacks_gauge()).then_some(Unmeasured(*mark))
    }

    /// Has a session measure the jump of a tick, after which it has begun. Returns whether it does.
    pub(super) async fn measure(
        &self,
        Unmeasured(mark): Unmeasured,
        link: &Link,
        timeout: Duration,
    ) -> Result<bool, Failure> {
        let by = Timestamp::now() + self.client.limits.server;
        let next = self.clock.next(Least::default()).filter(|(from, _)| mark.of(from).is_some());
        let Some((from, next)) = next else { return Ok(false) };
        let gauge = Id::random().low_half().max(1);
        let text = mark.text.with_gauge(next, gauge, timeout);
        let ops = vec![Op::create(&self.keys.gauge(gauge), b"", Kind::Ephemeral), self.set(&from, &text)];
        Ok(matches!(self.client.within(by, link.multi(ops)).await?, Done::All(_)))
    }
}

impl Ticking for ZkClock {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn tick(&self, from: Tick, next: Next, leaves: bool) -> BoxFuture<'_, ()> {
        // An error is for the next tick: until then `now` stops at its cap.
        Box::pin(async move {
            let Ok(link) = self.link().await else { return };
            drop(self.write(link, from, next, leaves).await);
        })
    }

    fn least(&self) -> BoxFuture<'_, Option<Least>> {
        Box::pin(async { Self::least(self, &self.link().await.ok()?).await.ok() })
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
    fn versions_are_read_as_written() {
        assert_eq!(
            [-7, 0, i32::MAX].map(|number: i32| data_version(&number.to_be_bytes())),
            [-7, 0, i32::MAX]
        );
    }
}
