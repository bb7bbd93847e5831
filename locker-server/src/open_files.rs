//! The limit on open files, and how the connections of HTTP and ZeroMQ share it.

use crate::sync::lock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, Mutex};

/// Raises the soft limit on open files to the hard limit and returns the resulting limit.
pub(crate) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// Returns the caps on the connections of two transports, which share `files`. If the files allow fewer connections
/// than `limits`, each transport is guaranteed a sixteenth of them, and may use all that the other one does not need.
pub(crate) fn share(files: usize, limits: [usize; 2]) -> [ConnectionCap; 2] {
    let guaranteed = limits.map(|limit| limit.min((files / 16).max(1)));
    let files = files.max(guaranteed.iter().sum());
    let shared = Arc::new(Shared { files, limits, guaranteed, open: Mutex::default() });
    [0, 1].map(|own| ConnectionCap { shared: shared.clone(), own })
}

/// The cap on the connections of one transport.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCap {
    shared: Arc<Shared>,
    own: usize,
}

#[derive(Debug)]
struct Shared {
    files: usize,
    limits: [usize; 2],
    /// The files that the other transport cannot take.
    guaranteed: [usize; 2],
    open: Mutex<[usize; 2]>,
}

impl ConnectionCap {
    /// Adds a connection until [`leave`](Self::leave). Returns `false` if the cap is reached, or if all other files are
    /// in use or guaranteed to the other transport.
    #[must_use]
    pub(crate) fn try_enter(&self) -> bool {
        let Shared { files, limits, guaranteed, open } = &*self.shared;
        let (own, other) = (self.own, 1 - self.own);
        let mut open = lock(open);
        let taken = open[own] + open[other].max(guaranteed[other]);
        let has_room = open[own] < limits[own] && taken < *files;
        open[own] += usize::from(has_room);
        has_room
    }

    pub(crate) fn leave(&self) {
        lock(&self.shared.open)[self.own] -= 1;
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.shared.open)[self.own]
    }

    /// Returns the greatest possible number of connections.
    pub(crate) fn limit(&self) -> usize {
        let Shared { files, limits, guaranteed, .. } = &*self.shared;
        limits[self.own].min(files - guaranteed[1 - self.own])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(cap: &ConnectionCap) -> usize {
        std::iter::repeat_with(|| cap.try_enter()).take_while(|entered| *entered).count()
    }

    #[test]
    fn each_transport_uses_what_the_other_leaves() {
        let [http, zmq] = share(160, [1000, 1000]);
        assert_eq!((fill(&http), fill(&zmq)), (150, 10));
        let [http, zmq] = share(160, [1000, 1000]);
        assert_eq!((fill(&zmq), fill(&http)), (150, 10));
    }

    #[test]
    fn freed_files_go_to_either_transport() {
        let [http, zmq] = share(160, [1000, 1000]);
        assert_eq!((fill(&http), fill(&zmq)), (150, 10));
        for _ in 0..30 {
            http.leave();
        }
        assert_eq!((fill(&zmq), fill(&http)), (30, 0));
        for _ in 0..40 {
            zmq.leave();
        }
        assert_eq!((zmq.count(), fill(&http)), (0, 30), "the guaranteed part stays free");
        assert_eq!(fill(&zmq), 10);
    }

    #[test]
    fn caps_below_the_files_are_exact() {
        let [http, zmq] = share(1000, [60, 40]);
        assert_eq!((fill(&http), fill(&zmq)), (60, 40));
        let [http, zmq] = share(100, [65_536, 3]);
        assert_eq!((fill(&http), fill(&zmq)), (97, 3));
        let [http, zmq] = share(100, [65_536, 0]);
        assert_eq!((fill(&http), fill(&zmq)), (100, 0));
        let [http, zmq] = share(1, [65_536, 4096]);
        assert_eq!((fill(&http), fill(&zmq)), (1, 1), "each gets one");
        let [http, zmq] = share(usize::MAX, [7, 1]);
        assert_eq!((fill(&http), fill(&zmq)), (7, 1));
    }
}
