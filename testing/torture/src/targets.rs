//! The stores under torture: how each of them is reached, broken and mended, and what it must not leave behind.

mod cluster;
mod ensemble;
mod etcd;
mod fake;
mod files;
mod mysql;
mod network;
mod postgres;
mod redis;
mod sentinel;
mod zookeeper;

use clap::ValueEnum;
use ensemble::Members;
use fastrand::Rng;
use locker_checker::format::Losses;
use locker_harness::{EtcdCluster, ZookeeperCluster};
use rustix::process::Pid;
use std::{thread, time::Duration};

/// A store, with its servers and the network to them. Dropping it stops the servers.
pub(crate) trait Target {
    /// Returns the URL by which the workers reach the store. Faults break what it leads through.
    fn url(&self) -> String;

    /// Returns the URL by which the store is judged in the end, past the network that breaks.
    fn direct_url(&self) -> String {
        self.url()
    }

    /// Returns the names of the faults that this store has besides those of the workers.
    fn faults(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the names of those that break its network.
    fn faults_of_network(&self) -> &'static [&'static str] {
        &[]
    }

    /// Causes one of these faults, and mends it.
    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        let _ = pauses;
        unreachable!("no fault of this store is called {fault}");
    }

    /// Returns how long after it has asked a caller may join the queue while nothing is broken. Where writes compete,
    /// those that lose are repeated.
    fn joins_within(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Returns how much later than at its end a hold may be free, and a watchdog be over.
    fn clock_is_late_by(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how much the clock of the store may gain at most, in all.
    fn clock_gains(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns who waits for a disk.
    fn disk(&self) -> Disk {
        Disk::None
    }

    /// Returns what faults may lose.
    fn losses(&self) -> Losses {
        Losses::Nothing
    }

    /// Returns whether workers are processes. If not, they are threads of this one.
    fn has_processes(&self) -> bool {
        true
    }

    /// Returns what the workers have left behind although all of them have ended. Called before anything else reaches
    /// the store.
    fn leaks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the keys that would stay for ever. Called after all holds have ended.
    fn eternal_keys(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The processes that wait until their writes are on the disk.
pub(crate) enum Disk {
    None,
    OfWorkers,
    OfServers(Vec<Pid>),
}

/// The servers of the store on Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topology {
    /// One server, with a network that can be broken.
    Single,
    /// A master with replicas, and sentinels, which replace it. The locks are in strict mode, and nothing else is
    /// judged: a failover loses writes.
    Sentinel,
    /// Three masters with a replica each, which exchange slots and roles.
    Cluster,
}

/// The stores that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// See `--topology`.
    Redis,
    /// One server, with a network that can be broken.
    Postgres,
    /// Three members, with a network before each of them.
    Etcd,
    /// One server, with a network that can be broken.
    Mysql,
    /// Three servers, with a network before each of them.
    Zookeeper,
    /// A directory.
    Files,
    /// A backend in this process that loses answers, with a clock for all.
    Fake,
    /// The same without such a clock.
    FakeTicked,
}

impl Store {
    /// Starts the servers. Returns `None` if a program is missing.
    ///
    /// # Panics
    /// If a store other than Redis has a topology.
    pub(crate) fn start(self, topology: Topology) -> Option<Box<dyn Target>> {
        assert!(
            self == Self::Redis || topology == Topology::Single,
            "--topology is for --store redis, and this is {self:?}"
        );
        Some(match self {
            Self::Redis => match topology {
                Topology::Single => Box::new(redis::Redis::start()?),
                Topology::Sentinel => Box::new(sentinel::Sentinel::start()?),
                Topology::Cluster => Box::new(cluster::Cluster::start()?),
            },
            Self::Postgres => Box::new(postgres::Postgres::start()?),
            Self::Etcd => Box::new(Members::of(EtcdCluster::start)?),
            Self::Mysql => Box::new(mysql::Mysql::start()?),
            Self::Zookeeper => Box::new(Members::of(ZookeeperCluster::start)?),
            Self::Files => Box::new(files::Files::start()),
            Self::Fake => Box::new(fake::Fake("served")),
            Self::FakeTicked => Box::new(fake::Fake("ticked")),
        })
    }
}

/// How long faults last.
pub(crate) struct Pauses<'a>(pub(crate) &'a mut Rng);

impl Pauses<'_> {
    /// Sleeps for so many milliseconds while a fault lasts. No condition ends it.
    pub(crate) fn pause(&mut self, shortest: u64, longest: u64) {
        thread::sleep(Duration::from_millis(self.0.u64(shortest..=longest)));
    }
}
