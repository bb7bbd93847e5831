//! What the clock's node holds, and how time is measured while no process stays.
//!
//! Where processes only come for moments, the clock would hardly move. So one that leaves, and knows of no other that
//! stays, has its tick name a jump. Then it opens another session, which nobody keeps alive: an ephemeral node of it is
//! there until the leader has measured the session's timeout, which another leader begins anew. A process that comes
//! and finds no such node has the clock jump.

use locker_cas::ticked::{Next, Tick};
use locker_core::clock::Timestamp;
use std::{str::from_utf8, time::Duration};

/// How long a session lasts that measures, if the servers agree (`maxSessionTimeout`).
pub(super) const JUMP: Duration = Duration::from_secs(40);

/// How long a process is a visitor: its ticks keep the jump that another one has named. Otherwise visits of a second
/// would put a jump off for ever.
pub(super) const STAYS_AFTER: Duration = Duration::from_secs(5);

/// How long after its last tick a process that stays is taken for ended: for as long as a visitor may have ticked in
/// its place, and some time more.
const ALONE_AFTER: Duration = STAYS_AFTER.saturating_add(Duration::from_secs(2));

/// What is in the node: the time in microseconds since 1970, and how long it has stood still in all. Ticks of processes
/// that come for moments also have the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) next: Next,
    /// The time with the gaps at the last tick of a process that stays.
    pub(super) stayed: Timestamp,
    /// Where the time may jump, 0 for nowhere.
    pub(super) jump: Timestamp,
    /// The number of the node of the session that measures the jump, 0 while there is none.
    pub(super) gauge: u64,
}

impl Text {
    /// The tick of a process that stays.
    pub(super) fn of_one_that_stays(next: Next) -> Self {
        Self { next, stayed: next.wall(), ..Self::default() }
    }

    /// The tick after `self` of a process that comes for a moment. The jump stays where it is until it is reached.
    pub(super) fn of_visitor(self, next: Next) -> Self {
        let jump = if self.jump > next.time { self } else { Self::default() };
        Self { next, stayed: self.stayed, jump: jump.jump, gauge: jump.gauge }
    }

    /// Returns this tick with a new jump, if nobody else stays and none is measured. `own` is the last tick of this
    /// process as one that stays.
    pub(super) fn of_one_that_leaves(self, own: Timestamp) -> Self {
        let is_alone = self.stayed == own || self.next.wall().since(self.stayed) > ALONE_AFTER;
        let jump = if is_alone && self.gauge == 0 { self.next.time + JUMP } else { self.jump };
        Self { jump, ..self }
    }

    /// The tick after `self` that names the node `gauge` of a session, which lasts for `timeout` and has begun after
    /// `self` was written.
    pub(super) fn with_gauge(self, next: Next, gauge: u64, timeout: Duration) -> Self {
        Self { next, gauge, jump: self.jump.min(self.next.time + timeout), ..self }
    }

    /// Returns whether the jump lacks what measures it.
    pub(super) fn lacks_gauge(&self) -> bool {
        self.jump > self.next.time && self.gauge == 0
    }

    /// Returns the node that measures the jump.
    pub(super) fn measured_by(&self) -> Option<u64> {
        (self.jump > self.next.time && self.gauge != 0).then_some(self.gauge)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { next: Next { time, gaps }, stayed, jump, gauge } = self;
        let text = format!("{} {}", time.as_micros(), gaps.as_micros());
        if *self == Self::of_one_that_stays(self.next) {
            return text.into();
        }
        format!("{text} {} {} {gauge:x}", stayed.as_micros(), jump.as_micros()).into()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let words: Vec<_> = from_utf8(bytes).ok()?.split(' ').collect();
        let number = |word: &str| word.parse().ok();
        let next = |time, gaps| {
            Some(Next {
                time: Timestamp::from_micros(number(time)?),
                gaps: Duration::from_micros(number(gaps)?),
            })
        };
        match words[..] {
            [time, gaps] => next(time, gaps).map(Self::of_one_that_stays),
            [time, gaps, stayed, jump, gauge] => Some(Self {
                next: next(time, gaps)?,
                stayed: Timestamp::from_micros(number(stayed)?),
                jump: Timestamp::from_micros(number(jump)?),
                gauge: u64::from_str_radix(gauge, 16).ok()?,
            }),
            _ => None,
        }
    }

    pub(super) fn tick(&self, life: i64, version: i32) -> Tick {
        let (version, Next { time, gaps }) = (version.to_be_bytes().into(), self.next);
        Tick { life, version, time, gaps, jump: self.jump }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(seconds: u64, gaps: u64) -> Next {
        Next { time: at(seconds), gaps: Duration::from_secs(gaps) }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn texts_are_read_as_written() {
        let stays = Text::of_one_that_stays(next(1_764_000_000, 3));
        assert_eq!(stays.bytes(), b"1764000000000000 3000000");
        let leaves = Text { stayed: at(7), jump: at(9), gauge: u64::MAX, ..stays };
        for text in [stays, leaves, Text { gauge: 0, ..leaves }, Text { jump: at(0), gauge: 0, ..leaves }] {
            assert_eq!(Text::read(&text.bytes()), Some(text));
        }
        for other in ["", "1", "1 2 3", "1 2 3 4", "1 2 3 4 x", "1 2 3 4 5 6", "x 2", "-1 2", "1  2"] {
            assert_eq!(Text::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn jump_is_named_by_one_that_leaves_alone() {
        let stays = Text::of_one_that_stays(next(100, 5));
        let beside = stays.of_visitor(next(101, 6));
        assert_eq!((beside.stayed, beside.jump), (at(105), at(0)));
        assert_eq!(beside.of_one_that_leaves(at(1)), beside, "another process has ticked 2 s ago");
        let long_ago = stays.of_visitor(next(101, 11)).of_one_that_leaves(at(1));
        assert_eq!(long_ago.jump, at(0), "a visitor may have ticked in its place for 6 s");
        let own = beside.of_one_that_leaves(at(105));
        assert_eq!((own.jump, own.gauge), (at(101) + JUMP, 0), "the process that ticked is this one");
        let later = stays.of_visitor(next(101, 13)).of_one_that_leaves(at(1));
        assert!(later.lacks_gauge() && later.measured_by().is_none(), "nobody has ticked for 8 s");
    }

    #[test]
    fn jump_goes_on_among_visits_until_it_is_reached() {
        let first = Text::of_one_that_stays(next(100, 0)).of_visitor(next(101, 9)).of_one_that_leaves(at(1));
        let seconds = Duration::from_secs;
        let measured = first.with_gauge(next(102, 9), 7, seconds(10));
        assert_eq!((measured.jump, measured.measured_by()), (at(111), Some(7)), "the session is shorter");
        assert_eq!(first.with_gauge(next(102, 9), 7, seconds(60)).jump, first.jump, "it is longer");
        let visited = measured.of_visitor(next(103, 12)).of_one_that_leaves(at(1));
        assert_eq!((visited.jump, visited.gauge), (at(111), 7), "it is still measured");
        let reached = visited.of_visitor(next(111, 20));
        assert_eq!((reached.jump, reached.gauge), (at(0), 0));
        assert_eq!(reached.of_one_that_leaves(at(1)).jump, at(111) + JUMP);
        let lost = first.of_visitor(next(102, 12)).of_one_that_leaves(at(1));
        assert_eq!(lost.jump, at(102) + JUMP, "the process has ended before it was measured");
        assert!(!Text::of_one_that_stays(next(103, 9)).lacks_gauge());
    }
}
