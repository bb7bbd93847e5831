//! A Redis Cluster.

use crate::{RedisServer, eventually};
use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

/// Three masters that share the slots, and a replica of each. Dropping it stops them all.
#[derive(Debug)]
pub struct ClusterSetup {
    servers: Vec<RedisServer>,
    ids: Vec<String>,
}

const NODE: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--repl-diskless-sync-delay",
    "0",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-replica-validity-factor",
    "0",
];

const SLOTS: usize = 16_384;

impl ClusterSetup {
    /// The number of masters at the start. They are the first servers, and each has a replica so many servers later.
    pub const MASTERS: usize = 3;

    /// Starts a cluster in which no replica takes over: a busy machine is not taken for a dead node.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&["--cluster-node-timeout", "60000"])
    }

    /// Starts a cluster in which a replica takes over from a master that has not answered for 2 s.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn that_fails_over() -> Option<Self> {
        Self::with(&["--cluster-node-timeout", "2000"])
    }

    /// Starts a cluster with further arguments of all nodes.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn with(arguments: &[&str]) -> Option<Self> {
        let arguments = [&NODE, arguments].concat();
        let start = |_| RedisServer::with(&arguments);
        let servers = (0..2 * Self::MASTERS).map(start).collect::<Option<Vec<_>>>()?;
        let mut setup = Self { servers, ids: Vec::new() };
        setup.assemble();
        Some(setup)
    }

    /// Ends the cluster with all its data, and makes another one of the same servers.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn create_anew(&mut self) {
        let is_master =
            |server: &&RedisServer| server.ask::<String>("CLUSTER", &["NODES"]).contains("myself,master");
        let (masters, replicas): (Vec<_>, Vec<_>) = self.servers.iter().partition(is_master);
        // A replica drops its data when it is reset, a master refuses to be reset with data.
        for server in replicas {
            let _: String = server.ask("CLUSTER", &["RESET", "HARD"]);
        }
        for server in masters {
            let _: String = server.ask("FLUSHALL", &[]);
            let _: String = server.ask("CLUSTER", &["RESET", "HARD"]);
        }
        self.assemble();
    }

    fn assemble(&mut self) {
        self.ids = self.servers.iter().map(|server| server.ask("CLUSTER", &["MYID"])).collect();
        let setup = &*self;
        for (number, server) in setup.servers.iter().enumerate() {
            let _: String = server.ask("CLUSTER", &["SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            for other in &setup.servers[..number] {
                let _: String = server.ask("CLUSTER", &["MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        for master in 0..Self::MASTERS {
            let slots: Vec<_> = Self::slots_at_first(master).map(|slot| slot.to_string()).collect();
            let slots: Vec<_> = slots.iter().map(String::as_str).collect();
            let _: String = setup.servers[master].ask("CLUSTER", &[&["ADDSLOTS"], &slots[..]].concat());
        }
        setup.wait_until("nodes that know each other", |nodes| {
            nodes.lines().filter(|line| line.contains(" connected") && !line.contains("handshake")).count()
                == 2 * Self::MASTERS
        });
        for replica in Self::MASTERS..2 * Self::MASTERS {
            let master = &setup.ids[replica - Self::MASTERS];
            let _: String = setup.servers[replica].ask("CLUSTER", &["REPLICATE", master]);
        }
        setup.wait_until("replicas", |nodes| {
            nodes.matches(" slave ").count() + nodes.matches(",slave ").count() == Self::MASTERS
        });
        for master in 0..Self::MASTERS {
            eventually("a replica that has all", || {
                let info: String = setup.servers[master].ask("INFO", &["replication"]);
                info.contains("state=online").then_some(())
            });
        }
        // A node that takes over a slot whose owner it does not know yet would never learn it.
        eventually("slots that every node knows", || {
            let is_up = |server: &RedisServer| {
                let info: String = server.ask("CLUSTER", &["INFO"]);
                info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
            };
            setup.servers.iter().all(is_up).then_some(())
        });
    }

    fn slots_at_first(master: usize) -> RangeInclusive<usize> {
        master * SLOTS / Self::MASTERS..=(master + 1) * SLOTS / Self::MASTERS - 1
    }

    /// Waits until the list of nodes fulfils a condition at every server.
    fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        for server in &self.servers {
            eventually(what, || is_so(&server.ask::<String>("CLUSTER", &["NODES"])).then_some(()));
        }
    }

    /// Returns the URL for lockers.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(&self.servers.iter().map(RedisServer::port).collect::<Vec<_>>())
    }

    /// Returns the URL for lockers that begin with the nodes at these ports.
    #[must_use]
    pub fn url_through(&self, ports: &[u16]) -> String {
        let places: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}", places.join(","))
    }

    /// Returns the nodes: first the masters, then their replicas in the same order.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the slot of a key, as the servers say.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        self.alive().ask("CLUSTER", &["KEYSLOT", key])
    }

    fn alive(&self) -> &RedisServer {
        self.servers.iter().find(|server| server.process().is_some()).expect("a node that runs")
    }

    /// Returns the number of the master that had the slot of this key at the start.
    ///
    /// # Panics
    /// If no server answers.
    #[must_use]
    pub fn first_owner(&self, key: &str) -> usize {
        let slot = usize::from(self.slot(key));
        (0..Self::MASTERS).find(|master| Self::slots_at_first(*master).contains(&slot)).expect("an owner")
    }

    /// Returns a name whose key with this prefix is at this master at the start.
    ///
    /// # Panics
    /// If no server answers.
    #[must_use]
    pub fn name_at(&self, master: usize, prefix: &str) -> String {
        let mut names = (0..).map(|number| format!("{master} {number}"));
        names.find(|name| self.first_owner(&format!("{prefix}{name}")) == master).expect("a name")
    }

    /// Begins to move a slot: from now on both nodes refuse scripts with keys that they have in part.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["IMPORTING", &self.ids[from]]);
        self.set_slot(from, slot, &["MIGRATING", &self.ids[to]]);
    }

    /// Moves the keys that a slot has now.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let port = self.servers[to].port().to_string();
        loop {
            let keys: Vec<String> =
                self.servers[from].ask("CLUSTER", &["GETKEYSINSLOT", &slot.to_string(), "100"]);
            if keys.is_empty() {
                return;
            }
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            let migrate = ["127.0.0.1", &port, "", "0", "10000", "KEYS"];
            // A key may expire meanwhile.
            let _: redis::Value = self.servers[from].ask("MIGRATE", &[&migrate, &keys[..]].concat());
        }
    }

    /// Gives a slot to its next owner.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        self.set_slot(to, slot, &["NODE", &self.ids[to]]);
        self.set_slot(from, slot, &["NODE", &self.ids[to]]);
    }

    /// Moves a slot with all its keys.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    fn set_slot(&self, server: usize, slot: u16, how: &[&str]) {
        let slot = slot.to_string();
        let _: String = self.servers[server].ask("CLUSTER", &[&["SETSLOT", &slot], how].concat());
    }

    /// Cuts a master off from its replica, which misses what is written from now on. Clients and the other nodes still
    /// reach both.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn cut_replication(&self, master: usize) {
        let master = &self.servers[master];
        let _: String = master.ask("ACL", &["SETUSER", "default", "-psync", "-sync"]);
        let _: i64 = master.ask("CLIENT", &["KILL", "TYPE", "replica"]);
        eventually("no replica", || {
            let info: String = master.ask("INFO", &["replication"]);
            (!info.contains("state=online")).then_some(())
        });
    }

    /// Ends a node at once, as a crash does.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    /// Starts a killed node again.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart(&mut self, server: usize) {
        self.servers[server].restart();
    }

    /// Kills a node and starts it again at another address, without its keys.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart_elsewhere(&mut self, server: usize) {
        self.servers[server].restart_elsewhere();
    }

    /// Makes a replica take over from its living master.
    ///
    /// # Panics
    /// If it does not.
    pub fn promote(&self, replica: usize) {
        let server = &self.servers[replica];
        let mut asked = None;
        eventually("the promotion", || {
            // A try ends after 5 s, for example because the replica had not received all.
            if asked.is_none_or(|asked: Instant| asked.elapsed() > Duration::from_secs(6)) {
                let _: redis::Value = server.ask("CLUSTER", &["FAILOVER"]);
                asked = Some(Instant::now());
            }
            server.ask::<String>("CLUSTER", &["NODES"]).contains("myself,master").then_some(())
        });
    }
}
