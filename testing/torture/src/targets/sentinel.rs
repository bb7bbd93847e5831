//! A master, two replicas and three sentinels. The workers are in strict mode, because failovers lose writes.

use super::{Pauses, Target, redis};
use crate::worker::LEASE;
use locker_checker::format::Losses;
use locker_harness::{SentinelSetup, Signal, eventually};
use std::time::Duration;

pub(super) struct Sentinel {
    setup: SentinelSetup,
}

impl Sentinel {
    pub(super) fn start() -> Option<Self> {
        Some(Self { setup: SentinelSetup::start()? })
    }

    fn master(&self) -> usize {
        eventually("a master", || self.setup.master())
    }

    /// Kills the master. Its replicas lack what it has written since `is_cut`.
    fn kill_master(&mut self, is_cut: bool, pauses: &mut Pauses<'_>) {
        let master = self.master();
        if is_cut {
            self.setup.cut_replication(master);
            pauses.pause(50, 1_000);
        }
        self.setup.kill(master);
        let successor = self.setup.successor(master);
        pauses.pause(0, 1_000);
        self.setup.restart(master);
        self.setup.wait_for_replicas(successor, 2);
    }

    fn stop(&self, server: usize, pauses: &mut Pauses<'_>) {
        let server = &self.setup.servers()[server];
        server.signal(Signal::STOP);
        // Shorter than what the sentinels take for its death.
        pauses.pause(50, 1_500);
        server.signal(Signal::CONT);
    }
}

impl Target for Sentinel {
    fn url(&self) -> String {
        format!("{}?strict={}ms", self.setup.url(), LEASE.as_millis())
    }

    fn direct_url(&self) -> String {
        self.setup.url()
    }

    fn losses(&self) -> Losses {
        Losses::Writes
    }

    fn joins_within(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn faults(&self) -> &'static [&'static str] {
        &[
            "fail-over",
            "kill-master",
            "cut-and-kill-master",
            "stop-master",
            "stop-replica",
            "stop-sentinel",
            "forget-scripts",
        ]
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        match fault {
            "fail-over" => {
                let successor = self.setup.fail_over();
                self.setup.wait_for_replicas(successor, 2);
                // Nothing is granted for some seconds after it: the workers need time between failovers.
                pauses.pause(0, 6_000);
            }
            "kill-master" | "cut-and-kill-master" => {
                self.kill_master(fault != "kill-master", pauses);
                pauses.pause(0, 6_000);
            }
            "stop-master" => self.stop(self.master(), pauses),
            "stop-replica" => {
                let master = self.master();
                self.stop((master + 1) % self.setup.servers().len(), pauses);
            }
            "stop-sentinel" => {
                let sentinel = pauses.0.usize(..self.setup.sentinels().len());
                self.setup.stop_sentinel(sentinel);
                pauses.pause(50, 2_500);
                self.setup.continue_sentinel(sentinel);
            }
            "forget-scripts" => redis::forget_scripts(&self.setup.servers()[self.master()], pauses),
            fault => unreachable!("no fault of this store is called {fault}"),
        }
    }

    fn leaks(&self) -> Vec<String> {
        redis::wait_for_the_end(&self.setup.servers()[self.master()]);
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        redis::eternal_keys(&self.setup.servers()[self.master()])
    }
}
