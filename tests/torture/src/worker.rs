//! One process that takes locks, changes what they protect, and says what it saw.

use crate::resource::Resource;
use clap::Args;
use locker_runtime::{Guard, Locker};
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
        let Some(mut resource) = Resource::open(&self.resource) else { return };
        let mut rng = fastrand::Rng::new();
        loop {
            let name = rng.usize(..self.names).to_string();
            let asked = now();
            let Ok(guard) = locker.lock(&name).timeout(Duration::from_secs(3)).acquire_blocking() else {
                if say(&format!("missed {name}")).is_none() {
                    return;
                }
                continue;
            };
            let entered = now();
            let seen = protected(&guard, &mut resource, &name, Duration::from_millis(rng.u64(..12)));
            let fence = guard.fence();
            let ended = if guard.release_blocking().is_ok() { "released" } else { "lost" };
            if say(&format!("held {name} {fence} {asked} {entered} {seen} {ended}")).is_none() {
                return;
            }
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

/// Changes both counters, and returns the last moment at which the guard was surely held; 0: it never was.
fn protected(guard: &Guard, resource: &mut Resource, name: &str, stay: Duration) -> u64 {
    let started = Instant::now();
    let mut held = 0;
    let mut steps = [true, true];
    loop {
        let moment = now();
        if guard.check().is_err() {
            return held;
        }
        held = moment;
        if std::mem::take(&mut steps[0]) {
            resource.add_plainly(name);
        } else if std::mem::take(&mut steps[1]) {
            resource.add_fenced(name, guard.fence());
        } else if started.elapsed() >= stay {
            return held;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn say(line: &str) -> Option<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).ok()
}
