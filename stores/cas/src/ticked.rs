//! A clock for stores that have none: one key holds a time, and the processes move it on.
//!
//! 1. The key holds a time `T`, which only rises within a *life*: a clock that was deleted begins another one.
//! 2. Each process has a `now`. It begins at `T`, runs as the local clock does, and stops at `T + CAP`. When a later
//!    `T` becomes known, `now` is the later of both, and the cap moves on. It does not matter how the process learns of
//!    a `T`, how late, and which ones it misses; the local clock is read after the message came.
//! 3. A tick writes the `now` of a process as the next `T`, and names the version that it replaces.
//! 4. A write whose step promises an end names the version of the clock, and the end is `T + CAP + lease`.
//! 5. A write that has lost to a tick is repeated on the `T` of its refusal. It counts what has passed locally since
//!    the refused request was sent, and names the life only: however often the clock ticks, it is not refused again.
//!
//! Why no end comes early. Let tick `k` be written at the real time `w(k)`. While it is the latest, every `now`, and so
//! every time on its way to the clock, is at most `T(k) + CAP`. From `w(k+1)` on, none exceeds that by more than what
//! has passed since, because a `now` runs no faster than time and jumps only to what was a `now`. A step that promises
//! while `k` is the latest runs before `w(k+1)`, so its end is reached a lease later at the earliest. With rule 5, `T`
//! was the latest at some moment after the request was sent. Offsets of local clocks do not matter. Their rates may
//! differ by a thousandth, which a holder leaves unused. `ticked/model` explores all that.
//!
//! While no process is connected, time stands still. What goes on without processes, such as the refill of a rate
//! limit, also counts the *gaps*: a tick adds the time since the last one that its `T` does not show.
//!
//! 6. A tick may name a *jump*, a later time, and those that follow may go on naming it. A tick right after one of them
//!    may show it at once, if the store has measured as much since the first one was written: the processes only come
//!    for moments, and would never get there. What promises an end on such a tick takes the jump in place of `T + CAP`,
//!    if it is later. So from `w(k+1)` on no time exceeds that of tick `k` by more than what has passed since, as
//!    before. A tick that names no jump, or another one, is followed by no jump that was measured for earlier ones.

#[cfg(test)]
mod model;

use super::time::{Basis, CAP, Time};
use locker_core::clock::Timestamp;
use std::{sync::Arc, time::Duration};

/// How long after its own tick a process writes the next one.
const AFTER_OWN: Duration = Duration::from_millis(500);

/// The least time from the tick of another process to one of this process, and how much more it may be. One process
/// ticks, and the others take over if it ends.
const AFTER_OTHERS: [Duration; 2] = [Duration::from_millis(700), Duration::from_millis(200)];

/// One version of the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// A later life has a higher number.
    pub life: i64,
    /// What tells this version from all others.
    pub version: Arc<[u8]>,
    /// What the clock shows.
    pub time: Timestamp,
    /// How long time has stood still in all.
    pub gaps: Duration,
    /// A time that the next tick may show at once if it has been reached, 0 if there is none.
    pub jump: Timestamp,
}

impl Tick {
    /// Returns the latest time that the next tick can show.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        (self.time + CAP).max(self.jump)
    }
}

/// How a process has learned of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is its own.
    Own,
    /// It was told at once.
    Told,
    /// It has read the clock: the tick may be old.
    Read,
}

/// The time and the gaps of the next tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// What the clock is to show.
    pub time: Timestamp,
    /// How long time has stood still in all.
    pub gaps: Duration,
}

impl Next {
    /// Returns the time with the gaps.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.time + self.gaps
    }
}

/// What the clock shows at least, as far as the store tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Least {
    /// A jump that has been reached, 0 if there is none.
    pub jump: Timestamp,
    /// The time with the gaps.
    pub wall: Timestamp,
}

/// What one process knows of the clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticked(Option<KnownTick>);

#[derive(Clone, Debug)]
struct KnownTick {
    tick: Tick,
    is_own: bool,
    /// Whether the tick may have been written long before it became known.
    is_old: bool,
    /// What `now` was at the local time `at`, at which the tick became known.
    base: Timestamp,
    at: Timestamp,
}

impl KnownTick {
    fn now(&self, local: Timestamp) -> Timestamp {
        (self.base + local.since(self.at)).min(self.end())
    }

    fn end(&self) -> Timestamp {
        self.tick.time + CAP
    }

    /// Returns the gaps without what `now` shows of them: that of the process that wrote the tick was behind.
    fn gaps(&self) -> Duration {
        self.tick.gaps.saturating_sub(self.base.since(self.tick.time))
    }
}

impl Ticked {
    /// Takes over a tick that has become known, `local` being read after that. Earlier ones than the known one change
    /// nothing.
    pub(crate) fn learn(&mut self, tick: Tick, source: Source, local: Timestamp) {
        let is_known = |known: &KnownTick| (tick.life, tick.time) <= (known.tick.life, known.tick.time);
        if self.0.as_ref().is_some_and(is_known) {
            return;
        }
        // In another life `now` begins anew.
        let before = self.0.as_ref().filter(|known| known.tick.life == tick.life);
        let base = before.map_or(tick.time, |known| known.now(local).max(tick.time));
        let is_old = source == Source::Read && before.is_none_or(|known| known.is_old);
        self.0 = Some(KnownTick { tick, is_own: source == Source::Own, is_old, base, at: local });
    }

    /// Forgets everything: the store has gone back to an earlier state.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// Records that ticks may have been missed.
    pub(crate) fn doubt(&mut self) {
        self.0.iter_mut().for_each(|known| known.is_old = true);
    }

    /// Returns the time for a step that promises ends, if the clock is known.
    pub(crate) fn time(&self, local: Timestamp) -> Option<Time> {
        let known = self.0.as_ref()?;
        let now = known.now(local);
        let basis = Basis::Tick { life: known.tick.life, version: Arc::clone(&known.tick.version) };
        Some(Time { now, spread: known.tick.latest().since(now), gaps: known.gaps(), basis })
    }

    /// Returns when this process ticks, unless it learns of another tick before. `draw` is below 1,024. A tick of a
    /// process that is behind this one, such as a visitor, postpones it by as much less: many visitors would keep the
    /// time back.
    pub(crate) fn due(&self, draw: u32) -> Option<Timestamp> {
        let KnownTick { tick, is_own, base, at, .. } = self.0.as_ref()?;
        let [least, more] = AFTER_OTHERS;
        let after_others = || (least + more / 1024 * draw).saturating_sub(base.since(tick.time));
        Some(*at + if *is_own { AFTER_OWN } else { after_others() })
    }

    /// Returns the tick that follows the known one, with that.
    pub(crate) fn next(&self, local: Timestamp, least: Least) -> Option<(Tick, Next)> {
        let known = self.0.as_ref()?;
        let (tick, now) = (&known.tick, known.now(local));
        // Another jump may have been reached since it was asked for, which says nothing of this one.
        let time = if least.jump == tick.jump { now.max(tick.jump) } else { now };
        // Gaps become shorter by what the time catches up.
        let wall = tick.time + tick.gaps + local.since(known.at);
        let next = Next { time, gaps: wall.max(least.wall).since(time) };
        (time > tick.time).then(|| (tick.clone(), next))
    }

    /// Returns whether no gap is on its way: otherwise this process ticks before a step that counts gaps, because the
    /// step would be dated before a gap that the next tick adds.
    pub(crate) fn is_settled(&self, local: Timestamp) -> bool {
        !self.is_old() && self.0.as_ref().is_some_and(|known| known.now(local) < known.end())
    }

    /// Returns whether nobody knows how old the known tick is.
    pub(crate) fn is_old(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.is_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn tick(life: i64, millis: u64) -> Tick {
        let jump = Timestamp::default();
        Tick { life, version: millis.to_be_bytes().into(), time: at(millis), gaps: Duration::ZERO, jump }
    }

    fn wall(millis: u64) -> Least {
        Least { wall: at(millis), ..Least::default() }
    }

    fn known(clock: &Ticked, local: u64) -> (Timestamp, Duration) {
        clock.time(at(local)).map(|time| (time.now, time.spread)).unwrap()
    }

    #[test]
    fn now_runs_on_and_stops_at_the_cap() {
        let mut clock = Ticked::default();
        assert_eq!(clock.time(at(5)), None);
        clock.learn(tick(1, 10_000), Source::Read, at(100));
        assert_eq!(known(&clock, 100), (at(10_000), CAP));
        assert_eq!(known(&clock, 400), (at(10_300), Duration::from_millis(700)));
        assert_eq!(known(&clock, 9_000), (at(11_000), Duration::ZERO));
        // `now` is not set back by a tick that took long to arrive.
        clock.learn(tick(1, 10_200), Source::Told, at(9_000));
        assert_eq!(known(&clock, 9_000), (at(11_000), Duration::from_millis(200)));
    }

    #[test]
    fn earlier_ticks_change_nothing_and_another_life_begins_anew() {
        let mut clock = Ticked::default();
        clock.learn(tick(3, 10_000), Source::Told, at(100));
        for earlier in [tick(3, 10_000), tick(3, 9_999), tick(2, 20_000)] {
            clock.learn(earlier, Source::Told, at(300));
            assert_eq!(known(&clock, 300).0, at(10_200));
        }
        clock.learn(tick(4, 5_000), Source::Told, at(300));
        assert_eq!(known(&clock, 300), (at(5_000), CAP));
    }

    #[test]
    fn own_ticks_come_sooner() {
        let mut clock = Ticked::default();
        clock.learn(tick(1, 1_000), Source::Own, at(100));
        assert_eq!(clock.due(1023), Some(at(600)));
        clock.learn(tick(1, 1_500), Source::Told, at(600));
        assert_eq!(clock.due(0), Some(at(1_300)));
        assert!(clock.due(1023).is_some_and(|due| due > at(1_499) && due < at(1_500)));
    }

    #[test]
    fn visitors_do_not_keep_the_time_back() {
        let mut clock = Ticked::default();
        clock.learn(tick(1, 1_000), Source::Own, at(100));
        clock.learn(tick(1, 1_040), Source::Told, at(400));
        assert_eq!(clock.due(0), Some(at(840)), "the visitor was 260 ms behind");
        clock.learn(tick(1, 1_080), Source::Told, at(5_000));
        assert_eq!(clock.due(0), Some(at(5_000)), "this process is at its cap");
    }

    #[test]
    fn jump_is_shown_at_once_and_shortens_gaps() {
        let mut clock = Ticked::default();
        let seconds = Duration::from_secs;
        clock.learn(Tick { gaps: seconds(5), jump: at(41_000), ..tick(1, 1_000) }, Source::Read, at(100));
        assert_eq!(known(&clock, 400), (at(1_300), Duration::from_millis(39_700)));
        let next = |local, least| clock.next(at(local), least).map(|(_, Next { time, gaps })| (time, gaps));
        assert_eq!(next(400, wall(66_000)), Some((at(1_300), at(66_000).since(at(1_300)))));
        let jump = |jump| Least { jump: at(jump), wall: at(66_000) };
        assert_eq!(next(400, jump(41_000)), Some((at(41_000), seconds(25))));
        let unknown = Least { wall: at(0), ..jump(41_000) };
        assert_eq!(next(400, unknown), Some((at(41_000), Duration::ZERO)), "nobody knows what has passed");
    }

    /// A process asks whether a jump is reached, and learns of other ticks before it knows.
    #[test]
    fn jump_of_another_tick_is_not_shown() {
        let asked = Least { jump: at(140_000), wall: at(0) };
        for jump in [at(0), at(141_500), at(139_000)] {
            let mut clock = Ticked::default();
            clock.learn(Tick { jump: at(140_000), ..tick(1, 100_000) }, Source::Read, at(0));
            clock.learn(Tick { jump, ..tick(1, 101_500) }, Source::Told, at(2_000));
            let (_, next) = clock.next(at(2_100), Least::default()).unwrap();
            assert_eq!(clock.next(at(2_100), asked).unwrap().1, next, "{jump:?}");
        }
    }

    /// The gap that a visitor counts is what this process has seen pass.
    #[test]
    fn what_a_process_sees_pass_is_no_gap() {
        let (mut clock, millis) = (Ticked::default(), Duration::from_millis);
        clock.learn(tick(1, 1_000), Source::Own, at(100));
        let wall =
            |clock: &Ticked, local| clock.time(at(local)).map(|time| (time.now + time.gaps).as_micros());
        for visit in 1..=20 {
            let (visitor, gaps) = (tick(1, 1_000 + 10 * visit), millis(290 * visit));
            clock.learn(Tick { gaps, ..visitor }, Source::Told, at(100 + 300 * visit));
            assert_eq!(wall(&clock, 100 + 300 * visit), Some((1_000 + 300 * visit) * 1_000));
        }
        let (_, Next { time, gaps }) = clock.next(at(6_100), Least::default()).unwrap();
        assert_eq!(time + gaps, at(7_000));
    }

    #[test]
    fn gaps_are_what_the_time_does_not_show() {
        let mut clock = Ticked::default();
        clock.learn(tick(1, 1_000), Source::Own, at(100));
        let gaps = |clock: &Ticked, local, least| {
            clock.next(at(local), wall(least)).map(|(_, next)| (next.time, next.gaps.as_secs()))
        };
        assert_eq!(gaps(&clock, 100, 0), None, "no time has passed");
        assert_eq!(gaps(&clock, 600, 0), Some((at(1_500), 0)));
        assert_eq!(gaps(&clock, 61_100, 0), Some((at(2_000), 60)), "nobody else has ticked for a minute");
        assert_eq!(gaps(&clock, 1_100, 3_602_000), Some((at(2_000), 3_600)), "an old tick");
        assert!(clock.is_settled(at(1_099)) && !clock.is_settled(at(1_100)));
        clock.learn(tick(1, 1_500), Source::Read, at(1_000));
        assert!(clock.is_settled(at(1_000)), "the refusal of a write has shown it");
        clock.doubt();
        assert!(!clock.is_settled(at(1_000)), "nobody knows how old it is");
        let mut fresh = Ticked::default();
        fresh.learn(tick(1, 1_500), Source::Read, at(1_000));
        assert!(!fresh.is_settled(at(1_000)));
    }
}
