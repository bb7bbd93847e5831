//! Three servers of a ZooKeeper ensemble.

use super::{Disk, Pauses, Target, network};
use locker_harness::{Fault, Proxy, ZookeeperCluster};
use std::time::Duration;

const SERVERS: usize = 3;

pub(super) struct Zookeeper {
    ensemble: ZookeeperCluster,
    /// One before the port for clients of each server.
    proxies: Vec<Proxy>,
}

impl Zookeeper {
    pub(super) fn start() -> Option<Self> {
        let ensemble = ZookeeperCluster::start(SERVERS)?;
        let proxies = (0..SERVERS).map(|server| Proxy::to(ensemble.port(server))).collect();
        Some(Self { ensemble, proxies })
    }
}

impl Target for Zookeeper {
    fn clock_gains(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn disk(&self) -> Disk {
        Disk::None
    }

    fn url(&self) -> String {
        let addresses: Vec<String> = self.proxies.iter().map(network::address).collect();
        format!("zk://{}", addresses.join(","))
    }

    fn direct_url(&self) -> String {
        self.ensemble.url()
    }

    fn clock_is_late_by(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn faults(&self) -> &'static [&'static str] {
        &[
            "kill-leader",
            "stop-leader",
            "cut-leader",
            "kill-member",
            "restart-all",
            "reset",
            "drop-replies",
            "execute-and-reset",
            "half-close",
            "delay",
        ]
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
                let server = pauses.0.usize(..SERVERS);
                self.ensemble.kill(server);
                pauses.pause(0, 1_500);
                self.ensemble.restart(server);
            }
            "stop-leader" => {
                let leader = self.ensemble.leader();
                self.ensemble.stop(leader);
                pauses.pause(50, 2_500);
                self.ensemble.cont(leader);
            }
            // Its connections to clients stay open and silent. The other servers reach it.
            "cut-leader" => {
                let leader = self.ensemble.leader();
                self.proxies[leader].set(Fault::DropRequests);
                pauses.pause(50, 2_500);
                self.proxies[leader].set(Fault::None);
            }
            "restart-all" => {
                (0..SERVERS).for_each(|server| self.ensemble.kill(server));
                pauses.pause(0, 1_500);
                (0..SERVERS).for_each(|server| self.ensemble.restart(server));
                // Three virtual machines take longer to start than a fault may last.
                self.ensemble.settle();
            }
            fault => {
                let proxies: Vec<&Proxy> = self.proxies.iter().collect();
                network::strike(fault, &proxies, pauses).expect("a fault of this store");
            }
        }
    }

    fn leaks(&self) -> Vec<String> {
        self.ensemble.settle();
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        Vec::new()
    }
}
