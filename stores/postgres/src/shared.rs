//! What the connections of one store share.

use super::{
    sql::{self, Statements},
    url::Target,
};
use locker_cas::{
    Draw, Inbox, Message, Received,
    served::{Server, StoreState},
};
use locker_core::{clock::Timestamp, sync::Mutex};
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_postgres::Row;

/// What the connections of one store share.
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) statements: Statements,
    pub(super) server: Server,
    /// Whether statements have names on the server.
    pub(super) named: Arc<AtomicBool>,
    /// Notified when this process has heard its own probe.
    pub(super) probe: Notify,
    /// The channel that was listened to last.
    pub(super) channel: Mutex<String>,
}

/// In place of messages that are too long.
const GAP: &str = "\u{1}gap";
/// A message of a process to itself, which shows that messages are heard.
const PROBE: &str = "\u{1}probe";
/// The maximum of bytes of a notification is one byte less than this.
const MAX_MESSAGE: usize = 8_000;

impl Shared {
    /// The number of the inbox is odd if the process may poll, so that senders do not take it for dead.
    pub(super) fn new(target: Target, answer_limit: Duration, may_poll: bool, draw: Draw) -> Self {
        let server = Server::new(target.address.clone(), answer_limit, draw);
        server.change_inbox(|inbox| inbox & !1 | Inbox::from(may_poll));
        Self {
            statements: Statements::new(&target.schema),
            target,
            server,
            named: Arc::default(),
            probe: Notify::new(),
            channel: Mutex::default(),
        }
    }

    /// Makes the inbox one of a process that polls, before anybody knows it.
    pub(super) fn poll_inbox(&self) {
        self.server.change_inbox(|inbox| inbox | 1);
    }

    /// Draws another inbox: this one is that of another process.
    pub(super) fn draw_inbox(&self) {
        self.server.change_inbox(|inbox| self.server.draw() & !1 | inbox & 1);
    }

    /// Hands a notification to the receiver.
    pub(super) fn receive(&self, text: &str) {
        match text {
            GAP => self.server.tell(Received::Gap),
            PROBE => self.probe.notify_one(),
            text => self.server.tell(Received::Text(text)),
        }
    }

    /// Records the state of the store at the end of a row that was asked for at `sent`. Returns it.
    pub(super) fn record(&self, sent: Timestamp, row: &Row) -> StoreState {
        let state = sql::store_state(row);
        self.server.record(sent, &state, !self.target.durable);
        state
    }

    pub(super) fn probe_message(&self) -> Message {
        Message { to: self.server.inbox(), text: PROBE.into() }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
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
