//! Plans of their own: courses that random callers hardly ever take.

use super::{Break, Broken, End, Held, LONGEST_STOP, LULL, Plan, Process, Renewal, SECOND, Step};
use fastrand::Rng;

/// The callers of a crowd, and how long one of another process waits at most although that of the crowd is silent.
const CROWD: (usize, u64) = (48, 20 * SECOND);

impl Plan {
    /// Returns a plan in which callers wait long: they ask again, and write nothing.
    pub(super) fn long_wait(rng: &mut Rng) -> Self {
        let mut processes: Vec<_> = (0..2).map(|_| Process::idle(rng)).collect();
        processes[0].callers.push(vec![Step::hold("a", 30 * SECOND, true, 60 * SECOND)]);
        processes[1].callers = vec![vec![Step::Rest(SECOND), Step::hold("a", 30 * SECOND, true, 20)]; 4];
        let refused = Step::Hold {
            what: Held::Lock("a"),
            lease: SECOND,
            renew: true,
            timeout: 0,
            body: 0,
            end: End::Release,
        };
        processes[1].callers.push([vec![Step::Rest(SECOND)], vec![refused; 40]].concat());
        // Grants, releases, seven renewals, and places that four waiters keep.
        Self { writes: Some(44), ..Self::with(processes, Vec::new()) }
    }

    /// Returns a plan in which the store crashes while a lock is handed from one process to the next.
    pub(super) fn crash(rng: &mut Rng) -> Self {
        let mut processes: Vec<_> = (0..4).map(|_| Process::idle(rng)).collect();
        for (number, process) in processes.iter_mut().enumerate() {
            let rest = Step::Rest(number as u64 * 100 + 1);
            process.callers.push(vec![rest, Step::hold("a", 5 * SECOND, true, 3 * SECOND / 2)]);
        }
        let at = rng.u64(1..4) * 3 * SECOND / 2 + rng.u64(..120);
        Self::with(processes, vec![Break { at, what: Broken::StoreCrashed }])
    }

    /// Returns a plan in which a new process takes a lock after a lull, and those come back that were there before.
    pub(super) fn late_start(rng: &mut Rng) -> Self {
        let mut processes: Vec<_> = (0..rng.usize(2..5)).map(|_| Process::idle(rng)).collect();
        let short = |rng: &mut Rng| Step::hold("a", rng.u64(2..5) * SECOND, false, 20);
        for process in &mut processes {
            let back = Step::Until(LULL + rng.u64(..3 * SECOND));
            process.callers.push(vec![short(rng), back, short(rng), short(rng)]);
        }
        processes[0].starts = LULL;
        processes[0].callers = vec![vec![Step::stay("a", rng.u64(2..6) * SECOND, rng.bool())]];
        Self::with(processes, Vec::new())
    }

    /// Returns a plan in which a process asks for a lock right after a stop.
    pub(super) fn return_of_a_holder(rng: &mut Rng) -> Self {
        let (at, time) = (rng.u64(2..8) * SECOND, rng.u64(SECOND..LONGEST_STOP));
        let mut processes: Vec<_> = (0..rng.usize(2..5)).map(|_| Process::idle(rng)).collect();
        for process in &mut processes {
            let back = Step::Until(at + time + rng.u64(..SECOND));
            process.callers.push(vec![
                Step::hold("a", 3 * SECOND, false, 20),
                back,
                Step::hold("a", 3 * SECOND, true, 20),
            ]);
        }
        let (asks, lease) = (at + rng.u64(..time), rng.u64(1..6) * SECOND);
        processes[0].callers.push(vec![Step::Until(asks), Step::stay("a", lease, rng.bool())]);
        let what = Broken::Stopped { process: 0, time };
        Self::with(processes, vec![Break { at, what }])
    }

    /// Returns a plan in which a process with many waiters falls silent.
    pub(super) fn crowd(rng: &mut Rng) -> Self {
        let hold = |timeout, body| {
            let (what, lease, renew, end) = (Held::Lock("a"), 2 * SECOND, true, End::Release);
            Step::Hold { what, lease, renew, timeout, body, end }
        };
        let mut processes: Vec<_> = (0..3).map(|_| Process::idle(rng)).collect();
        processes[0].callers.push(vec![hold(0, 3 * SECOND)]);
        processes[1].callers = vec![vec![Step::Rest(SECOND), hold(90 * SECOND, 20)]; CROWD.0];
        processes[2].callers = vec![vec![Step::Until(2 * SECOND), hold(CROWD.1, 20)]; 2];
        let time = 20 * SECOND;
        let what =
            if rng.bool() { Broken::Killed { process: 1 } } else { Broken::Stopped { process: 1, time } };
        Self { patience: CROWD.1, ..Self::with(processes, vec![Break { at: 5 * SECOND / 2, what }]) }
    }

    /// Returns a plan in which a process that has never seen a hold by name renews it, for longer or shorter than it
    /// lasts, while others wait for its end.
    pub(super) fn renewal_elsewhere(rng: &mut Rng) -> Self {
        let mut processes: Vec<_> = (0..rng.usize(3..6)).map(|_| Process::idle(rng)).collect();
        let at = processes.len() - 1;
        let named = |expires, renews, release| {
            let timeout = 60 * SECOND;
            Step::Named { name: "named", expires, timeout, renews, release }
        };
        let expires = rng.u64(4..8) * SECOND;
        let after = expires - rng.u64(1..4) * SECOND / 2;
        let renewal = Renewal { after, expires: rng.u64(1..5) * SECOND, at };
        processes[0].callers.push(vec![named(expires, vec![renewal], false)]);
        processes[at].callers.push(vec![Step::Rest(30 * SECOND)]);
        for process in &mut processes[1..at] {
            process.callers.push(vec![Step::Rest(SECOND / 2), named(SECOND, Vec::new(), true)]);
        }
        Self { patience: 40 * SECOND, ..Self::with(processes, Vec::new()) }
    }

    /// Returns a plan in which a hold is left to its lease, and callers of all processes come for a moment, while one
    /// waits.
    pub(super) fn visits(rng: &mut Rng) -> Self {
        let mut processes: Vec<_> = (0..rng.usize(3..6)).map(|_| Process::idle(rng)).collect();
        let hold = |timeout, end| {
            let (what, lease, body) = (Held::Lock("a"), 2 * SECOND, 0);
            Step::Hold { what, lease, renew: false, timeout, body, end }
        };
        processes[0].callers.push(vec![hold(0, End::Leave)]);
        for process in &mut processes[1..] {
            let visit = [Step::Rest(rng.u64(300..700)), hold(SECOND / 4, End::Release)];
            process.callers.push([vec![Step::Rest(SECOND)], vec![visit; 30].concat()].concat());
        }
        let patience = 8 * SECOND;
        processes[1].callers.push(vec![Step::Rest(SECOND), hold(patience, End::Release)]);
        Self { patience, ..Self::with(processes, Vec::new()) }
    }
}
