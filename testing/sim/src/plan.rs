//! What a seed means: processes, their clocks, what their callers do, and what breaks.

mod scenes;

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
    /// How long a patient caller waits. Longer than all others together can keep it waiting.
    pub(crate) patience: u64,
    /// How many values are written at most.
    pub(crate) writes: Option<u64>,
    pub(crate) processes: Vec<Process>,
    pub(crate) breaks: Vec<Break>,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    /// When it starts.
    pub(crate) starts: u64,
    /// What each of its callers does, one after the other.
    pub(crate) callers: Vec<Vec<Step>>,
}

/// What a caller does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Does nothing for a while.
    Rest(u64),
    /// Does nothing until a time.
    Until(u64),
    /// Holds something for a while, or until it is lost.
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
    pub(crate) what: Broken,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Broken {
    Killed {
        process: usize,
    },
    Stopped {
        process: usize,
        time: u64,
    },
    /// The store takes its messages for undeliverable.
    Deaf {
        process: usize,
        time: u64,
    },
    /// The store loses the writes since the last that was to survive this.
    StoreCrashed,
}

/// The permits of every semaphore.
pub(crate) const SEMAPHORE: u64 = 3;
/// The tokens and the interval of every limiter.
pub(crate) const LIMIT: (u64, u64) = (3, 2 * SECOND);
/// The longest stop of a process.
const LONGEST_STOP: u64 = 12 * SECOND;
/// One seed of so many has a rush at the limiter. Otherwise it is hardly ever asked for more than it admits.
const RUSHES: u64 = 8;
/// The end of a lull, in which no caller does anything for so long that no process moves the clock on.
const LULL: u64 = 60 * SECOND;

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (ticked, delay) = (rng.bool(), rng.u64(1..=20));
        let faults = if rng.u8(..3) == 0 { 0 } else { rng.u32(1..12) };
        let rng = &mut rng;
        let plan = match rng.u8(..20) {
            0 | 1 => Self::crowd(rng),
            2 | 3 => Self::late_start(rng),
            4 | 5 => Self::return_of_a_holder(rng),
            6 => Self::long_wait(rng),
            7 => Self::crash(rng),
            8 | 9 => Self::renewal_elsewhere(rng),
            10 | 11 => Self::visits(rng),
            kind => Self::any(rng, kind < 14, kind > 16),
        };
        let faults = if plan.writes.is_some() {
            0
        } else if plan.breaks.is_empty() {
            faults / 6
        } else {
            faults
        };
        let mut plan = Self { seed, ticked, delay, faults, ..plan };
        // A crash loses reservations, whose callers are admitted nevertheless: no bound counts them.
        if seed % RUSHES == 1 && plan.writes.is_none() && !plan.has_crash() {
            plan.rush();
        }
        plan
    }

    fn with(processes: Vec<Process>, breaks: Vec<Break>) -> Self {
        let patience = 90 * SECOND;
        Self { seed: 0, ticked: false, delay: 0, faults: 0, patience, writes: None, processes, breaks }
    }

    fn any(rng: &mut Rng, has_lull: bool, is_calm: bool) -> Self {
        let processes: Vec<_> = (0..rng.usize(3..=8)).map(|_| Process::any(rng, has_lull)).collect();
        let many = if is_calm { 0 } else { rng.usize(1..6) };
        let breaks = (0..many).map(|_| Break::any(rng, processes.len(), has_lull)).collect();
        Self::with(processes, breaks)
    }

    pub(crate) fn has_crash(&self) -> bool {
        self.breaks.iter().any(|broken| broken.what == Broken::StoreCrashed)
    }

    /// Adds more callers of the limiter than it admits.
    fn rush(&mut self) {
        let step = Step::Limit { name: "limit", tokens: 1, patience: 15 * SECOND };
        for process in &mut self.processes {
            process.callers.extend(vec![vec![step.clone(); 8]; 2]);
        }
    }

    /// Returns whether nothing breaks and nothing is lost.
    pub(crate) fn is_calm(&self) -> bool {
        self.faults == 0 && self.breaks.is_empty()
    }

    /// Returns the number of things that the plan has.
    pub(crate) fn size(&self) -> usize {
        let steps = self.processes.iter().flat_map(|process| &process.callers).map(Vec::len).sum::<usize>();
        steps + self.breaks.len() + usize::from(self.faults > 0)
    }
}

impl Process {
    fn idle(rng: &mut Rng) -> Self {
        // Two clocks drift apart by at most a thousandth.
        let clock = Clock { ahead: rng.i64(-3_600_000_000..3_600_000_000), faster: rng.i64(-450..=450) };
        Self { clock, starts: 0, callers: Vec::new() }
    }

    fn any(rng: &mut Rng, has_lull: bool) -> Self {
        let steps = |rng: &mut Rng| (0..rng.usize(1..=5)).map(|_| Step::any(rng)).collect::<Vec<_>>();
        let caller = |rng: &mut Rng| {
            if has_lull { [steps(rng), vec![Step::Until(LULL)], steps(rng)].concat() } else { steps(rng) }
        };
        let callers = (0..rng.usize(1..=4)).map(|_| caller(rng)).collect();
        let starts = match rng.u8(..4) {
            0 if has_lull => LULL,
            1 => rng.u64(..15 * SECOND),
            _ => 0,
        };
        Self { starts, callers, ..Self::idle(rng) }
    }
}

impl Step {
    /// Holds a lock for a while, as a patient caller.
    fn hold(name: &'static str, lease: u64, renew: bool, body: u64) -> Self {
        Self::Hold { what: Held::Lock(name), lease, renew, timeout: 90 * SECOND, body, end: End::Release }
    }

    /// Holds a lock for longer than its lease.
    fn stay(name: &'static str, lease: u64, renew: bool) -> Self {
        Self::hold(name, lease, renew, lease + SECOND)
    }

    fn any(rng: &mut Rng) -> Self {
        // Some callers come for a moment only, some wait as long as it takes.
        let timeout = match rng.u8(..5) {
            0 => 0,
            1 => 50,
            2 => rng.u64(1..5) * SECOND,
            _ => 90 * SECOND,
        };
        match rng.u8(..12) {
            0 | 10 | 11 => Self::Rest(rng.u64(1..6 * SECOND)),
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
                    3..=6 => Held::Lock(if rng.u8(..4) > 0 { "a" } else { "b" }),
                    7 | 8 => Held::Semaphore("s", rng.u64(1..3)),
                    _ if rng.bool() => Held::Read("rw"),
                    _ => Held::Write("rw"),
                };
                let end = match rng.u8(..8) {
                    0 => End::Leave,
                    1 => End::Drop,
                    _ => End::Release,
                };
                let (lease, renew) = (rng.u64(1..6) * SECOND, end != End::Leave && rng.u8(..4) > 0);
                // Some stay until their lease is over.
                let body = if rng.u8(..4) == 0 { lease + SECOND } else { rng.u64(..SECOND) };
                Self::Hold { what, lease, renew, timeout, body, end }
            }
        }
    }
}

impl Break {
    fn any(rng: &mut Rng, processes: usize, has_lull: bool) -> Self {
        let process = rng.usize(..processes);
        let what = match rng.u8(..8) {
            0 => Broken::Killed { process },
            1 | 2 => Broken::Deaf { process, time: rng.u64(1..2 * SECOND) },
            3 => Broken::StoreCrashed,
            _ => Broken::Stopped { process, time: rng.u64(SECOND..LONGEST_STOP) },
        };
        let after = if has_lull && rng.bool() { LULL } else { 0 };
        Self { at: after + rng.u64(..20 * SECOND), what }
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
            let (Clock { ahead, faster }, starts) = (process.clock, process.starts);
            let clock = format!("clock {} ms ahead, {faster} ppm faster", ahead / 1000);
            writeln!(f, "process {}: {clock}, starts at {starts} ms", number + 1)?;
            for caller in &process.callers {
                writeln!(f, "    {caller:?}")?;
            }
        }
        for Break { at, what } in &self.breaks {
            match what {
                Broken::Stopped { process, time } => {
                    writeln!(f, "at {at} ms process {} stops for {time} ms", process + 1)?;
                }
                Broken::Deaf { process, time } => {
                    writeln!(
                        f,
                        "at {at} ms the store forgets the address of process {} for {time} ms",
                        process + 1
                    )?;
                }
                Broken::Killed { process } => writeln!(f, "at {at} ms process {} is killed", process + 1)?,
                Broken::StoreCrashed => writeln!(f, "at {at} ms the store crashes and starts again")?,
            }
        }
        Ok(())
    }
}
