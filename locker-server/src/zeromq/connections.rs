//! Which connections are there: no more than may, and what waits for one that is gone is given up.

use super::socket::{Change, MOST_UNREAD_BYTES};
use crate::limits::Gauge;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// How many connections that have gone are remembered: a message of theirs may still be on its way to us.
const REMEMBERED: usize = 16_384;

#[derive(Debug)]
pub(super) struct Connections {
    /// Shared with the other sockets of the server.
    seats: Arc<Gauge>,
    /// The cap on [`Client::calls`].
    most_calls: usize,
    here: HashMap<u64, Client>,
    gone: HashSet<u64>,
    order: VecDeque<u64>,
}

/// Who has a connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Ends with the connection.
    pub(super) gone: CancellationToken,
    /// Those that do not wait and are not answered yet.
    pub(super) calls: Arc<Gauge>,
    /// The bytes of long answers that were not sent yet.
    pub(super) unread: Arc<Gauge>,
}

impl Connections {
    pub(super) fn new(seats: Arc<Gauge>, most_calls: usize) -> Self {
        Self { seats, most_calls, here: HashMap::new(), gone: HashSet::new(), order: VecDeque::new() }
    }

    /// `None` when it has gone already, or there are as many as may be.
    pub(super) fn of(&mut self, connection: u64) -> Option<Client> {
        if self.gone.contains(&connection) {
            return None;
        }
        if let Some(client) = self.here.get(&connection) {
            return Some(client.clone());
        }
        if !self.seats.enter() {
            self.remember(connection);
            return None;
        }
        let client = Client {
            gone: CancellationToken::new(),
            calls: Arc::new(Gauge::new(self.most_calls)),
            unread: Arc::new(Gauge::new(MOST_UNREAD_BYTES)),
        };
        self.here.insert(connection, client.clone());
        Some(client)
    }

    /// Follows what has changed and names those to be closed, who are too many.
    #[must_use]
    pub(super) fn follow(&mut self, change: Change) -> Vec<u64> {
        match change {
            Change::Came(connection) => self.beyond([connection]),
            Change::Gone(connection) => {
                self.forget(connection);
                Vec::new()
            }
            Change::Now(now) => {
                let gone: Vec<_> =
                    self.here.keys().copied().filter(|connection| !now.contains(connection)).collect();
                for connection in gone {
                    self.forget(connection);
                }
                self.beyond(now)
            }
        }
    }

    fn beyond(&mut self, connections: impl IntoIterator<Item = u64>) -> Vec<u64> {
        connections.into_iter().filter(|connection| self.of(*connection).is_none()).collect()
    }

    fn forget(&mut self, connection: u64) {
        if let Some(client) = self.here.remove(&connection) {
            client.gone.cancel();
            self.seats.leave();
        }
        self.remember(connection);
    }

    fn remember(&mut self, gone: u64) {
        if self.gone.insert(gone) {
            self.order.push_back(gone);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.here.keys().for_each(|_| self.seats.leave());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(most: usize) -> Connections {
        Connections::new(Arc::new(Gauge::new(most)), 1)
    }

    #[test]
    fn what_belongs_to_a_connection_ends_with_it() {
        let mut connections = connections(10);
        let (one, other) = (connections.of(1).unwrap(), connections.of(2).unwrap());
        assert_eq!(connections.follow(Change::Gone(1)), Vec::<u64>::new());
        assert!(one.gone.is_cancelled() && !other.gone.is_cancelled());
        assert!(connections.of(1).is_none(), "a late message finds it gone");
        assert_eq!(connections.follow(Change::Now(HashSet::from([3]))), Vec::<u64>::new());
        assert!(other.gone.is_cancelled() && connections.of(3).is_some());
        assert_eq!(connections.seats.now(), 1);
    }

    #[test]
    fn those_beyond_the_cap_are_named_and_stay_out() {
        let mut connections = connections(2);
        assert_eq!(connections.follow(Change::Came(1)), Vec::<u64>::new());
        assert!(connections.of(2).is_some(), "a message may be heard before its connection");
        assert_eq!(connections.follow(Change::Came(2)), Vec::<u64>::new());
        assert!(connections.of(3).is_none());
        assert_eq!(connections.follow(Change::Came(3)), [3]);
        assert_eq!(connections.follow(Change::Gone(1)), Vec::<u64>::new());
        assert!(connections.of(3).is_none(), "it is being closed");
        assert_eq!(connections.follow(Change::Came(4)), Vec::<u64>::new());
        assert_eq!(connections.follow(Change::Now(HashSet::from([2, 4, 5]))), [5]);
        let seats = connections.seats.clone();
        drop(connections);
        assert_eq!(seats.now(), 0);
    }

    #[test]
    fn few_of_the_gone_are_remembered() {
        let mut connections = connections(1);
        (0..100_000).for_each(|connection| connections.forget(connection));
        assert_eq!((connections.gone.len(), connections.order.len()), (REMEMBERED, REMEMBERED));
    }
}
