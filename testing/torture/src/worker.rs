//! A worker process: takes locks, changes the resource that they protect, and reports both.

use crate::{
    clock::now,
    holds::{Held, Holds, missed},
    kinds::{self, Kind},
    nested::nest,
    once,
    record::Record,
    resource::Resource,
    together,
};
use clap::Args;
use fastrand::Rng;
use locker_checker::format::{Call, Outcome};
use locker_runtime::{LockAllRequest, Locker};
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
        let Some(locker) = self.connect(0) else { return };
        std::thread::scope(|scope| {
            for caller in 1..=self.callers as u64 {
                let locker = &locker;
                scope.spawn(move || self.call(locker, caller, record));
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

    fn call(&self, locker: &Locker, caller: u64, record: &Record) -> Option<()> {
        // Callers of one locker may hold one after the other, and are not seen to do so.
        let own = if self.kinds.contains(&Kind::Nested) { &self.connect(caller)? } else { locker };
        let mut resource = Resource::open(&self.resource)?;
        let mut rng = Rng::new();
        loop {
            let kind = rng.choice(self.kinds.iter().copied())?;
            let name = kind.name(rng.usize(..self.names));
            match kind {
                Kind::Nested => nest(own, record, self.names_of(kind), &mut resource, &mut rng)?,
                Kind::Once => {
                    let patience = patience(&mut rng);
                    once::call(locker, &name, &mut resource, &mut rng, patience);
                }
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
        let (early, least) = margins(kind, rng);
        let names = if kind == Kind::LockAll { self.names_of(kind) } else { vec![name] };
        let mut holds = Holds::begin(record, kind, &names, share, patience);
        holds.say(|_| ())?;
        holds.ask();
        let held = if kind == Kind::LockAll {
            self.all(locker, rng).timeout(patience).acquire_blocking().map(Held::All)
        } else {
            let ask = kind.ask(locker, &names[0], share).timeout(patience).min_hold(least);
            let ask = if early.is_zero() { ask } else { ask.stop_before(early) };
            ask.acquire_blocking().map(Held::One)
        };
        let held = match held {
            Ok(held) => held,
            Err(error) => return holds.miss(error.kind()),
        };
        holds.enter(&held.fences());
        let protects = share == kind.whole();
        holds.change(&held, resource, protects, Duration::from_millis(rng.u64(..12)))?;
        if least.is_zero() { holds.release(held) } else { holds.release_late(held, least) }
    }

    /// Returns the names of the kind, in the order of their keys.
    fn names_of(&self, kind: Kind) -> Vec<String> {
        let names: BTreeSet<String> = kind.names(self.names).collect();
        names.into_iter().collect()
    }

    /// Returns a request for all locks, in any order, with some of them named twice.
    fn all(&self, locker: &Locker, rng: &mut Rng) -> LockAllRequest {
        let mut names = [self.names_of(Kind::LockAll), self.names_of(Kind::LockAll)].concat();
        names.truncate(rng.usize(self.names..=names.len()));
        rng.shuffle(&mut names);
        locker.lock_all(names)
    }

    /// Lockers of different numbers share no connections.
    fn connect(&self, number: u64) -> Option<Locker> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            let timeout = Duration::from_millis(200) + Duration::from_micros(number);
            let builder = Locker::builder().url(&self.url).lease(LEASE).command_timeout(timeout);
            if let Ok(locker) = builder.build_blocking() {
                return Some(locker);
            }
        }
        None
    }
}

/// Returns how much before its lease of 1 s a hold is lost, and how long it lasts at least: shorter than its lease, so
/// that it does whatever happens.
fn margins(kind: Kind, rng: &mut Rng) -> (Duration, Duration) {
    let mut one_of =
        |many: u8, most: u64| Duration::from_millis(if rng.u8(..many) == 0 { rng.u64(1..most) } else { 0 });
    let (early, least) = (one_of(4, 500), one_of(20, 300));
    // Several together have those of the locker.
    if kind == Kind::LockAll { (Duration::ZERO, Duration::ZERO) } else { (early, least) }
}

/// Returns how long a caller waits. Some give up while they wait.
fn patience(rng: &mut Rng) -> Duration {
    Duration::from_millis(if rng.bool() { 3_000 } else { rng.u64(..30) })
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
