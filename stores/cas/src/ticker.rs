//! The clock of a store that its processes move on, and the task that does so.

use super::{
    ticked::{Least, Next, Source, Tick, Ticked},
    time::Time,
};
use futures_util::future::BoxFuture;
use locker_core::{
    background,
    clock::Timestamp,
    id::Id,
    sync::{Mutex, lock},
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::Notify;

/// How long after a call a process ticks. Waiters ask again more often than that, so whoever waits ticks.
const INTEREST: Duration = Duration::from_secs(10);

/// How long after a tick without an answer the next one is tried, beside two round trips.
const AGAIN: Duration = Duration::from_millis(250);

/// The clock as this process knows it, shared by its calls and its ticks.
#[derive(Debug, Default)]
pub struct Clock {
    state: Mutex<Ticked>,
    /// When the last call was made, in microseconds.
    used: AtomicU64,
    /// Notified when the task has another time to wait for.
    changed: Notify,
    /// Held while a call ticks: one does it for all.
    settles: tokio::sync::Mutex<()>,
}

/// A store with such a clock.
pub trait Ticking: Send + Sync + 'static {
    /// Returns the clock as this process knows it.
    fn clock(&self) -> &Clock;

    /// Replaces `from` by a tick with the time `next`, if `from` is still the latest, and learns of what is there then.
    /// `leaves` says that this process ends. Errors are for the next tick.
    fn tick(&self, from: Tick, next: Next, leaves: bool) -> BoxFuture<'_, ()>;

    /// Returns what the clock shows at least, 0 if the store never tells. `None` if it does not answer now, and a tick
    /// would lose what has passed.
    fn least(&self) -> BoxFuture<'_, Option<Least>>;

    /// Returns how long an answer takes.
    fn round_trip(&self) -> Duration;
}

impl Clock {
    /// Takes over a tick that has just become known.
    pub fn learn(&self, tick: Tick, source: Source) {
        lock(&self.state).learn(tick, source, Timestamp::now());
        self.changed.notify_one();
    }

    /// Forgets everything: the store has gone back to an earlier state.
    pub fn forget(&self) {
        lock(&self.state).forget();
    }

    /// Records that ticks may have been missed.
    pub fn doubt(&self) {
        lock(&self.state).doubt();
    }

    /// Returns the time for a step, if the clock is known.
    pub fn time(&self) -> Option<Time> {
        lock(&self.state).time(Timestamp::now())
    }

    /// Returns the time if the clock is known in this life.
    pub fn time_in(&self, life: i64) -> Option<Time> {
        self.time().filter(|time| time.basis.life() == Some(life))
    }

    /// Returns the known tick and the one that follows it now.
    pub fn next(&self, least: Least) -> Option<(Tick, Next)> {
        lock(&self.state).next(Timestamp::now(), least)
    }

    /// As [`next`](Self::next), unless nobody knows how old the known tick is: the next one would lose the time since.
    #[must_use]
    pub fn next_of_known_age(&self) -> Option<(Tick, Next)> {
        if self.is_old() { None } else { self.next(Least::default()) }
    }

    /// Returns whether no gap is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.state).is_settled(Timestamp::now())
    }

    /// Returns whether nobody knows how old the known tick is.
    pub fn is_old(&self) -> bool {
        lock(&self.state).is_old()
    }

    /// Records that a call is made: this process ticks for a while.
    pub fn note_use(&self) {
        let now = Timestamp::now();
        let before = Timestamp::from_micros(self.used.swap(now.as_micros(), Ordering::AcqRel));
        if before + INTEREST < now {
            self.changed.notify_one();
        }
    }

    fn is_used(&self, now: Timestamp) -> bool {
        now <= Timestamp::from_micros(self.used.load(Ordering::Acquire)) + INTEREST
    }

    /// Returns when to tick next, after a try at `tried`.
    fn due(&self, tried: Timestamp, draw: u32) -> Timestamp {
        let due = lock(&self.state).due(draw);
        due.filter(|_| self.is_used(Timestamp::now())).map_or(Timestamp::NEVER, |due| due.max(tried))
    }
}

/// Ticks until it is dropped.
pub async fn keep(store: &impl Ticking) {
    let (clock, mut tried) = (store.clock(), Timestamp::default());
    loop {
        let (changed, now) = (clock.changed.notified(), Timestamp::now());
        let due = clock.due(tried, Id::random().jitter(1024));
        if due > now {
            tokio::select! {
                biased;
                () = changed => {}
                () = background::sleep_from(now, due) => {}
            }
        } else {
            tick(store, false).await;
            tried = Timestamp::now() + AGAIN + 2 * store.round_trip();
        }
    }
}

/// Leaves the time of a process behind that ends, if it has used the store lately.
pub async fn leave(store: &impl Ticking) {
    if store.clock().is_used(Timestamp::now()) {
        tick(store, true).await;
    }
}

/// Ticks now if a gap may be on its way.
pub async fn settle(store: &impl Ticking) {
    let clock = store.clock();
    if clock.is_settled() {
        return;
    }
    let _one = clock.settles.lock().await;
    if !clock.is_settled() {
        tick(store, false).await;
    }
}

/// Ticks now, if time has passed.
pub(crate) async fn tick(store: &impl Ticking, leaves: bool) {
    let least = if store.clock().is_old() { store.least().await } else { Some(Least::default()) };
    if let Some((from, next)) = least.and_then(|least| store.clock().next(least)) {
        store.tick(from, next, leaves).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use locker_core::blocking::block_on;
    use locker_harness::eventually;

    /// A store whose time with the gaps is at least `least`, and the ticks that it was sent.
    struct Ticks {
        clock: Clock,
        least: Mutex<Option<Least>>,
        sent: Mutex<Vec<Next>>,
    }

    impl Ticks {
        fn new(source: Source) -> Self {
            let now = Timestamp::now();
            let ticks = Self {
                clock: Clock::default(),
                least: Mutex::new(Some(Least { wall: now + 7 * INTEREST, ..Least::default() })),
                sent: Mutex::default(),
            };
            ticks.clock.learn(tick(now), source);
            eventually("some time to pass", || ticks.clock.next(Least::default()));
            ticks
        }

        fn count(&self) -> usize {
            lock(&self.sent).len()
        }
    }

    #[test]
    fn time_is_of_one_life_and_may_be_doubted() {
        let clock = Clock::default();
        assert_eq!(clock.time_in(1), None);
        clock.learn(tick(Timestamp::now()), Source::Own);
        let life = clock.time().and_then(|time| time.basis.life()).expect("a life");
        assert!(clock.time_in(life).is_some() && clock.time_in(life + 1).is_none());
        assert!(!clock.is_old());
        eventually("some time to pass", || clock.next_of_known_age());
        clock.doubt();
        assert!(clock.is_old() && clock.next_of_known_age().is_none());
    }

    impl Ticking for Ticks {
        fn clock(&self) -> &Clock {
            &self.clock
        }

        fn tick(&self, _: Tick, next: Next, _: bool) -> BoxFuture<'_, ()> {
            lock(&self.sent).push(next);
            self.clock.learn(tick(next.time), Source::Own);
            Box::pin(async {})
        }

        fn least(&self) -> BoxFuture<'_, Option<Least>> {
            Box::pin(async { *lock(&self.least) })
        }

        fn round_trip(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn tick(time: Timestamp) -> Tick {
        let version = time.as_micros().to_be_bytes().into();
        Tick { life: 1, version, time, gaps: Duration::ZERO, jump: Timestamp::default() }
    }

    #[test]
    fn gaps_are_settled_once() {
        let told = Ticks::new(Source::Told);
        block_on(settle(&told));
        assert_eq!(told.count(), 0, "no gap is on its way");
        let read = Ticks::new(Source::Read);
        block_on(settle(&read));
        let next = lock(&read.sent)[0];
        assert!(next.gaps > 6 * INTEREST, "the store tells how old the tick was: {next:?}");
        block_on(settle(&read));
        assert_eq!(read.count(), 1);
    }

    /// A tick at an unknown time would take that for the time of the last one.
    #[test]
    fn no_tick_hides_a_gap() {
        let read = Ticks::new(Source::Read);
        assert!(read.clock.next_of_known_age().is_none());
        let least = lock(&read.least).take();
        block_on(settle(&read));
        assert_eq!(read.count(), 0, "the store does not answer");
        *lock(&read.least) = least;
        block_on(settle(&read));
        assert!(lock(&read.sent)[0].gaps > 6 * INTEREST);
        eventually("some time to pass", || read.clock.next_of_known_age());
    }

    #[test]
    fn process_that_uses_the_store_leaves_its_time() {
        let ticks = Ticks::new(Source::Told);
        block_on(leave(&ticks));
        assert_eq!(ticks.count(), 0, "it has used nothing");
        ticks.clock.note_use();
        block_on(leave(&ticks));
        assert_eq!(ticks.count(), 1);
        assert!(lock(&ticks.sent)[0].gaps.is_zero(), "the store is not asked: the tick is known to be new");
    }

    #[test]
    fn only_processes_that_use_the_store_tick() {
        let (clock, never) = (Ticks::new(Source::Own).clock, Timestamp::NEVER);
        let is_woken = || clock.changed.notified().now_or_never().is_some();
        let due = || clock.due(Timestamp::default(), 0);
        assert!(is_woken(), "it has learned of a tick");
        assert_eq!(due(), never);
        clock.note_use();
        assert!(is_woken() && due() < never);
        clock.note_use();
        assert!(!is_woken(), "it ticks already");
        assert_eq!(clock.due(never, 0), never, "not before the next try");
        let long_ago = Timestamp::now() - INTEREST - Duration::from_secs(1);
        clock.used.store(long_ago.as_micros(), Ordering::Release);
        assert_eq!(due(), never);
        clock.note_use();
        assert!(is_woken() && due() < never);
        clock.forget();
        assert!(clock.time().is_none() && due() == never);
    }

    #[test]
    fn ticks_go_on_while_the_store_is_used() {
        let ticks = Ticks::new(Source::Own);
        ticks.clock.note_use();
        let twice = async {
            while ticks.count() < 2 {
                background::sleep(Duration::from_millis(1)).await;
            }
        };
        block_on(async {
            tokio::select! {
                () = keep(&ticks) => {}
                () = twice => {}
            }
        });
        let times: Vec<_> = lock(&ticks.sent).iter().map(|tick| tick.time).collect();
        let (first, second) = (times[0], times[1]);
        assert!(second.since(first) >= Duration::from_millis(450), "{first:?}, {second:?}");
    }
}
