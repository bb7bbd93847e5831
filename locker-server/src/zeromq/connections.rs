//! The connections of a ZeroMQ socket: keeps them within the cap, and ends the waits of clients that disconnected.

use crate::{caps::Cap, open_files::ConnectionCap};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// The limit of unread bytes in long answers to one client. More answers are dropped.
const MAX_UNREAD_BYTES: usize = 16 << 20;

/// How many closed connections are remembered, because a message of theirs may still arrive.
const REMEMBERED: usize = 16_384;

#[derive(Debug)]
pub(super) struct Connections {
    /// Shared with the other sockets of the server.
    cap: ConnectionCap,
    /// The limit of [`Client::calls`].
    max_calls: usize,
    open: HashMap<u64, Client>,
    /// Closed connections, and connections beyond the cap that are being closed.
    closed: HashSet<u64>,
    /// The same, oldest first.
    order: VecDeque<u64>,
}

/// A change of the connections of a socket.
#[derive(Debug)]
pub(super) enum Change {
    /// A connection completed its handshake.
    Opened(u64),
    Closed(u64),
    /// The full list of connections, after changes were missed.
    All(HashSet<u64>),
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Cancelled when the connection closes.
    pub(super) gone: CancellationToken,
    /// The unanswered calls that do not wait.
    pub(super) calls: Arc<Cap>,
    /// The unsent bytes of long answers.
    pub(super) unread: Arc<Cap>,
}

impl Connections {
    pub(super) fn new(cap: ConnectionCap, max_calls: usize) -> Self {
        Self { cap, max_calls, open: HashMap::new(), closed: HashSet::new(), order: VecDeque::new() }
    }

    /// Returns `None` if the connection is closed or beyond the cap.
    pub(super) fn client(&mut self, connection: u64) -> Option<Client> {
        if self.closed.contains(&connection) {
            return None;
        }
        if let Some(client) = self.open.get(&connection) {
            return Some(client.clone());
        }
        if !self.cap.try_enter() {
            self.remember(connection);
            return None;
        }
        let client = Client {
            gone: CancellationToken::new(),
            calls: Arc::new(Cap::new(self.max_calls)),
            unread: Arc::new(Cap::new(MAX_UNREAD_BYTES)),
        };
        self.open.insert(connection, client.clone());
        Some(client)
    }

    /// Applies a change and returns the connections beyond the cap, which must be closed.
    #[must_use]
    pub(super) fn apply(&mut self, change: Change) -> Vec<u64> {
        match change {
            Change::Opened(connection) => self.over_cap([connection]),
            Change::Closed(connection) => {
                self.forget(connection);
                Vec::new()
            }
            Change::All(all) => {
                let closed: Vec<_> =
                    self.open.keys().copied().filter(|connection| !all.contains(connection)).collect();
                for connection in closed {
                    self.forget(connection);
                }
                self.over_cap(all)
            }
        }
    }

    fn over_cap(&mut self, connections: impl IntoIterator<Item = u64>) -> Vec<u64> {
        connections.into_iter().filter(|connection| self.client(*connection).is_none()).collect()
    }

    fn forget(&mut self, connection: u64) {
        if let Some(client) = self.open.remove(&connection) {
            client.gone.cancel();
            self.cap.leave();
        }
        self.remember(connection);
    }

    fn remember(&mut self, gone: u64) {
        if self.closed.insert(gone) {
            self.order.push_back(gone);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.closed.remove(&oldest);
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.open.keys().for_each(|_| self.cap.leave());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(limit: usize) -> Connections {
        let [_, cap] = crate::open_files::share(usize::MAX, [0, limit]);
        Connections::new(cap, 1)
    }

    #[test]
    fn waits_end_with_their_connection() {
        let mut connections = connections(10);
        let (one, other) = (connections.client(1).unwrap(), connections.client(2).unwrap());
        assert_eq!(connections.apply(Change::Closed(1)), Vec::<u64>::new());
        assert!(one.gone.is_cancelled() && !other.gone.is_cancelled());
        assert!(connections.client(1).is_none(), "a late message finds the connection closed");
        assert_eq!(connections.apply(Change::All(HashSet::from([3]))), Vec::<u64>::new());
        assert!(other.gone.is_cancelled() && connections.client(3).is_some());
        assert_eq!(connections.cap.count(), 1);
    }

    #[test]
    fn connections_over_the_cap_stay_out() {
        let mut connections = connections(2);
        assert_eq!(connections.apply(Change::Opened(1)), Vec::<u64>::new());
        assert!(connections.client(2).is_some(), "a message may be received before the change");
        assert_eq!(connections.apply(Change::Opened(2)), Vec::<u64>::new());
        assert!(connections.client(3).is_none());
        assert_eq!(connections.apply(Change::Opened(3)), [3]);
        assert_eq!(connections.apply(Change::Closed(1)), Vec::<u64>::new());
        assert!(connections.client(3).is_none(), "it is being closed");
        assert_eq!(connections.apply(Change::Opened(4)), Vec::<u64>::new());
        assert_eq!(connections.apply(Change::All(HashSet::from([2, 4, 5]))), [5]);
        let cap = connections.cap.clone();
        drop(connections);
        assert_eq!(cap.count(), 0);
    }

    #[test]
    fn few_closed_connections_are_remembered() {
        let mut connections = connections(1);
        (0..100_000).for_each(|connection| connections.forget(connection));
        assert_eq!((connections.closed.len(), connections.order.len()), (REMEMBERED, REMEMBERED));
    }
}
