//! Limiters in four threads of one process that ask as fast as they can.

use super::log;
use governor::{DefaultDirectRateLimiter, RateLimiter as Governor};
use locker::{Locker, Quota, RateLimiter};
use std::{
    num::NonZeroU32,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

const PER_SECOND: u32 = 1_000;
const THREADS: usize = 4;

pub(crate) fn run(seconds: u64) {
    let quota = governor::Quota::per_second(NonZeroU32::new(PER_SECOND).expect("more than none"));
    let governor: DefaultDirectRateLimiter = Governor::direct(quota);
    let locker = Locker::memory();
    let second = Duration::from_secs(1);
    let of = |name: &str, quota| locker.rate_limiter(name, quota);
    let size = PER_SECOND.into();
    let ours = [
        ("locker, GCRA", of("gcra", Quota::gcra(size, second))),
        ("locker, token bucket", of("bucket", Quota::token_bucket(size, second))),
        ("locker, fixed window", of("window", Quota::fixed_window(size, second))),
    ];
    let seconds = Duration::from_secs(seconds);
    hammer("governor", seconds, || governor.check().is_ok());
    for (name, limiter) in &ours {
        hammer(name, seconds, || is_admitted(limiter));
    }
}

fn is_admitted(limiter: &RateLimiter) -> bool {
    limiter.try_acquire_blocking().expect("a reply").is_some()
}

/// Prints `NAME;calls per second;nanoseconds of each admission ..`.
fn hammer(name: &str, duration: Duration, is_admitted: impl Fn() -> bool + Sync) {
    let all = Mutex::new((0_u64, Vec::new()));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (mut calls, mut admitted) = (0, Vec::new());
                while start.elapsed() < duration {
                    calls += 1;
                    if is_admitted() {
                        admitted.push(log::now().to_string());
                    }
                }
                let mut all = all.lock().expect("no panic");
                all.0 += calls;
                all.1.append(&mut admitted);
            });
        }
    });
    let (calls, admitted) = all.into_inner().expect("no panic");
    println!("{name};{};{}", calls / duration.as_secs().max(1), admitted.join(" "));
}
