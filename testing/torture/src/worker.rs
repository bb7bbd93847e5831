//! A worker process: takes locks, changes the resource that they protect, and reports both.

use crate::{
    clock::now,
    kinds::{self, Kind},
    record::Record,
    resource::Resource,
    together,
};
use clap::Args;
use fastrand::Rng;
use locker_checker::format::{Call, Mode, Operation, Outcome};
use locker_runtime::{ErrorKind, Guard, Guards, LockAllRequest, Locker, Result};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

pub(crate) const LEASE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
pub(crate) struct Work {
    /// The number of the worker in the history.
    #[arg(long)]
    pub(crate) worker: u64,
    /// The server of the locks.
    #[arg(long)]
    pub(crate) url: String,
    /// The server of the protected resource.
    #[arg(long)]
    pub(crate) resource: String,
    #[arg(long, value_delimiter = ',')]
    pub(crate) kinds: Vec<Kind>,
    #[arg(long)]
    pub(crate) names: usize,
    /// The number of threads that call.
    #[arg(long)]
    pub(crate) callers: usize,
}

impl Work {
    /// Runs until it is killed or nobody listens to it.
    pub(crate) fn run(&self, record: &Record) {
        let Some(locker) = self.connect() else { return };
        std::thread::scope(|scope| {
            for _ in 0..self.callers {
                scope.spawn(|| self.call(&locker, record));
            }
        });
    }

    /// Returns the arguments of a process that does this work.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let kinds: Vec<String> = self.kinds.iter().map(|kind| kind.text()).collect();
        let options = [
            ("--worker", self.worker.to_string()),
            ("--url", self.url.clone()),
            ("--resource", self.resource.clone()),
            ("--kinds", kinds.join(",")),
            ("--names", self.names.to_string()),
            ("--callers", self.callers.to_string()),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once("worker".to_owned()).chain(options).collect()
    }

    fn call(&self, locker: &Locker, record: &Record) -> Option<()> {
        let mut resource = Resource::open(&self.resource)?;
        let mut rng = Rng::new();
        loop {
            let kind = rng.choice(self.kinds.iter().copied())?;
            let name = kind.name(rng.usize(..self.names));
            match kind {
                Kind::Limiter => pass(locker, record, &name, &mut rng)?,
                kind if kind.whole() == 0 => together::take_part(kind, locker, record, &name, &mut rng)?,
                kind => self.hold(kind, name, locker, record, &mut resource, &mut rng)?,
            }
        }
    }

    /// Takes locks or permits, changes the resource, and releases.
    fn hold(
        &self,
        kind: Kind,
        name: String,
        locker: &Locker,
        record: &Record,
        resource: &mut Resource,
        rng: &mut Rng,
    ) -> Option<()> {
        let (share, patience) = (kind.share(rng), patience(rng));
        let names = if kind == Kind::LockAll { self.names_of(kind) } else { vec![name] };
        let mut holds = Holds::begin(record, kind, &names, share, patience);
        holds.say(|_| ())?;
        holds.ask();
        let held = match kind {
            Kind::LockAll => self.all(locker, rng).timeout(patience).acquire_blocking().map(Held::All),
            _ => kind.ask(locker, &names[0], share).timeout(patience).acquire_blocking().map(Held::One),
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => {
                let at = now();
                return holds.say(|call| (call.outcome, call.ended) = (missed(error.kind()), Some(at)));
            }
        };
        holds.enter(&held.fences());
        let fences: Vec<(String, u64)> = names.into_iter().zip(held.fences()).collect();
        let change = |change| {
            for (name, fence) in fences.iter().filter(|_| share == kind.whole()) {
                match change {
                    1 => resource.add_plainly(name),
                    _ => resource.add_fenced(name, *fence),
                }
            }
        };
        let stay = Duration::from_millis(rng.u64(..12));
        let seen = protected(&held, stay, |seen| holds.say(|call| call.seen = Some(seen)), change);
        let left = now();
        holds.say(|call| (call.seen, call.left) = (seen, Some(left)))?;
        let (outcome, ended) = (end(held), now());
        holds.say(|call| (call.outcome, call.ended) = (outcome, Some(ended)))
    }

    /// Returns the names of the kind, in the order of their keys.
    fn names_of(&self, kind: Kind) -> Vec<String> {
        let names: BTreeSet<String> = (0..self.names).map(|number| kind.name(number)).collect();
        names.into_iter().collect()
    }

    /// Returns a request for all locks, in any order, with some of them named twice.
    fn all(&self, locker: &Locker, rng: &mut Rng) -> LockAllRequest {
        let mut names = [self.names_of(Kind::LockAll), self.names_of(Kind::LockAll)].concat();
        names.truncate(rng.usize(self.names..=names.len()));
        rng.shuffle(&mut names);
        locker.lock_all(names)
    }

    fn connect(&self) -> Option<Locker> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            let builder =
                Locker::builder().url(&self.url).lease(LEASE).command_timeout(Duration::from_millis(200));
            if let Ok(locker) = builder.build_blocking() {
                return Some(locker);
            }
        }
        None
    }
}

/// Returns how long a caller waits. Some give up while they wait.
fn patience(rng: &mut Rng) -> Duration {
    Duration::from_millis(if rng.bool() { 3_000 } else { rng.u64(..30) })
}

fn missed(error: ErrorKind) -> Outcome {
    match error {
        ErrorKind::TimedOut => Outcome::TimedOut,
        ErrorKind::Limited => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

/// What is recorded about one hold, or about several together.
struct Holds<'a> {
    record: &'a Record,
    calls: Vec<Operation>,
}

impl<'a> Holds<'a> {
    fn begin(record: &'a Record, kind: Kind, names: &[String], share: u64, patience: Duration) -> Self {
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

    /// Begins the calls. What was said about them before has an earlier time.
    fn ask(&mut self) {
        let asked = now();
        self.calls.iter_mut().for_each(|call| call.asked = asked);
    }

    fn enter(&mut self, fences: &[u64]) {
        let entered = now();
        for (call, fence) in self.calls.iter_mut().zip(fences) {
            (call.outcome, call.entered, call.fence) = (Outcome::Granted, Some(entered), Some(*fence));
        }
    }

    /// Changes and reports what is known.
    fn say(&mut self, change: impl FnMut(&mut Operation)) -> Option<()> {
        self.calls.iter_mut().for_each(change);
        self.calls.iter().try_for_each(|call| self.record.say(call))
    }
}

/// One hold, or several together.
enum Held {
    One(Guard),
    All(Guards),
}

impl Held {
    fn fences(&self) -> Vec<u64> {
        match self {
            Self::One(guard) => vec![guard.fence()],
            Self::All(guards) => guards.each().iter().map(Guard::fence).collect(),
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::One(guard) => guard.check(),
            Self::All(guards) => guards.check(),
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Self::One(guard) => guard.remaining(),
            Self::All(guards) => guards.remaining(),
        }
    }

    fn release_blocking(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.release_blocking(),
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

/// Asks a limiter for an admission, and reports it with its times.
fn pass(locker: &Locker, record: &Record, name: &str, rng: &mut Rng) -> Option<()> {
    let (tokens, patience) = (rng.u64(1..3), patience(rng).min(Duration::from_millis(400)));
    let mut call = record.call(Kind::Limiter.in_history(), name, Call::Admit);
    (call.tokens, call.quota) = (tokens, Some(kinds::quota(name)));
    call.timeout = u64::try_from(patience.as_nanos()).ok();
    record.say(&call)?;
    call.asked = now();
    let admitted = kinds::limiter(locker, name).tokens(tokens).timeout(patience).acquire_blocking();
    call.ended = Some(now());
    call.outcome = admitted.map_or_else(|error| missed(error.kind()), |_| Outcome::Admitted);
    record.say(&call)
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
