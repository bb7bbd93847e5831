//! What the connections of one store share.

use super::{
    clock::Clock,
    sql::Statements,
    store_state::{KnownEpoch, StoreState},
    url::Target,
};
use locker_cas::{Draw, Inbox, Message, Received};
use locker_core::{
    clock::Timestamp,
    diagnostics,
    error::{Error, Result},
    panics,
    sync::{Mutex, lock},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};
use tokio::sync::{Notify, watch};
use tokio_postgres::Row;

/// The receiver of messages to this process.
pub(super) type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

/// Whether the store has been opened.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Opening,
    Open,
    Failed(Error),
}

/// What the connections of one store share.
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) statements: Statements,
    pub(super) receiver: OnceLock<Receiver>,
    pub(super) clock: Mutex<Clock>,
    pub(super) removed: Mutex<Removed>,
    pub(super) epoch: Mutex<KnownEpoch>,
    /// Whether statements have names on the server.
    pub(super) named: Arc<AtomicBool>,
    /// Whether the store was used since the last sample of the clock.
    pub(super) is_used: AtomicBool,
    pub(super) status: watch::Sender<Status>,
    /// Notified when this process has heard its own probe.
    pub(super) probe: Notify,
    /// Notified when the tables or the row of `locker_boot` are gone.
    pub(super) reopen: Notify,
    /// The open connections for durable writes and for others.
    pub(super) open: [AtomicUsize; 2],
    inbox: AtomicU32,
    draw: Draw,
    /// The channel that was listened to last.
    pub(super) channel: Mutex<String>,
}

/// What is known about keys that were removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removed {
    /// At least as high as the fences of all keys that were removed.
    pub(super) fence: i64,
    /// How often keys were removed, -1 if that is unknown.
    pub(super) count: i64,
}

/// In place of messages that are too long.
const GAP: &str = "\u{1}gap";
/// A message of a process to itself, which shows that messages are heard.
const PROBE: &str = "\u{1}probe";
/// The maximum of bytes of a notification is one byte less than this.
const MAX_MESSAGE: usize = 8_000;

impl Shared {
    /// The number of the inbox is odd if the process may poll, so that senders do not take it for dead.
    pub(super) fn new(target: Target, may_poll: bool, draw: Draw) -> Self {
        Self {
            statements: Statements::new(&target.schema),
            target,
            receiver: OnceLock::new(),
            clock: Mutex::default(),
            epoch: Mutex::default(),
            removed: Mutex::new(Removed { fence: 0, count: -1 }),
            named: Arc::default(),
            is_used: AtomicBool::new(false),
            status: watch::Sender::new(Status::Opening),
            probe: Notify::new(),
            reopen: Notify::new(),
            open: [AtomicUsize::new(0), AtomicUsize::new(0)],
            inbox: AtomicU32::new(draw() & !1 | Inbox::from(may_poll)),
            draw,
            channel: Mutex::default(),
        }
    }

    pub(super) fn inbox(&self) -> Inbox {
        self.inbox.load(Ordering::Acquire)
    }

    /// Makes the inbox one of a process that polls, before anybody knows it.
    pub(super) fn poll_inbox(&self) {
        self.inbox.fetch_or(1, Ordering::AcqRel);
    }

    /// Draws another inbox: this one is that of another process.
    pub(super) fn draw_inbox(&self) {
        self.inbox.store((self.draw)() & !1 | self.inbox() & 1, Ordering::Release);
    }

    /// Waits until the store is open. After an error, nothing was sent.
    pub(super) async fn opened(&self) -> Result<()> {
        if matches!(*self.status.borrow(), Status::Open) {
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

    /// Hands a notification to the receiver.
    pub(super) fn receive(&self, text: &str) {
        match text {
            GAP => self.tell(Received::Gap),
            PROBE => self.probe.notify_one(),
            text => self.tell(Received::Text(text)),
        }
    }

    pub(super) fn tell(&self, received: Received<'_>) {
        if let Some(receiver) = self.receiver.get() {
            panics::contain(|| receiver(received));
        }
    }

    /// Records the state of the store at the end of a row that was asked for at `sent`. Returns it.
    pub(super) fn record(&self, sent: Timestamp, row: &Row) -> StoreState {
        let (state, now) = (StoreState::of(row), Timestamp::now());
        {
            let mut removed = lock(&self.removed);
            // Not the highest count: a restored backup has a lower one.
            *removed = Removed { fence: removed.fence.max(state.fence), count: state.removals };
        }
        // Others must know that writes of this process can be lost before it writes.
        match state.epoch.filter(|_| self.target.durable || state.quick) {
            Some(id) => self.record_epoch(id, &state, now),
            None => self.reopen.notify_one(),
        }
        lock(&self.clock).add(sent, state.now, now);
        state
    }

    fn record_epoch(&self, id: i64, state: &StoreState, now: Timestamp) {
        let mut epoch = lock(&self.epoch);
        let was_known = epoch.id != 0;
        if epoch.record(id, state, now) {
            if was_known {
                // Another server may have another clock.
                *lock(&self.clock) = Clock::default();
            }
            let quiet = epoch.at(now).quiet;
            drop(epoch);
            if let Some(quiet) = quiet {
                diagnostics::warn_aloud(&format!(
                    "{} may have lost locks in a crash or failover: nothing is granted for {quiet:.0?}",
                    self.target.address
                ));
            }
        }
    }

    /// Records the times of the server at which keys were written, by a statement that was sent at `sent`.
    pub(super) fn record_times(&self, sent: Timestamp, times: impl Iterator<Item = i64>) {
        let heard = Timestamp::now();
        let mut clock = lock(&self.clock);
        times.for_each(|time| clock.add(sent, time, heard));
    }

    pub(super) fn probe_message(&self) -> Message {
        Message { to: self.inbox(), text: PROBE.into() }
    }
}

/// Returns inboxes and texts as parameters.
pub(super) fn as_parameters<'a>(messages: impl IntoIterator<Item = &'a Message>) -> (Vec<i64>, Vec<&'a str>) {
    let parameters = messages.into_iter().map(|message| {
        let text = if message.text.len() < MAX_MESSAGE { &*message.text } else { GAP };
        (i64::from(message.to), text)
    });
    parameters.unzip()
}

/// Returns the inboxes that nobody listens to, from an array in a row.
pub(super) fn gone(row: &Row, column: usize) -> Vec<Inbox> {
    let gone: Option<Vec<i64>> = row.get(column);
    gone.unwrap_or_default().into_iter().filter_map(|inbox| Inbox::try_from(inbox).ok()).collect()
}
