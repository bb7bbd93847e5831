//! What differs on ZooKeeper.

use super::ensemble::Differences;
use locker_harness::{Zookeeper, ZookeeperCluster, eventually};
use locker_zookeeper::loses_writes;

impl Differences for Zookeeper {
    /// Three virtual machines take longer to start than a fault may last.
    fn settle(ensemble: &ZookeeperCluster) {
        ensemble.settle();
    }

    /// Some releases lose acknowledged writes without any program of ours, see `scripts/zookeeper-loss.py`.
    fn keeps_writes(ensemble: &ZookeeperCluster) -> bool {
        eventually("an answer to srvr", || Some(!loses_writes(&ensemble.say(0, "srvr")?)))
    }

    fn has_inboxes(ensemble: &ZookeeperCluster) -> Option<bool> {
        Some(ensemble.say(ensemble.leader(), "dump")?.contains("/inbox/"))
    }

    /// No server tells the nodes by a word. Those that processes leave are for a sweep, which tests of the store show.
    fn eternal_keys(_: &ZookeeperCluster) -> Vec<String> {
        Vec::new()
    }
}
