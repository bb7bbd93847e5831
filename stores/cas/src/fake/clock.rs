//! The clock of a world that its processes move on.

use super::{Fake, World, at, lag, random};
use crate::{
    ticked::{Least, Next, Source, Tick},
    ticker::{self, Clock, Ticking},
    time::{Basis, Found},
};
use futures_util::future::BoxFuture;
use locker_core::{
    background,
    clock::Timestamp,
    error::Result,
    process::world::Inhabitant,
    sync::{Mutex, lock},
};
use std::{
    future::ready,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::oneshot;

/// The key with the time, and the processes that watch it.
#[derive(Default)]
pub(super) struct WorldClock {
    tick: Mutex<Option<Tick>>,
    watched_by: Mutex<Vec<Weak<FakeClock>>>,
}

/// The clock as one process knows it.
pub(super) struct FakeClock {
    world: Arc<World>,
    clock: Clock,
    process: Option<Inhabitant>,
    delay: Duration,
    /// How many of a hundred ticks and messages about them are lost.
    faults: u32,
    /// Ends the ticks when this is dropped.
    ended: Mutex<Option<oneshot::Sender<()>>>,
}

impl WorldClock {
    pub(super) fn is_at(&self, basis: &Basis) -> bool {
        let tick = lock(&self.tick);
        match basis {
            Basis::Served => true,
            Basis::Life(life) => tick.as_ref().is_some_and(|tick| tick.life == *life),
            Basis::Tick { version, .. } => tick.as_ref().is_some_and(|tick| tick.version == *version),
        }
    }

    #[cfg(test)]
    pub(super) fn move_on(&self, by: Duration, gap: Duration) {
        if let Some(tick) = &mut *lock(&self.tick) {
            *tick = Tick { version: new_version(), time: tick.time + by, gaps: tick.gaps + gap, ..*tick };
        }
    }

    fn replace(&self, from: &Tick, next: Next) {
        let mut tick = lock(&self.tick);
        if tick.as_ref() == Some(from) {
            *tick = Some(Tick { version: new_version(), time: next.time, gaps: next.gaps, ..*from });
        }
    }
}

impl FakeClock {
    pub(super) fn start(fake: &Fake) -> Result<Arc<Self>> {
        background::ready()?;
        let (ended, mut end) = oneshot::channel();
        let world = Arc::clone(&fake.world);
        lock(&world.clock.tick).get_or_insert_with(|| Tick {
            life: 1,
            version: new_version(),
            time: Timestamp::now(),
            gaps: Duration::ZERO,
            jump: Timestamp::default(),
        });
        let this = Arc::new(Self {
            world,
            clock: Clock::default(),
            process: Inhabitant::here(),
            delay: fake.delay,
            faults: fake.faults,
            ended: Mutex::new(Some(ended)),
        });
        lock(&this.world.clock.watched_by).push(Arc::downgrade(&this));
        this.learn(Source::Read);
        let keeps = Arc::clone(&this);
        background::spawn(async move {
            tokio::select! {
                biased;
                () = ticker::keep(&*keeps) => {}
                _ = &mut end => {}
            }
        });
        Ok(this)
    }

    pub(super) fn end(&self) {
        drop(lock(&self.ended).take());
    }

    /// Leaves the time of this process behind, as a write does that ends a hold or a wait.
    pub(super) fn leave(&self) {
        if let Some((from, next)) = self.clock.next(Least::default()) {
            self.world.clock.replace(&from, next);
            self.learn(Source::Own);
        }
    }

    /// Takes over the present tick, and returns it as that of a request that was sent at `sent`.
    pub(super) fn find(&self, sent: Timestamp) -> Option<Found> {
        self.learn(Source::Read);
        lock(&self.world.clock.tick).as_ref().map(|tick| Found {
            life: tick.life,
            latest: tick.latest(),
            sent,
        })
    }

    fn learn(&self, source: Source) {
        let tick = lock(&self.world.clock.tick).clone();
        if let Some(tick) = tick {
            self.clock.learn(tick, source);
        }
    }

    /// Tells every process of the present tick, unless that is lost.
    fn tell(&self) {
        let mut watched_by = lock(&self.world.clock.watched_by);
        watched_by.retain(|process| process.strong_count() > 0);
        for watching in watched_by.iter().filter_map(Weak::upgrade).filter(|_| random(100) >= self.faults) {
            let (process, delay) = (Arc::downgrade(&watching), lag(self.delay / 2, self.faults));
            at(watching.process.as_ref(), async move {
                background::sleep(delay).await;
                process.upgrade().into_iter().for_each(|process| process.learn(Source::Told));
            });
        }
    }
}

impl Ticking for FakeClock {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn tick(&self, from: Tick, next: Next, _: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            background::sleep(self.delay / 2).await;
            if random(100) < self.faults {
                return;
            }
            self.world.clock.replace(&from, next);
            self.tell();
            background::sleep(self.delay / 2).await;
            self.learn(Source::Own);
        })
    }

    fn least(&self) -> BoxFuture<'_, Option<Least>> {
        Box::pin(ready(Some(Least::default())))
    }

    fn round_trip(&self) -> Duration {
        self.delay
    }
}

fn new_version() -> Arc<[u8]> {
    u128::from(locker_core::id::Id::random()).to_be_bytes().into()
}
