//! What the page shows: an overview of the names in the store, and what happened at one of them.
//!
//! The overview is one for all streams. It is made while somebody looks, and takes at most a twentieth of the time.

mod batch;
mod elsewhere;
mod key;
mod names;
mod overview;
mod pace;
mod row;
mod view;

pub(crate) use batch::Event;
pub(crate) use key::KeyView;
pub(crate) use names::NamesView;
pub(crate) use view::View;

use crate::{
    activity::Activity,
    api::Answer,
    caps::{Cap, WaitCaps},
    name_registry::NameRegistry,
    sync::lock,
};
use locker_runtime::{Admin, Key};
use overview::Overview;
use pace::Pace;
use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use view::Shown;

/// The most streams at a time.
const MOST_STREAMS: usize = 64;

/// The least pause between two passes, and between two batches of a stream.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the page shows, and the end of its streams.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The kind of store, as its URL says.
    pub(crate) store: String,
    pub(crate) admin: Admin,
    pub(crate) names: Arc<NameRegistry>,
    pub(crate) waits: Arc<WaitCaps>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) shutdown: CancellationToken,
}

/// What all streams share.
#[derive(Debug)]
pub(crate) struct Live {
    sources: Sources,
    streams: Cap,
    watching: Mutex<Watching>,
    /// Notified of each looker.
    looked: Notify,
    overview: watch::Sender<Option<Arc<Overview>>>,
    /// The rows of each view that somebody looks at.
    shown: Mutex<Vec<(View, Arc<Shown>)>>,
    /// The bits of the round trip to the store in milliseconds, or of `NaN`.
    round_trip: AtomicU64,
}

/// Whether the overview is kept up.
#[derive(Debug, Default)]
struct Watching {
    /// The streams that show it.
    lookers: usize,
    is_running: bool,
}

impl Live {
    pub(crate) fn new(sources: Sources) -> Arc<Self> {
        Arc::new(Self {
            sources,
            streams: Cap::new(MOST_STREAMS),
            watching: Mutex::default(),
            looked: Notify::new(),
            overview: watch::Sender::default(),
            shown: Mutex::default(),
            round_trip: AtomicU64::new(f64::NAN.to_bits()),
        })
    }

    /// Returns the kind of store.
    pub(crate) fn store(&self) -> &str {
        &self.sources.store
    }

    /// Returns a permit for one stream.
    ///
    /// # Errors
    /// 503 if the cap on streams is reached.
    pub(crate) fn stream(self: &Arc<Self>) -> Result<StreamPermit, Answer> {
        if self.streams.try_enter() {
            return Ok(StreamPermit(self.clone()));
        }
        Err(Answer::unavailable(format!("too many streams of the page: the limit is {MOST_STREAMS}")))
    }

    /// Checks that a key is below the prefix of the server, as `GET /v1/explain` does.
    ///
    /// # Errors
    /// 404 if it is not.
    pub(crate) fn check(&self, key: &Key) -> Result<(), Answer> {
        match self.sources.admin.named(key) {
            Some(_) => Ok(()),
            None => Err(Answer::no_such_name(key.as_str())),
        }
    }

    /// Keeps the overview up until the result is dropped.
    fn look(self: &Arc<Self>) -> Looking {
        let mut watching = lock(&self.watching);
        watching.lookers += 1;
        if !std::mem::replace(&mut watching.is_running, true) {
            let live = self.clone();
            tokio::spawn(async move { live.sources.shutdown.run_until_cancelled(live.watch()).await });
        }
        self.looked.notify_waiters();
        Looking(self.clone())
    }

    fn is_looked_at(&self) -> bool {
        lock(&self.watching).lookers > 0
    }

    /// Returns whether somebody looks before the rest is over that the work so far demands. Counts the rest until then.
    async fn is_looked_at_again(&self, pace: &mut Pace) -> bool {
        pace.at_least(INTERVAL);
        loop {
            let mut looked = pin!(self.looked.notified());
            looked.as_mut().enable();
            if self.is_looked_at() || pace.due().is_zero() {
                return self.is_looked_at();
            }
            let started = tokio::time::Instant::now();
            // Either result means that the wait is over.
            tokio::time::timeout(pace.due(), looked).await.ok();
            pace.rested(started.elapsed());
        }
    }

    /// Makes overviews while somebody looks. The last one stays until the next would be due: opening the page again and
    /// again costs no more than leaving it open.
    async fn watch(self: &Arc<Self>) {
        let mut pace = Pace::default();
        loop {
            let started = Instant::now();
            match self.pass(&mut pace).await {
                Ok(true) => pace.at_least(INTERVAL),
                Ok(false) => {}
                Err(error) => {
                    self.failed(error.to_string());
                    pace.waited_for_the_store(started.elapsed());
                    pace.at_least(INTERVAL);
                }
            }
            self.rest(&mut pace).await;
            let mut watching = lock(&self.watching);
            if watching.lookers == 0 {
                watching.is_running = false;
                self.overview.send_replace(None);
                lock(&self.shown).clear();
                return;
            }
        }
    }

    /// Rests as long as the work so far demands. Measures the round trip once a second, if somebody looks.
    async fn rest(&self, pace: &mut Pace) {
        loop {
            if pace.may_ping() && !self.sources.admin.is_embedded() && self.is_looked_at() {
                let started = Instant::now();
                let pinged = tokio::time::timeout(INTERVAL, self.sources.admin.ping()).await;
                let took = matches!(pinged, Ok(Ok(()))).then(|| started.elapsed().as_secs_f64() * 1000.0);
                self.round_trip.store(took.unwrap_or(f64::NAN).to_bits(), Relaxed);
            }
            let Some(rest) = pace.next_rest() else { return };
            tokio::time::sleep(rest).await;
        }
    }

    fn round_trip(&self) -> Option<f64> {
        Some(f64::from_bits(self.round_trip.load(Relaxed))).filter(|ms| ms.is_finite())
    }

    /// Returns what a view shows of an overview. Streams with the same view share it.
    fn shown(&self, view: &View, overview: &Arc<Overview>) -> Arc<Shown> {
        let is_known = |(known, shown): &(View, Arc<Shown>)| known == view && shown.is_of(overview);
        if let Some((_, shown)) = lock(&self.shown).iter().find(|one| is_known(one)) {
            return shown.clone();
        }
        // Two streams may do it at the same time: others need not wait for it.
        let shown = Arc::new(view.choose(overview));
        let mut all = lock(&self.shown);
        all.retain(|(_, shown)| shown.is_of(overview));
        all.truncate(MOST_STREAMS - 1);
        all.push((view.clone(), shown.clone()));
        shown
    }
}

/// A place among the streams, returned on drop.
#[derive(Debug)]
pub(crate) struct StreamPermit(Arc<Live>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.leave();
    }
}

/// A stream that shows the overview.
#[derive(Debug)]
struct Looking(Arc<Live>);

impl Drop for Looking {
    fn drop(&mut self) {
        lock(&self.0.watching).lookers -= 1;
    }
}

#[cfg(test)]
mod tests;
