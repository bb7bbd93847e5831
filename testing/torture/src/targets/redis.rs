//! One Redis server.

use super::{Disk, Pauses, Target, network};
use locker_harness::{Proxy, RedisServer, Signal, eventually};
use std::time::Duration;

pub(super) struct Redis {
    server: RedisServer,
    proxy: Proxy,
}

impl Redis {
    pub(super) fn start() -> Option<Self> {
        // The guarantees hold only if acknowledged writes survive a crash of the server.
        let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])?;
        let proxy = Proxy::to(server.port());
        Some(Self { server, proxy })
    }
}

impl Target for Redis {
    fn disk(&self) -> Disk {
        Disk::OfServers(self.server.process().into_iter().collect())
    }

    fn url(&self) -> String {
        self.proxy.url()
    }

    fn direct_url(&self) -> String {
        self.server.url()
    }

    fn joins_within(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn faults(&self) -> &'static [&'static str] {
        &["kill-redis", "stop-redis", "forget-scripts"]
    }

    fn faults_of_network(&self) -> &'static [&'static str] {
        &network::FAULTS
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        match fault {
            "kill-redis" => {
                self.server.kill();
                pauses.pause(0, 1_500);
                self.server.restart();
            }
            "stop-redis" => {
                self.server.signal(Signal::STOP);
                pauses.pause(50, 1_500);
                self.server.signal(Signal::CONT);
            }
            "forget-scripts" => forget_scripts(&self.server, pauses),
            fault => network::strike(fault, &[&self.proxy], pauses).expect("a fault of this store"),
        }
    }

    fn leaks(&self) -> Vec<String> {
        wait_for_the_end(&self.server);
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        eternal_keys(&self.server)
    }
}

pub(super) fn forget_scripts(server: &RedisServer, pauses: &mut Pauses<'_>) {
    for _ in 0..pauses.0.u8(1..20) {
        let _: String = server.ask("SCRIPT", &["FLUSH"]);
        pauses.pause(0, 20);
    }
}

/// Waits until no worker receives messages, and all leases are over.
pub(super) fn wait_for_the_end(server: &RedisServer) {
    eventually("the last subscription's end", || {
        server.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "locker:*"]).is_empty().then_some(())
    });
    eventually("the end of the last lease", || {
        server.ask::<Vec<String>>("KEYS", &["lock:*"]).is_empty().then_some(())
    });
}

/// Returns the keys that do not expire, without the record of strict mode.
pub(super) fn eternal_keys(server: &RedisServer) -> Vec<String> {
    let keys: Vec<String> = server.ask("KEYS", &["*"]);
    let stays = |key: &String| {
        ![":epoch", ":fence"].iter().any(|end| key.ends_with(end)) && server.ask::<i64>("PTTL", &[key]) == -1
    };
    keys.into_iter().filter(stays).collect()
}
