//! Three members of an etcd cluster.

use super::{Disk, Pauses, Target, network};
use locker_harness::{EtcdCluster, Fault, Proxy, eventually};
use std::time::Duration;

const MEMBERS: usize = 3;

pub(super) struct Etcd {
    cluster: EtcdCluster,
    /// One before the port for clients of each member.
    proxies: Vec<Proxy>,
}

impl Etcd {
    pub(super) fn start() -> Option<Self> {
        let cluster = EtcdCluster::start(MEMBERS)?;
        let proxies = (0..MEMBERS).map(|member| Proxy::to(cluster.port(member))).collect();
        Some(Self { cluster, proxies })
    }

    /// Returns the keys of a range with the leases that they are under.
    fn keys(&self) -> Option<Vec<(String, bool)>> {
        // From the first key to the last one, without values.
        let answer = self.cluster.ask(
            self.cluster.leader(),
            "kv/range",
            r#"{"key":"AA==","range_end":"AA==","keys_only":true}"#,
        )?;
        let keys = answer.split("{\"key\":\"").skip(1).map(|part| {
            let (key, rest) = part.split_once('"').unwrap_or((part, ""));
            let rest = rest.split('}').next().unwrap_or(rest);
            (decoded(key), rest.contains("\"lease\":"))
        });
        Some(keys.collect())
    }
}

impl Target for Etcd {
    fn clock_gains(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn disk(&self) -> Disk {
        Disk::OfServers(self.cluster.processes())
    }

    fn url(&self) -> String {
        let addresses: Vec<String> = self.proxies.iter().map(network::address).collect();
        format!("etcd://{}", addresses.join(","))
    }

    fn direct_url(&self) -> String {
        self.cluster.url()
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
            "stop-all",
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
                let leader = self.cluster.leader();
                self.cluster.kill(leader);
                pauses.pause(0, 1_500);
                self.cluster.restart(leader);
            }
            "kill-member" => {
                let member = pauses.0.usize(..MEMBERS);
                self.cluster.kill(member);
                pauses.pause(0, 1_500);
                self.cluster.restart(member);
            }
            "stop-leader" => {
                let leader = self.cluster.leader();
                self.cluster.stop(leader);
                pauses.pause(50, 2_500);
                self.cluster.cont(leader);
            }
            // Its connections to clients stay open and silent. The other members reach it.
            "cut-leader" => {
                let leader = self.cluster.leader();
                self.proxies[leader].set(Fault::DropRequests);
                pauses.pause(50, 2_500);
                self.proxies[leader].set(Fault::None);
            }
            "restart-all" => {
                (0..MEMBERS).for_each(|member| self.cluster.kill(member));
                pauses.pause(0, 1_500);
                (0..MEMBERS).for_each(|member| self.cluster.restart(member));
            }
            "stop-all" => {
                (0..MEMBERS).for_each(|member| self.cluster.stop(member));
                pauses.pause(50, 1_500);
                (0..MEMBERS).for_each(|member| self.cluster.cont(member));
            }
            fault => {
                let proxies: Vec<&Proxy> = self.proxies.iter().collect();
                network::strike(fault, &proxies, pauses).expect("a fault of this store");
            }
        }
    }

    fn leaks(&self) -> Vec<String> {
        eventually("the end of the last inbox", || {
            self.keys()?.iter().all(|(key, _)| !key.contains("/inbox/")).then_some(())
        });
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        let keys = eventually("the keys of the cluster", || self.keys());
        // The base of the fences and the clock stay.
        let stays = |key: &str| key.ends_with("/base") || key.ends_with("/clock");
        let eternal = keys.into_iter().filter(|(key, has_lease)| !has_lease && !stays(key));
        eternal.map(|(key, _)| key).collect()
    }
}

/// Returns the text that is written in base 64.
fn decoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        (bits, count) = ((bits << 6 | u32::try_from(digit).unwrap_or(0)) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or(0));
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
