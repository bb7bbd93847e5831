//! A worker process: takes locks, changes the resource that they protect, and reports both.

use crate::{
    calls::Calls,
    kinds::{self, Kind},
    record::{self, now, say},
    resource::Resource,
    together,
};
use clap::Args;
use locker_runtime::{ErrorKind, Guard, Guards, LockAllRequest, Locker, Result};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

pub(crate) const LEASE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
pub(crate) struct Work {
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
    /// Runs until it is killed or its output is closed.
    pub(crate) fn run(&self) {
        let Some(locker) = self.connect() else { return };
        let calls = Calls::new(self.callers);
        std::thread::scope(|scope| {
            for caller in 0..self.callers {
                let (shared, locker, calls) = (record::shared(), &locker, &calls);
                scope.spawn(move || {
                    shared();
                    self.call(locker, |name| calls.begin(caller, name));
                });
            }
            calls.watch();
        });
    }

    /// Returns the arguments of a process that does this work.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let kinds: Vec<String> = self.kinds.iter().map(|kind| kind.text()).collect();
        let options = [
            ("--url", self.url.clone()),
            ("--resource", self.resource.clone()),
            ("--kinds", kinds.join(",")),
            ("--names", self.names.to_string()),
            ("--callers", self.callers.to_string()),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once("worker".to_owned()).chain(options).collect()
    }

    fn call(&self, locker: &Locker, begin: impl Fn(&str)) -> Option<()> {
        let mut resource = Resource::open(&self.resource)?;
        let mut rng = fastrand::Rng::new();
        loop {
            let kind = rng.choice(self.kinds.iter().copied())?;
            let name = kind.name(rng.usize(..self.names));
            begin(&name);
            // Some give up while they wait.
            let patience = Duration::from_millis(if rng.bool() { 3_000 } else { rng.u64(..30) });
            if kind == Kind::Limiter {
                pass(locker, &name, rng.u64(1..3), patience.min(Duration::from_millis(400)))?;
                continue;
            }
            if kind.whole() == 0 {
                together::take_part(kind, locker, &name, &mut rng)?;
                continue;
            }
            let share = kind.share(&mut rng);
            let asked = now();
            let held = match kind {
                Kind::LockAll => {
                    self.all(locker, &mut rng).timeout(patience).acquire_blocking().map(Held::All)
                }
                _ => kind.ask(locker, &name, share).timeout(patience).acquire_blocking().map(Held::One),
            };
            let Ok(held) = held else {
                say(&format!("missed {name}"))?;
                continue;
            };
            let entered = now();
            let names = if kind == Kind::LockAll { self.names_of(kind) } else { vec![name] };
            let fences: Vec<(String, u64)> = names.into_iter().zip(held.fences()).collect();
            let report = |state: &str, seen: Option<u64>| {
                let seen = seen.map_or("-".into(), |seen| seen.to_string());
                fences.iter().enumerate().try_for_each(|(place, (name, fence))| {
                    say(&format!("{state} {name} {fence} {share} {asked} {entered} {seen} {place} ."))
                })
            };
            let stay = Duration::from_millis(rng.u64(..12));
            let change = |resource: &mut Resource, change| {
                for (name, fence) in &fences {
                    match change {
                        _ if share < kind.whole() => {}
                        1 => resource.add_plainly(name),
                        _ => resource.add_fenced(name, *fence),
                    }
                }
            };
            let seen =
                protected(&held, stay, |seen| report("holding", Some(seen)), |at| change(&mut resource, at));
            report(end(held), seen)?;
        }
    }

    /// Returns the names of the kind, in the order of their keys.
    fn names_of(&self, kind: Kind) -> Vec<String> {
        let names: BTreeSet<String> = (0..self.names).map(|number| kind.name(number)).collect();
        names.into_iter().collect()
    }

    /// Returns a request for all locks, in any order, with some of them named twice.
    fn all(&self, locker: &Locker, rng: &mut fastrand::Rng) -> LockAllRequest {
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

/// Releases and returns the outcome. A loss while the lease provably runs is `early`.
fn end(held: Held) -> &'static str {
    let provably_until = Instant::now() + held.remaining();
    match held.release_blocking() {
        Ok(()) => "released",
        Err(error) if error.kind() == ErrorKind::Lost && Instant::now() < provably_until => "early",
        Err(_) => "lost",
    }
}

/// Asks a limiter for an admission, and reports it with its times.
fn pass(locker: &Locker, name: &str, tokens: u64, patience: Duration) -> Option<()> {
    let asked = now();
    match kinds::limiter(locker, name).tokens(tokens).timeout(patience).acquire_blocking() {
        Ok(_) => say(&format!("admitted {name} {tokens} {asked} {} .", now())),
        Err(error) if error.kind() == ErrorKind::Limited => say(&format!("refused {name}")),
        Err(_) => say(&format!("missed {name}")),
    }
}

/// Makes both changes, and returns the last moment at which the guard was provably held.
///
/// Returns `None` if it never was; then nothing was changed. That moment is reported before each change, so that the
/// history contains the changes of a worker that is killed.
fn protected(
    held: &Held,
    stay: Duration,
    report: impl Fn(u64) -> Option<()>,
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
