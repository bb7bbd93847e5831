//! One process that takes locks, changes what they protect, and says what it saw.

use crate::resource::Resource;
use clap::Args;
use locker_runtime::{ErrorKind, Guard, Locker};
use std::{
    io::Write,
    time::{Duration, Instant},
};

pub(crate) const LEASE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Work {
    /// The server of the locks.
    #[arg(long)]
    pub(crate) url: String,
    /// The server of what they protect.
    #[arg(long)]
    pub(crate) resource: String,
    #[arg(long)]
    pub(crate) names: usize,
    /// Threads that call.
    #[arg(long)]
    pub(crate) callers: usize,
}

/// Nanoseconds on a clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl Work {
    /// Goes on until it is killed, or nobody listens any more.
    pub(crate) fn run(&self) {
        let Some(locker) = self.connect() else { return };
        std::thread::scope(|scope| {
            for _ in 0..self.callers {
                scope.spawn(|| self.call(&locker));
            }
        });
    }

    fn call(&self, locker: &Locker) -> Option<()> {
        let mut resource = Resource::open(&self.resource)?;
        let mut rng = fastrand::Rng::new();
        loop {
            let name = rng.usize(..self.names).to_string();
            let asked = now();
            let Ok(guard) = locker.lock(&name).timeout(Duration::from_secs(3)).acquire_blocking() else {
                say(&format!("missed {name}"))?;
                continue;
            };
            let (entered, fence) = (now(), guard.fence());
            let tell = |state: &str, seen: Option<u64>| {
                let seen = seen.map_or("-".into(), |seen| seen.to_string());
                say(&format!("{state} {name} {fence} {asked} {entered} {seen} ."))
            };
            let stay = Duration::from_millis(rng.u64(..12));
            let seen = protected(&guard, &mut resource, &name, stay, |seen| tell("holding", Some(seen)));
            tell(end(guard), seen)?;
        }
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

/// Releases, and says how that went: a hold that is called lost while its lease surely runs is called lost too early.
fn end(guard: Guard) -> &'static str {
    let surely_until = Instant::now() + guard.remaining();
    match guard.release_blocking() {
        Ok(()) => "released",
        Err(error) if error.kind() == ErrorKind::Lost && Instant::now() < surely_until => "early",
        Err(_) => "lost",
    }
}

/// Changes both counters, and returns the last moment at which the guard was surely held; `None`: it never was, and
/// nothing was changed. Before each change it tells that moment, so that a change is known of whose worker is killed.
fn protected(
    guard: &Guard,
    resource: &mut Resource,
    name: &str,
    stay: Duration,
    tell: impl Fn(u64) -> Option<()>,
) -> Option<u64> {
    let (started, mut seen, mut changes) = (Instant::now(), None, 0);
    loop {
        let moment = now();
        if guard.check().is_err() {
            return seen;
        }
        seen = Some(moment);
        if changes < 2 {
            tell(moment)?;
        }
        changes += 1;
        match changes {
            1 => resource.add_plainly(name),
            2 => resource.add_fenced(name, guard.fence()),
            _ if started.elapsed() >= stay => return seen,
            _ => {}
        }
        // How often it looks at its guard: what is judged is the time between two looks, not that of this pause.
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn say(line: &str) -> Option<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).ok()
}
