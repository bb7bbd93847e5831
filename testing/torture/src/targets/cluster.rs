//! A Redis Cluster: three masters, each with a replica. No fault of it loses a write.

use super::{Pauses, Target, redis};
use locker_harness::{ClusterSetup, RedisServer, Signal};
use std::{collections::BTreeMap, time::Duration};

const PAIRS: usize = ClusterSetup::MASTERS;

pub(super) struct Cluster {
    setup: ClusterSetup,
    /// The slots that were moved, with the pair of master and replica that has each.
    moved: BTreeMap<u16, usize>,
}

impl Cluster {
    pub(super) fn start() -> Option<Self> {
        // For twice this time a node gives no second vote about the same master, and a promotion is waited for 30 s.
        let setup = ClusterSetup::with(&["--cluster-node-timeout", "10000"])?;
        Some(Self { setup, moved: BTreeMap::new() })
    }

    /// Returns the master and the replica of a pair.
    fn roles(&self, pair: usize) -> (usize, usize) {
        let info: String = self.setup.servers()[pair].ask("INFO", &["replication"]);
        if info.contains("role:master") { (pair, pair + PAIRS) } else { (pair + PAIRS, pair) }
    }

    fn masters(&self) -> impl Iterator<Item = &RedisServer> {
        (0..PAIRS).map(|pair| &self.setup.servers()[self.roles(pair).0])
    }

    /// Moves the slot of some key to another master, while its keys are in use.
    fn move_slot(&mut self, pauses: &mut Pauses<'_>) {
        let key = self.masters().find_map(|master| master.ask::<Option<String>>("RANDOMKEY", &[]));
        let Some(key) = key else { return };
        let slot = self.setup.slot(&key);
        let from = self.moved.get(&slot).copied().unwrap_or_else(|| self.setup.first_owner(&key));
        let to = (from + pauses.0.usize(1..PAIRS)) % PAIRS;
        let (source, target) = (self.roles(from).0, self.roles(to).0);
        self.setup.begin_move(slot, source, target);
        pauses.pause(0, 300);
        self.setup.move_keys(slot, source, target);
        pauses.pause(0, 100);
        self.setup.end_move(slot, source, target);
        self.moved.insert(slot, to);
    }
}

impl Target for Cluster {
    fn url(&self) -> String {
        self.setup.url()
    }

    fn joins_within(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn faults(&self) -> &'static [&'static str] {
        &["move-slot", "promote", "stop-master", "stop-replica", "forget-scripts"]
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        let (master, replica) = self.roles(pauses.0.usize(..PAIRS));
        let stop = |server: usize, pauses: &mut Pauses<'_>| {
            self.setup.servers()[server].signal(Signal::STOP);
            pauses.pause(50, 1_500);
            self.setup.servers()[server].signal(Signal::CONT);
        };
        match fault {
            "move-slot" => self.move_slot(pauses),
            // The master lets its replica catch up first.
            "promote" => self.setup.promote(replica),
            "stop-master" => stop(master, pauses),
            "stop-replica" => stop(replica, pauses),
            "forget-scripts" => redis::forget_scripts(&self.setup.servers()[master], pauses),
            fault => unreachable!("no fault of this store is called {fault}"),
        }
    }

    fn leaks(&self) -> Vec<String> {
        self.masters().for_each(redis::wait_for_the_end);
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        self.masters().flat_map(redis::eternal_keys).collect()
    }
}
