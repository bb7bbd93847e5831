//! Which connections are there: what waits for one that is gone is given up.

use std::collections::{HashMap, HashSet, VecDeque};
use tokio_util::sync::CancellationToken;

/// How many connections that have gone are remembered: a message of theirs may still be on its way to us.
const REMEMBERED: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Connections {
    here: HashMap<u64, CancellationToken>,
    gone: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Connections {
    /// What ends with the connection; `None` when it has gone already.
    pub(super) fn of(&mut self, connection: u64) -> Option<CancellationToken> {
        if self.gone.contains(&connection) {
            return None;
        }
        Some(self.here.entry(connection).or_default().clone())
    }

    pub(super) fn forget(&mut self, connection: u64) {
        if let Some(token) = self.here.remove(&connection) {
            token.cancel();
        }
        if self.gone.insert(connection) {
            self.order.push_back(connection);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    pub(super) fn keep(&mut self, left: &HashSet<u64>) {
        let gone: Vec<_> =
            self.here.keys().copied().filter(|connection| !left.contains(connection)).collect();
        for connection in gone {
            self.forget(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_connection_ends_with_it() {
        let mut connections = Connections::default();
        let (one, other) = (connections.of(1).unwrap(), connections.of(2).unwrap());
        connections.forget(1);
        assert!(one.is_cancelled() && !other.is_cancelled());
        assert!(connections.of(1).is_none(), "a late message finds it gone");
        connections.keep(&HashSet::from([3]));
        assert!(other.is_cancelled());
    }

    #[test]
    fn few_of_the_gone_are_remembered() {
        let mut connections = Connections::default();
        (0..100_000).for_each(|connection| connections.forget(connection));
        assert_eq!((connections.gone.len(), connections.order.len()), (REMEMBERED, REMEMBERED));
    }
}
