//! What a process knows of the server.

use super::{
    epochs::{KnownEpoch, StoreState},
    samples::Samples,
};
use crate::{
    backend::{Draw, Epoch, Inbox, Received},
    time::Time,
};
use locker_core::{
    background,
    clock::Timestamp,
    diagnostics,
    error::{Error, Result},
    panics,
    store::opening::COMMAND_TIMEOUT,
    sync::{Mutex, lock},
};
use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The receiver of messages to this process.
pub type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

/// Whether the store has been opened.
#[derive(Clone, Debug)]
enum Status {
    Opening,
    Open,
    Failed(Error),
}

/// What is known about keys that were removed.
#[derive(Clone, Copy, Debug)]
struct Removed {
    /// At least as high as the fences of all keys that were removed.
    fence: i64,
    /// How often keys were removed, -1 if that is unknown.
    count: i64,
}

/// What a process knows of the server: its clock, its epoch, what was removed, and whether it was reached.
pub struct Server {
    /// Without user and password, for messages.
    address: String,
    pub(super) receiver: OnceLock<Receiver>,
    clock: Mutex<Samples>,
    removed: Mutex<Removed>,
    epoch: Mutex<KnownEpoch>,
    is_used: AtomicBool,
    status: watch::Sender<Status>,
    /// Notified when the tables or the row of `locker_boot` are gone.
    pub reopen: Notify,
    inbox: AtomicU32,
    draw: Draw,
    answer_limit: Duration,
    /// Changes when a connection was silent.
    suspicions: watch::Sender<u64>,
}

/// How long an answer may take, whatever the `command_timeout` is. The engine then asks again over another connection:
/// with a longer limit, a renewal would wait for a connection that has gone silent until its hold has ended.
pub const ANSWER_LIMIT: Duration = COMMAND_TIMEOUT.saturating_mul(3);

impl Server {
    /// Returns a server of which nothing is known yet. An answer may take `answer_limit`. `draw` draws the number of
    /// the inbox.
    #[must_use]
    pub fn new(address: String, answer_limit: Duration, draw: Draw) -> Self {
        Self {
            answer_limit,
            suspicions: watch::Sender::new(0),
            address,
            receiver: OnceLock::new(),
            clock: Mutex::default(),
            removed: Mutex::new(Removed { fence: 0, count: -1 }),
            epoch: Mutex::default(),
            is_used: AtomicBool::new(false),
            status: watch::Sender::new(Status::Opening),
            reopen: Notify::new(),
            inbox: AtomicU32::new(draw()),
            draw,
        }
    }

    /// Returns the address without user and password.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns how long an answer may take.
    #[must_use]
    pub fn answer_limit(&self) -> Duration {
        self.answer_limit
    }

    /// Says that a connection has been silent for too long: others may be, too.
    pub fn suspect(&self) {
        self.suspicions.send_modify(|suspicions| *suspicions += 1);
    }

    /// Returns what changes whenever a connection has been silent for too long.
    #[must_use]
    pub fn suspicions(&self) -> watch::Receiver<u64> {
        self.suspicions.subscribe()
    }

    /// Waits for an answer. `None`: it has not come within the [limit](Self::answer_limit).
    pub async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        within(self.answer_limit, answer).await
    }

    /// Returns the number of the inbox.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inbox.load(Ordering::Acquire)
    }

    /// Changes the number of the inbox, before anybody knows it.
    pub fn change_inbox(&self, change: impl FnOnce(Inbox) -> Inbox) {
        self.inbox.store(change(self.inbox()), Ordering::Release);
    }

    /// Draws a number for the inbox.
    #[must_use]
    pub fn draw(&self) -> Inbox {
        (self.draw)()
    }

    /// Waits until the store is open. After an error, nothing was sent.
    ///
    /// # Errors
    /// Why it could not be opened the last time.
    pub async fn opened(&self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        let mut status = self.status.subscribe();
        loop {
            match &*status.borrow_and_update() {
                Status::Open => return Ok(()),
                Status::Failed(error) => return Err(error.clone().unsent()),
                Status::Opening => {}
            }
            // The sender lives as long as this.
            let _ = status.changed().await;
        }
    }

    /// Returns whether the store has ever been opened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(*self.status.borrow(), Status::Open)
    }

    pub(super) fn opens(&self) {
        self.status.send_replace(Status::Open);
    }

    /// Errors of an open store are those of its other connections.
    pub(super) fn fails(&self, error: Error) {
        self.status.send_if_modified(|status| {
            let is_open = matches!(status, Status::Open);
            if !is_open {
                *status = Status::Failed(error);
            }
            !is_open
        });
    }

    pub(super) fn is_asked(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    /// Returns whether a call was made since this was last asked.
    #[must_use]
    pub fn was_used(&self) -> bool {
        self.is_used.swap(false, Ordering::AcqRel)
    }

    /// Hands something to the receiver.
    pub fn tell(&self, received: Received<'_>) {
        if let Some(receiver) = self.receiver.get() {
            panics::contain(|| receiver(received));
        }
    }

    /// Records a state of the store that was asked for at `sent`. `must_be_quick` says that writes of this process can
    /// be lost in a crash: others must know that before it writes.
    pub fn record(&self, sent: Timestamp, state: &StoreState, must_be_quick: bool) {
        let now = Timestamp::now();
        {
            let mut removed = lock(&self.removed);
            // Not the highest count: a restored backup has a lower one.
            *removed = Removed { fence: removed.fence.max(state.fence), count: state.removals };
        }
        match state.epoch_to_use(must_be_quick) {
            Some(id) => self.record_epoch(id, state, now),
            // Another process raises the longest hold. What is known of the epoch holds.
            None if !state.is_written && state.epoch == Some(lock(&self.epoch).id) => {}
            None => self.reopen.notify_one(),
        }
        lock(&self.clock).add(sent, state.now, now);
    }

    fn record_epoch(&self, id: i64, state: &StoreState, now: Timestamp) {
        let mut epoch = lock(&self.epoch);
        let was_known = epoch.id != 0;
        if epoch.record(id, state, now) {
            if was_known {
                // Another server may have another clock.
                *lock(&self.clock) = Samples::default();
            }
            let quiet = epoch.at(now).quiet;
            drop(epoch);
            if let Some(quiet) = quiet {
                diagnostics::warn_aloud(&format!(
                    "{} may have lost locks in a crash or failover: nothing is granted for {quiet:.0?}",
                    self.address
                ));
            }
        }
    }

    /// Records the times of the server at which keys were written, by a statement that was sent at `sent`.
    pub fn record_times(&self, sent: Timestamp, times: impl IntoIterator<Item = i64>) {
        let heard = Timestamp::now();
        let mut clock = lock(&self.clock);
        times.into_iter().for_each(|time| clock.add(sent, time, heard));
    }

    /// Forgets all times but this one of the server, at a time of this process.
    pub fn believe(&self, at: Timestamp, time: i64) {
        let mut clock = lock(&self.clock);
        *clock = Samples::default();
        clock.add(at, time, at);
    }

    /// Records that the longest hold was raised, and the epoch that was found.
    pub fn raised(&self, longest: i64, id: i64) {
        let mut epoch = lock(&self.epoch);
        if epoch.id == id {
            epoch.longest = epoch.longest.max(longest);
        }
    }

    /// Returns the time that the network needs for a question and its answer.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        lock(&self.clock).round_trip()
    }

    /// Returns the present time of the server.
    #[must_use]
    pub fn time(&self) -> Time {
        lock(&self.clock).time(Timestamp::now())
    }

    pub(super) fn fence_floor(&self) -> u64 {
        let removed = u64::try_from(lock(&self.removed).fence).unwrap_or(0);
        // Of an unknown time, the lower bound is 0.
        removed.max(self.time().now.as_micros())
    }

    /// Returns the count of removals that is known, -1 if that is unknown.
    #[must_use]
    pub fn removals(&self) -> i64 {
        lock(&self.removed).count
    }

    pub(super) fn known_epoch(&self) -> KnownEpoch {
        *lock(&self.epoch)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.known_epoch().at(Timestamp::now())
    }
}

/// Waits for a value. `None`: it has not come within `limit`.
pub(super) async fn within<T>(limit: Duration, value: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = value => Some(value),
        () = background::sleep(limit) => None,
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}
