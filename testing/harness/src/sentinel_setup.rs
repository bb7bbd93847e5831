//! A master, its replicas, and the sentinels that watch them.

use crate::{GENEROUS, RedisServer, Signal, eventually, eventually_within};
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// Three servers and three sentinels. Dropping it stops them all.
#[derive(Debug)]
pub struct SentinelSetup {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    /// The sentinels that do not run: nobody waits for their answers.
    stopped: BTreeSet<usize>,
}

/// How fast replicas connect. A demoted or restarted server is a replica, too.
const REPLICATION: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];

impl SentinelSetup {
    /// The name that the sentinels have for the master.
    pub const NAME: &str = "main";

    /// Starts a master with two replicas, and three sentinels. Returns when all know each other.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&[], "")
    }

    /// Starts it with further arguments of all servers, and further lines for the files of all sentinels.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn with(arguments: &[&str], lines: &str) -> Option<Self> {
        Self::with_clocks_behind(Duration::ZERO, arguments, lines)
    }

    /// Starts it with replicas whose wall clocks are `behind`.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn with_clocks_behind(behind: Duration, arguments: &[&str], lines: &str) -> Option<Self> {
        let arguments = [&REPLICATION, arguments].concat();
        let mut servers = vec![RedisServer::with(&arguments)?];
        let master = servers[0].port();
        for _ in 0..2 {
            servers.push(RedisServer::with_clock_behind(behind, &arguments)?);
            let _: String = servers[servers.len() - 1].ask("REPLICAOF", &["127.0.0.1", &master.to_string()]);
        }
        eventually("two replicas", || (replicas(&servers[0]) == 2).then_some(()));
        let name = Self::NAME;
        // Long enough that a busy machine is not taken for a dead master.
        let lines = format!(
            "sentinel monitor {name} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {name} 3000\n\
             sentinel failover-timeout {name} 4000\n\
             sentinel parallel-syncs {name} 2\n\
             {lines}"
        );
        let sentinels = (0..3).map(|_| RedisServer::sentinel(&lines)).collect::<Option<Vec<_>>>()?;
        let setup = Self { servers, sentinels, stopped: BTreeSet::new() };
        eventually("sentinels that know each other", || {
            let fact = |sentinel: &RedisServer, name: &str| facts(sentinel).remove(name);
            let knows_all = |sentinel| {
                fact(sentinel, "num-slaves").as_deref() == Some("2")
                    && fact(sentinel, "num-other-sentinels").as_deref() == Some("2")
            };
            setup.sentinels.iter().all(knows_all).then_some(())
        });
        Some(setup)
    }

    /// Returns the URL for lockers.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(&self.sentinels.iter().map(RedisServer::port).collect::<Vec<_>>())
    }

    /// Returns the URL for lockers that reach the sentinels at these ports.
    #[must_use]
    pub fn url_through(&self, ports: &[u16]) -> String {
        let places: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{}", places.join(","), Self::NAME)
    }

    /// Returns the servers, of which the first one was the first master.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the number of the server that is the master, as most sentinels say.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let running = self.sentinels.iter().enumerate().filter(|(number, _)| !self.stopped.contains(number));
        let named: Vec<_> = running.filter_map(|(_, sentinel)| self.named_by(sentinel)).collect();
        let votes = |server: &usize| named.iter().filter(|named| *named == server).count();
        (0..self.servers.len()).find(|server| votes(server) > self.sentinels.len() / 2)
    }

    fn named_by(&self, sentinel: &RedisServer) -> Option<usize> {
        let mut connection = sentinel.try_connection()?;
        let asked =
            redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(Self::NAME).query(&mut connection);
        let (_, port): (String, u16) = asked.ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }

    /// Waits until another server than `former` is the master, and returns its number.
    ///
    /// # Panics
    /// If that takes longer than three times [`GENEROUS`](crate::GENEROUS).
    #[must_use]
    pub fn successor(&self, former: usize) -> usize {
        // After a pause of the machine, sentinels do nothing for 30 s.
        eventually_within(3 * GENEROUS, "another master", || self.master().filter(|master| *master != former))
    }

    /// Makes the sentinels appoint another master, while the present one lives. Returns the number of the new one.
    ///
    /// # Panics
    /// If they do not.
    #[must_use]
    pub fn fail_over(&self) -> usize {
        let former = eventually("a master", || self.master());
        eventually("a replica to choose", || {
            let mut connection = self.sentinels[0].try_connection()?;
            redis::cmd("SENTINEL").arg("FAILOVER").arg(Self::NAME).query::<String>(&mut connection).ok()
        });
        self.successor(former)
    }

    /// Makes a server a replica of another one, as the sentinels do with a former master, but some seconds later.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn demote(&self, server: usize, master: usize) {
        let port = self.servers[master].port().to_string();
        let _: String = self.servers[server].ask("REPLICAOF", &["127.0.0.1", &port]);
    }

    /// Cuts the replicas off from a master: they miss what is written from now on. Clients and sentinels still reach
    /// all servers.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn cut_replication(&self, master: usize) {
        let master = &self.servers[master];
        let _: String = master.ask("ACL", &["SETUSER", "default", "-psync", "-sync"]);
        let _: i64 = master.ask("CLIENT", &["KILL", "TYPE", "replica"]);
        eventually("no replica", || (replicas(master) == 0).then_some(()));
    }

    /// Waits until a master has so many replicas.
    ///
    /// # Panics
    /// If that takes longer than [`GENEROUS`](crate::GENEROUS).
    pub fn wait_for_replicas(&self, master: usize, count: usize) {
        eventually("the replicas", || (replicas(&self.servers[master]) == count).then_some(()));
    }

    /// Ends a server at once, as a crash does.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
    }

    /// Starts a killed server again, as the master that it was.
    pub fn restart(&mut self, server: usize) {
        self.servers[server].restart();
    }

    /// Ends a sentinel at once.
    pub fn kill_sentinel(&mut self, sentinel: usize) {
        self.sentinels[sentinel].kill();
    }

    /// Stops a sentinel, which keeps its connections and its view.
    pub fn stop_sentinel(&mut self, sentinel: usize) {
        self.sentinels[sentinel].signal(Signal::STOP);
        self.stopped.insert(sentinel);
    }

    /// Lets a stopped sentinel continue.
    pub fn continue_sentinel(&mut self, sentinel: usize) {
        self.sentinels[sentinel].signal(Signal::CONT);
        self.stopped.remove(&sentinel);
    }
}

/// Returns the number of replicas that receive what is written.
fn replicas(server: &RedisServer) -> usize {
    let Some(mut connection) = server.try_connection() else { return 0 };
    let info: String = redis::cmd("INFO").arg("replication").query(&mut connection).unwrap_or_default();
    info.lines().filter(|line| line.contains("state=online")).count()
}

/// Returns what a sentinel knows of the master.
fn facts(sentinel: &RedisServer) -> HashMap<String, String> {
    let Some(mut connection) = sentinel.try_connection() else { return HashMap::new() };
    let asked = redis::cmd("SENTINEL").arg("MASTER").arg(SentinelSetup::NAME).query(&mut connection);
    asked.unwrap_or_default()
}
