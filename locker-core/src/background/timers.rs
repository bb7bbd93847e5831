//! Timers for waits that nearly always end early, by a reply or a signal.
//!
//! A timer that is far from due is only an entry in a list of far timers. One task scans the list when the first entry
//! is nearly due and wakes the timers that are nearly due, which then become timers of tokio.

use super::{alarm::Alarm, enter, spawn};
#[cfg(feature = "_world")]
use crate::process::world;
use crate::{
    clock::Timestamp,
    panics,
    process::{PerProcess, Process},
    sync::{Mutex, lock},
};
use slab::Slab;
use std::{
    cell::Cell,
    fmt,
    future::Future,
    mem::{forget, replace},
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::Instant;

/// The time before the due time at which a far timer becomes a timer of tokio.
const NEAR: Duration = Duration::from_millis(100);
const SHARDS: usize = 8;

/// A future that completes at a time on the clock of [`Timestamp::now`], under any executor. In a forked child it
/// completes at once.
pub struct Sleep {
    until: Timestamp,
    state: State,
    process: &'static Process,
}

enum State {
    /// Not started; with the time at which the clock was read.
    Fresh(Timestamp),
    /// The number of a far timer.
    Far(usize),
    Near(Pin<Box<tokio::time::Sleep>>),
    #[cfg(feature = "_world")]
    OfWorld(world::Task),
}

impl Sleep {
    pub(super) fn new(now: Timestamp, until: Timestamp) -> Self {
        Self { until, state: State::Fresh(now), process: Process::this() }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.process.is_this() {
            return Poll::Ready(());
        }
        loop {
            let now = match &mut self.state {
                State::Fresh(now) => *now,
                State::Far(number) => {
                    if far_timers().is_far(*number, context.waker()) {
                        return Poll::Pending;
                    }
                    far_timers().cancel(*number);
                    Timestamp::now()
                }
                State::Near(timer) => {
                    // Tokio calls the waker on the background thread, which a panic would end.
                    let waker = panics::contained(context.waker());
                    ready!(timer.as_mut().poll(&mut Context::from_waker(&waker)));
                    Timestamp::now()
                }
                #[cfg(feature = "_world")]
                State::OfWorld(timer) => {
                    ready!(timer.as_mut().poll(context));
                    Timestamp::now()
                }
            };
            self.state = State::Fresh(now);
            let left = self.until.since(now);
            if left.is_zero() {
                return Poll::Ready(());
            } else if self.until == Timestamp::NEVER {
                return Poll::Pending;
            }
            #[cfg(feature = "_world")]
            if let Some(world) = world::current() {
                self.state = State::OfWorld(world.sleep(self.until.as_micros()));
                continue;
            }
            if left > NEAR {
                self.state = State::Far(far_timers().add(self.until, context.waker()));
                return Poll::Pending;
            }
            self.state = State::Near(Box::pin(tick(now, self.until)));
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if !self.process.is_this() {
            forget(replace(&mut self.state, State::Fresh(self.until)));
        } else if let State::Far(number) = self.state {
            far_timers().cancel(number);
        }
    }
}

fn tick(now: Timestamp, until: Timestamp) -> tokio::time::Sleep {
    // Tokio's clock is paused while the machine is suspended, so the clock is read again every second.
    const LONGEST: Duration = Duration::from_secs(1);
    let _entered = enter();
    tokio::time::sleep_until(instant(now) + until.since(now).min(LONGEST))
}

/// Returns tokio's time at `now`. A thread reads tokio's clock once a second, because reading clocks is a large part of
/// the cost of a wait.
fn instant(now: Timestamp) -> Instant {
    thread_local! {
        static READ: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
    }
    let fresh = READ.get().filter(|(at, _)| *at <= now && now.since(*at) < Duration::from_secs(1));
    let (at, instant) = fresh.unwrap_or_else(|| {
        let read = (Timestamp::now(), Instant::now());
        READ.set(Some(read));
        read
    });
    instant + now.since(at)
}

/// The timers that are far from due.
struct FarTimers {
    shards: [Mutex<Slab<FarTimer>>; SHARDS],
    /// Due when the first timer is nearly due.
    alarm: Alarm,
}

struct FarTimer {
    due: Timestamp,
    /// `None` once the timer was woken because it is nearly due.
    waker: Option<Waker>,
}

fn far_timers() -> &'static FarTimers {
    static FAR_TIMERS: PerProcess<FarTimers> = PerProcess::new();
    FAR_TIMERS.cell().get_or_init(|| {
        spawn(async { far_timers().run().await });
        FarTimers { shards: Default::default(), alarm: Alarm::default() }
    })
}

impl FarTimers {
    /// Adds a timer and returns its number.
    fn add(&self, due: Timestamp, waker: &Waker) -> usize {
        let shard = shard();
        let index = lock(&self.shards[shard]).insert(FarTimer { due, waker: Some(waker.clone()) });
        self.alarm.set(due - NEAR);
        index * SHARDS + shard
    }

    /// Returns `true` if the timer is still far from due. It then wakes `waker` once it is nearly due.
    fn is_far(&self, number: usize, waker: &Waker) -> bool {
        let mut timers = lock(&self.shards[number % SHARDS]);
        let known = timers.get_mut(number / SHARDS).and_then(|timer| timer.waker.as_mut());
        known.map(|known| known.clone_from(waker)).is_some()
    }

    fn cancel(&self, number: usize) {
        let mut timers = lock(&self.shards[number % SHARDS]);
        let cancelled = timers.try_remove(number / SHARDS);
        if timers.is_empty() && timers.capacity() > 1024 {
            *timers = Slab::new();
        }
        drop(timers);
        drop(cancelled);
    }

    async fn run(&self) {
        loop {
            self.alarm.due(tick).await;
            self.wake_near(Timestamp::now());
        }
    }

    /// Wakes the timers that are nearly due.
    fn wake_near(&self, now: Timestamp) {
        self.alarm.reset();
        let (near, mut next) = (now + NEAR, Timestamp::NEVER);
        for shard in &self.shards {
            let mut wakers = Vec::new();
            for (_, timer) in &mut *lock(shard) {
                if timer.due <= near {
                    wakers.extend(timer.waker.take());
                } else {
                    next = next.min(timer.due);
                }
            }
            wakers.into_iter().for_each(panics::wake);
        }
        self.alarm.set(next - NEAR);
    }
}

/// Returns the shard of this thread. Threads use different shards, so that they rarely contend.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use futures_util::future::{Either, join_all, select};

    fn from_now(duration: Duration) -> (Timestamp, Sleep) {
        let now = Timestamp::now();
        (now + duration, Sleep::new(now, now + duration))
    }

    #[test]
    fn sleeps_end_and_never_early() {
        let sleeps = (0..400_u64).map(|number| async move {
            let (until, sleep) = from_now(Duration::from_millis(number % 7 * 40));
            sleep.await;
            assert!(Timestamp::now() >= until);
        });
        block_on(join_all(sleeps));
    }

    #[test]
    fn past_and_present_times_end_immediately() {
        let now = Timestamp::now();
        for until in [Timestamp::default(), now - NEAR, now] {
            let poll = Pin::new(&mut Sleep::new(now, until)).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(poll, Poll::Ready(()));
        }
    }

    #[test]
    fn never_is_not_a_far_timer() {
        let mut sleep = Sleep::new(Timestamp::now(), Timestamp::NEVER);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(matches!(sleep.state, State::Fresh(_)));
    }

    #[test]
    fn dropped_sleep_leaves_no_far_timer() {
        let is_listed = |due: Timestamp| {
            far_timers().shards.iter().any(|timers| lock(timers).iter().any(|(_, timer)| timer.due == due))
        };
        let (until, mut sleep) = from_now(Duration::from_secs(3600));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(is_listed(until));
        drop(sleep);
        assert!(!is_listed(until));
    }

    /// A timer that is due earlier ends in time although later far timers exist, and it wakes the task that polled it
    /// last.
    #[test]
    fn earlier_timer_ends_before_later_ones() {
        let (_, later) = from_now(Duration::from_secs(3600));
        let (_, mut earlier) = from_now(NEAR + Duration::from_millis(50));
        assert!(Pin::new(&mut earlier).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let first = block_on(async { matches!(select(later, earlier).await, Either::Right(_)) });
        assert!(first);
    }
}
