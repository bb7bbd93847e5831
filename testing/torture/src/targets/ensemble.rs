//! Three members of a cluster that elects a leader: etcd, ZooKeeper.

use super::{Disk, Pauses, Target, network};
use locker_harness::{Ensemble, Fault, Kind, Proxy, eventually};
use std::time::Duration;

const MEMBERS: usize = 3;

/// What differs between the clusters.
pub(super) trait Differences: Kind {
    /// Waits until a fault may end.
    fn settle(_: &Ensemble<Self>) {}

    /// Returns whether the servers keep what they acknowledged when their disks are slow while they are killed.
    fn keeps_writes(_: &Ensemble<Self>) -> bool {
        true
    }

    /// Returns whether a process listens, if the cluster answers.
    fn has_inboxes(ensemble: &Ensemble<Self>) -> Option<bool>;

    /// Returns the keys that nothing ever removes.
    fn eternal_keys(ensemble: &Ensemble<Self>) -> Vec<String>;
}

pub(super) struct Members<K: Kind> {
    ensemble: Ensemble<K>,
    /// One before the port for clients of each member.
    proxies: Vec<Proxy>,
}

impl<K: Kind> Members<K> {
    pub(super) fn of(start: impl FnOnce(usize) -> Option<Ensemble<K>>) -> Option<Self> {
        let ensemble = start(MEMBERS)?;
        let proxies = (0..MEMBERS).map(|member| Proxy::to(ensemble.port(member))).collect();
        Some(Self { ensemble, proxies })
    }
}

impl<K: Differences> Target for Members<K> {
    fn clock_gains(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn disk(&self) -> Disk {
        if K::keeps_writes(&self.ensemble) { Disk::OfServers(self.ensemble.processes()) } else { Disk::None }
    }

    fn url(&self) -> String {
        let addresses: Vec<String> = self.proxies.iter().map(network::address).collect();
        let direct = self.direct_url();
        let (scheme, _) = direct.split_once("://").expect("a URL");
        format!("{scheme}://{}", addresses.join(","))
    }

    fn direct_url(&self) -> String {
        self.ensemble.url()
    }

    fn clock_is_late_by(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn faults(&self) -> &'static [&'static str] {
        &["kill-leader", "stop-leader", "cut-leader", "kill-member", "restart-all", "stop-all"]
    }

    fn faults_of_network(&self) -> &'static [&'static str] {
        &network::FAULTS
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        match fault {
            "kill-leader" => {
                let leader = self.ensemble.leader();
                self.ensemble.kill(leader);
                pauses.pause(0, 1_500);
                self.ensemble.restart(leader);
            }
            "kill-member" => {
                let member = pauses.0.usize(..MEMBERS);
                self.ensemble.kill(member);
                pauses.pause(0, 1_500);
                self.ensemble.restart(member);
            }
            "stop-leader" => {
                let leader = self.ensemble.leader();
                self.ensemble.stop(leader);
                pauses.pause(50, 2_500);
                self.ensemble.cont(leader);
            }
            // Its connections to clients stay open and silent. The other members reach it.
            "cut-leader" => {
                let leader = self.ensemble.leader();
                self.proxies[leader].set(Fault::DropRequests);
                pauses.pause(50, 2_500);
                self.proxies[leader].set(Fault::None);
            }
            "restart-all" => {
                (0..MEMBERS).for_each(|member| self.ensemble.kill(member));
                pauses.pause(0, 1_500);
                (0..MEMBERS).for_each(|member| self.ensemble.restart(member));
                K::settle(&self.ensemble);
            }
            "stop-all" => {
                (0..MEMBERS).for_each(|member| self.ensemble.stop(member));
                pauses.pause(50, 1_500);
                (0..MEMBERS).for_each(|member| self.ensemble.cont(member));
            }
            fault => {
                let proxies: Vec<&Proxy> = self.proxies.iter().collect();
                network::strike(fault, &proxies, pauses).expect("a fault of this store");
            }
        }
    }

    fn leaks(&self) -> Vec<String> {
        eventually("the end of the last inbox", || (!K::has_inboxes(&self.ensemble)?).then_some(()));
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        K::eternal_keys(&self.ensemble)
    }
}
