//! What a caller holds, and what is recorded about it.

use crate::{clock::now, kinds::Kind, record::Record, resource::Resource};
use locker_checker::format::{Call, Mode, Operation, Outcome};
use locker_runtime::{ErrorKind, Guard, Guards, Result, private::BlockingScope};
use std::time::{Duration, Instant};

/// Returns the outcome of a call that failed.
pub(crate) fn missed(error: ErrorKind) -> Outcome {
    match error {
        ErrorKind::TimedOut => Outcome::TimedOut,
        ErrorKind::Limited => Outcome::Refused,
        ErrorKind::Deadlock => Outcome::Deadlock,
        _ => Outcome::Unknown,
    }
}

/// What is recorded about one hold, or about several together.
pub(crate) struct Holds<'a> {
    record: &'a Record,
    calls: Vec<Operation>,
}

impl<'a> Holds<'a> {
    pub(crate) fn begin(
        record: &'a Record,
        kind: Kind,
        names: &[String],
        share: u64,
        patience: Duration,
    ) -> Self {
        let call = |(place, name): (usize, &String)| {
            let mut call = record.call(kind.in_history(), name, Call::Acquire);
            call.timeout = u64::try_from(patience.as_nanos()).ok();
            call.in_line = place == 0;
            match kind {
                Kind::Semaphore => (call.permits, call.size) = (share, kind.whole()),
                Kind::ReadWrite if share < kind.whole() => call.mode = Some(Mode::Read),
                Kind::ReadWrite => call.mode = Some(Mode::Write),
                _ => {}
            }
            call
        };
        Self { record, calls: names.iter().enumerate().map(call).collect() }
    }

    /// Says that other calls hold until these have returned.
    pub(crate) fn inside<'b>(&mut self, others: impl Iterator<Item = &'b Self>)
    where
        'a: 'b,
    {
        let around: Vec<u64> = others.flat_map(|holds| &holds.calls).filter_map(|call| call.id).collect();
        self.calls.iter_mut().for_each(|call| call.around.clone_from(&around));
    }

    /// Begins the calls. What was said about them before has an earlier time.
    pub(crate) fn ask(&mut self) {
        let asked = now();
        self.calls.iter_mut().for_each(|call| call.asked = asked);
    }

    pub(crate) fn enter(&mut self, fences: &[u64]) {
        let entered = now();
        for (call, fence) in self.calls.iter_mut().zip(fences) {
            (call.outcome, call.entered, call.fence) = (Outcome::Granted, Some(entered), Some(*fence));
        }
    }

    /// Reports that the calls failed.
    pub(crate) fn miss(&mut self, error: ErrorKind) -> Option<()> {
        let at = now();
        self.say(|call| (call.outcome, call.ended) = (missed(error), Some(at)))
    }

    /// Changes the resource if the holds protect it, and stays for a while.
    pub(crate) fn change(
        &mut self,
        held: &Held,
        resource: &mut Resource,
        protects: bool,
        stay: Duration,
    ) -> Option<()> {
        let names = self.calls.iter().map(|call| call.name.clone());
        let fences: Vec<(String, u64)> = names.zip(held.fences()).filter(|_| protects).collect();
        let change = |change| {
            for (name, fence) in &fences {
                match change {
                    1 => resource.add_plainly(name),
                    _ => resource.add_fenced(name, *fence),
                }
            }
        };
        let seen = protected(held, stay, |seen| self.say(|call| call.seen = Some(seen)), change);
        self.say(|call| call.seen = seen.or(call.seen))
    }

    pub(crate) fn release(&mut self, held: Held) -> Option<()> {
        let left = now();
        self.say(|call| call.left = Some(left))?;
        let (outcome, ended) = (end(held), now());
        self.say(|call| (call.outcome, call.ended) = (outcome, Some(ended)))
    }

    /// Releases a hold that lasts for `least` from the time of its request, and reports it when that is over.
    pub(crate) fn release_late(&mut self, held: Held, least: Duration) -> Option<()> {
        let outcome = end(held);
        let asked = self.calls.iter().map(|call| call.asked).min()?;
        let kept = asked + u64::try_from(least.as_nanos()).ok()?;
        std::thread::sleep(Duration::from_nanos(kept.saturating_sub(now())));
        let left = now();
        self.say(|call| {
            if outcome == Outcome::Released && call.seen.is_some_and(|seen| seen < kept) {
                call.seen = Some(kept);
            }
            (call.outcome, call.left, call.ended) = (outcome, Some(left), Some(left));
        })
    }

    /// Changes and reports what is known.
    pub(crate) fn say(&mut self, change: impl FnMut(&mut Operation)) -> Option<()> {
        self.calls.iter_mut().for_each(change);
        self.calls.iter().try_for_each(|call| self.record.say(call))
    }
}

/// One hold, that of a body, or several together.
pub(crate) enum Held {
    One(Guard),
    Body(BlockingScope),
    All(Guards),
}

impl Held {
    pub(crate) fn fences(&self) -> Vec<u64> {
        match self {
            Self::One(guard) => vec![guard.fence()],
            Self::Body(scope) => vec![scope.guard().fence()],
            Self::All(guards) => guards.each().iter().map(Guard::fence).collect(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::One(guard) => guard.check(),
            Self::Body(scope) => scope.guard().check(),
            Self::All(guards) => guards.check(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::One(guard) => guard.remaining(),
            Self::Body(scope) => scope.guard().remaining(),
            Self::All(guards) => guards.remaining(),
        }
    }

    fn release_blocking(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.release_blocking(),
            Self::Body(scope) => scope.leave_checked(),
            Self::All(guards) => guards.release_blocking(),
        }
    }
}

/// Releases and returns the outcome. A loss while the lease provably runs is early.
fn end(held: Held) -> Outcome {
    let provably_until = Instant::now() + held.remaining();
    match held.release_blocking() {
        Ok(()) => Outcome::Released,
        Err(error) if error.kind() == ErrorKind::Lost && Instant::now() < provably_until => {
            Outcome::LostEarly
        }
        Err(_) => Outcome::Lost,
    }
}

/// Makes both changes, and returns the last moment at which the guard was provably held.
///
/// Returns `None` if it never was; then nothing was changed. That moment is reported before each change, so that the
/// history contains the changes of a worker that is killed.
fn protected(
    held: &Held,
    stay: Duration,
    mut report: impl FnMut(u64) -> Option<()>,
    mut change: impl FnMut(u32),
) -> Option<u64> {
    let (started, mut seen, mut changes) = (Instant::now(), None, 0);
    loop {
        let moment = now();
        if held.check().is_err() {
            return seen;
        }
        seen = Some(moment);
        if changes < 2 {
            report(moment)?;
        }
        changes += 1;
        match changes {
            1 | 2 => change(changes),
            _ if started.elapsed() >= stay => return seen,
            _ => {}
        }
        // The interval of the checks of the guard. The verdict depends on the times of the checks, not on this pause.
        std::thread::sleep(Duration::from_micros(200));
    }
}
