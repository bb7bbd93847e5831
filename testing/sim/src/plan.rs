//! What a seed means: processes, their clocks, what their callers do, and what breaks.

use crate::fleet::Clock;
use fastrand::Rng;
use std::fmt;

const SECOND: u64 = 1_000;

/// A whole simulation. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Decides the order of all that happens at the same time, and every random number of the code.
    pub(crate) seed: u64,
    /// Whether the store has a clock that its processes move on.
    pub(crate) ticked: bool,
    /// The time of a round trip.
    pub(crate) delay: u64,
    /// How many of a hundred exchanges and messages go wrong.
    pub(crate) faults: u32,
    pub(crate) processes: Vec<Process>,
    pub(crate) breaks: Vec<Break>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    /// What each of its callers does, one after the other.
    pub(crate) callers: Vec<Vec<Step>>,
}

/// What a caller does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Does nothing for a while.
    Rest(u64),
    /// Holds something for a while.
    Hold { what: Held, lease: u64, renew: bool, timeout: u64, body: u64, end: End },
    /// Holds a lock by name, and renews it, maybe from another process.
    Named { name: &'static str, expires: u64, timeout: u64, renews: Vec<Renewal>, release: bool },
    /// Asks a limiter.
    Limit { name: &'static str, tokens: u64, patience: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Renewal {
    pub(crate) after: u64,
    pub(crate) expires: u64,
    /// The process that asks for it.
    pub(crate) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Held {
    Lock(&'static str),
    Semaphore(&'static str, u64),
    Read(&'static str),
    Write(&'static str),
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Release,
    /// The guard is dropped.
    Drop,
    /// It is forgotten, as by a body that hangs. It is not renewed.
    Leave,
}

/// What breaks, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Break {
    pub(crate) at: u64,
    pub(crate) process: usize,
    /// How long the process is stopped. `None`: it is killed.
    pub(crate) stopped_for: Option<u64>,
}

/// The permits of every semaphore.
pub(crate) const SEMAPHORE: u64 = 3;
/// The tokens and the interval of every limiter.
pub(crate) const LIMIT: (u64, u64) = (3, 2 * SECOND);
/// The longest time that a caller holds.
const LONGEST_BODY: u64 = SECOND;
/// How long a patient caller waits. Longer than all others together can keep it waiting.
pub(crate) const PATIENT: u64 = 90 * SECOND;
/// The longest stop of a process.
const LONGEST_STOP: u64 = 8 * SECOND;

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let processes: Vec<_> = (0..rng.usize(3..=8)).map(|_| Process::any(&mut rng)).collect();
        let ticked = rng.bool();
        let faults = if rng.u8(..4) == 0 { 0 } else { rng.u32(1..12) };
        let delay = rng.u64(1..=20);
        let breaks = (0..rng.usize(..4)).map(|_| Break::any(&mut rng, processes.len())).collect();
        Self { seed, ticked, delay, faults, processes, breaks }
    }

    /// Returns the number of things that the plan has.
    pub(crate) fn size(&self) -> usize {
        let steps = self.processes.iter().flat_map(|process| &process.callers).map(Vec::len).sum::<usize>();
        steps + self.breaks.len() + usize::from(self.faults > 0)
    }
}

impl Process {
    fn any(rng: &mut Rng) -> Self {
        // Two clocks drift apart by at most a thousandth.
        let clock = Clock { ahead: rng.i64(-3_600_000_000..3_600_000_000), faster: rng.i64(-450..=450) };
        let callers = (0..rng.usize(1..=4)).map(|_| (0..rng.usize(1..=5)).map(|_| Step::any(rng)).collect());
        Self { clock, callers: callers.collect() }
    }
}

impl Step {
    fn any(rng: &mut Rng) -> Self {
        // Some callers come for a moment only, some wait as long as it takes.
        let timeout = match rng.u8(..5) {
            0 => 0,
            1 => 50,
            2 => rng.u64(1..5) * SECOND,
            _ => PATIENT,
        };
        match rng.u8(..10) {
            0 => Self::Rest(rng.u64(1..6 * SECOND)),
            1 => Self::Limit { name: "limit", tokens: rng.u64(1..3), patience: timeout.min(20 * SECOND) },
            2 => {
                let renewal = |rng: &mut Rng| {
                    let (after, expires) = (rng.u64(..3 * SECOND), rng.u64(1..8) * SECOND / 2);
                    Renewal { after, expires, at: rng.usize(..8) }
                };
                let renews = (0..rng.usize(..3)).map(|_| renewal(rng)).collect();
                let (expires, release) = (rng.u64(1..8) * SECOND / 2, rng.bool());
                Self::Named { name: "named", expires, timeout, renews, release }
            }
            kind => {
                let what = match kind {
                    3..=6 => Held::Lock(if rng.bool() { "a" } else { "b" }),
                    7 | 8 => Held::Semaphore("s", rng.u64(1..3)),
                    _ if rng.bool() => Held::Read("rw"),
                    _ => Held::Write("rw"),
                };
                let end = match rng.u8(..8) {
                    0 => End::Leave,
                    1 => End::Drop,
                    _ => End::Release,
                };
                let (lease, body) = (rng.u64(1..6) * SECOND, rng.u64(..LONGEST_BODY));
                let renew = end != End::Leave && rng.u8(..4) > 0;
                Self::Hold { what, lease, renew, timeout, body, end }
            }
        }
    }
}

impl Break {
    fn any(rng: &mut Rng, processes: usize) -> Self {
        let stopped_for = rng.bool().then(|| rng.u64(SECOND..LONGEST_STOP));
        Self { at: rng.u64(..20 * SECOND), process: rng.usize(..processes), stopped_for }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, ticked, delay, faults, .. } = self;
        let clock = if *ticked { "moved on by its processes" } else { "served by the store" };
        writeln!(
            f,
            "seed {seed}, the clock is {clock}, {delay} ms for a round trip, {faults} % of exchanges fail"
        )?;
        for (number, process) in self.processes.iter().enumerate() {
            let Clock { ahead, faster } = process.clock;
            writeln!(f, "process {}: clock {} ms ahead, {faster} ppm faster", number + 1, ahead / 1000)?;
            for caller in &process.callers {
                writeln!(f, "    {caller:?}")?;
            }
        }
        for Break { at, process, stopped_for } in &self.breaks {
            match stopped_for {
                Some(time) => writeln!(f, "at {at} ms process {} stops for {time} ms", process + 1)?,
                None => writeln!(f, "at {at} ms process {} is killed", process + 1)?,
            }
        }
        Ok(())
    }
}
