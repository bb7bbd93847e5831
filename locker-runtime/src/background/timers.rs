//! Timers for waits that nearly always end before their time is up: by an answer, or by a signal.
//!
//! A timer that is far from due is only noted. One task looks through the notes when the first of them comes close,
//! and what is close becomes a timer of tokio's.

use super::{alarm::Alarm, enter, spawn};
use crate::{
    clock::Timestamp,
    panics,
    sync::{Mutex, lock},
};
use once_cell::sync::Lazy;
use slab::Slab;
use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::Instant;

const CLOSE: Duration = Duration::from_millis(100);
const SHARDS: usize = 8;

/// Ends at a time on the clock of [`Timestamp::now`]; it works under any executor.
#[derive(Debug)]
pub(crate) struct Sleep {
    until: Timestamp,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing ticks yet. With the time it was just now.
    Fresh(Timestamp),
    /// The number of a note.
    Noted(usize),
    Ticking(Pin<Box<tokio::time::Sleep>>),
}

impl Sleep {
    pub(super) fn new(now: Timestamp, until: Timestamp) -> Self {
        Self { until, state: State::Fresh(now) }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = match &mut self.state {
                State::Fresh(now) => *now,
                State::Noted(number) => {
                    if FAR_TIMERS.is_far(*number, context.waker()) {
                        return Poll::Pending;
                    }
                    FAR_TIMERS.cancel(*number);
                    Timestamp::now()
                }
                State::Ticking(timer) => {
                    // Tokio calls it on the background thread, which a panic would end.
                    let waker = panics::contained(context.waker());
                    ready!(timer.as_mut().poll(&mut Context::from_waker(&waker)));
                    Timestamp::now()
                }
            };
            self.state = State::Fresh(now);
            let left = self.until.since(now);
            if left.is_zero() {
                return Poll::Ready(());
            } else if self.until == Timestamp::NEVER {
                return Poll::Pending;
            } else if left > CLOSE {
                self.state = State::Noted(FAR_TIMERS.note(self.until, context.waker()));
                return Poll::Pending;
            }
            self.state = State::Ticking(Box::pin(tick(now, self.until)));
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let State::Noted(number) = self.state {
            FAR_TIMERS.cancel(number);
        }
    }
}

fn tick(now: Timestamp, until: Timestamp) -> tokio::time::Sleep {
    // Tokio's clock stands still while the machine is suspended.
    const LONGEST: Duration = Duration::from_secs(1);
    let _entered = enter();
    tokio::time::sleep_until(instant(now) + until.since(now).min(LONGEST))
}

/// What tokio's clock says at `now`: read anew once a second, since reading clocks is much of what waiting costs.
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
    shards: [Mutex<Slab<Note>>; SHARDS],
    /// When the first timer comes close.
    alarm: Alarm,
}

struct Note {
    due: Timestamp,
    /// Gone when it is close.
    waker: Option<Waker>,
}

static FAR_TIMERS: Lazy<FarTimers> = Lazy::new(|| {
    spawn(async { FAR_TIMERS.run().await });
    FarTimers { shards: Default::default(), alarm: Alarm::default() }
});

impl FarTimers {
    fn note(&self, due: Timestamp, waker: &Waker) -> usize {
        let shard = shard();
        let index = lock(&self.shards[shard]).insert(Note { due, waker: Some(waker.clone()) });
        self.alarm.set(due - CLOSE);
        index * SHARDS + shard
    }

    /// Whether a note is still far from due; `waker` is then who hears that it is not.
    fn is_far(&self, number: usize, waker: &Waker) -> bool {
        let mut notes = lock(&self.shards[number % SHARDS]);
        let known = notes.get_mut(number / SHARDS).and_then(|note| note.waker.as_mut());
        known.map(|known| known.clone_from(waker)).is_some()
    }

    fn cancel(&self, number: usize) {
        let mut notes = lock(&self.shards[number % SHARDS]);
        let struck_out = notes.try_remove(number / SHARDS);
        if notes.is_empty() && notes.capacity() > 1024 {
            *notes = Slab::new();
        }
        drop(notes);
        drop(struck_out);
    }

    async fn run(&self) {
        loop {
            self.alarm.due(tick).await;
            self.look(Timestamp::now());
        }
    }

    /// Wakes those that are close.
    fn look(&self, now: Timestamp) {
        self.alarm.reset();
        let (close, mut next) = (now + CLOSE, Timestamp::NEVER);
        for shard in &self.shards {
            let mut wakers = Vec::new();
            for (_, note) in &mut *lock(shard) {
                if note.due <= close {
                    wakers.extend(note.waker.take());
                } else {
                    next = next.min(note.due);
                }
            }
            wakers.into_iter().for_each(panics::wake);
        }
        self.alarm.set(next - CLOSE);
    }
}

/// Threads that note much at the same time do it in different places.
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
    fn none_ends_early_and_all_end() {
        let sleeps = (0..400_u64).map(|number| async move {
            let (until, sleep) = from_now(Duration::from_millis(number % 7 * 40));
            sleep.await;
            assert!(Timestamp::now() >= until);
        });
        block_on(join_all(sleeps));
    }

    #[test]
    fn the_past_and_the_present_are_over_at_once() {
        let now = Timestamp::now();
        for until in [Timestamp::default(), now - CLOSE, now] {
            let poll = Pin::new(&mut Sleep::new(now, until)).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(poll, Poll::Ready(()));
        }
    }

    #[test]
    fn never_is_not_noted() {
        let mut sleep = Sleep::new(Timestamp::now(), Timestamp::NEVER);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(matches!(sleep.state, State::Fresh(_)));
    }

    #[test]
    fn one_that_is_dropped_leaves_no_note() {
        let noted = |due: Timestamp| {
            FAR_TIMERS.shards.iter().any(|notes| lock(notes).iter().any(|(_, note)| note.due == due))
        };
        let (until, mut sleep) = from_now(Duration::from_secs(3600));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(noted(until));
        drop(sleep);
        assert!(!noted(until));
    }

    /// One that is due earlier is looked at in time although others are noted for later; and it is told where it was
    /// polled last.
    #[test]
    fn an_earlier_one_is_not_overslept() {
        let (_, later) = from_now(Duration::from_secs(3600));
        let (_, mut earlier) = from_now(CLOSE + Duration::from_millis(50));
        assert!(Pin::new(&mut earlier).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let first = block_on(async { matches!(select(later, earlier).await, Either::Right(_)) });
        assert!(first);
    }
}
