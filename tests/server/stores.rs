//! The stores that servers and programs share.

use crate::support::{Server, binary};
use locker::{Locker, LockerBuilder};
use locker_harness::{EtcdServer, MysqlServer, PostgresServer, Proxy, RedisServer, Shared, ZookeeperCluster};
use std::{
    any::Any,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Runs tests, which are functions of a store, on each store, or `on` some of them.
macro_rules! on_each_store {
    (on $($store:ident),+: $($law:ident),+ $(,)?) => {
        $crate::stores::on_each_store!(@stores [$($store)+] async [$($law)+]);
    };
    (blocking: $($law:ident),+ $(,)?) => {
        $crate::stores::on_each_store!(@stores [etcd files postgres redis] blocking [$($law)+]);
    };
    (@stores [$($store:ident)+] $kind:tt $laws:tt) => {
        $(mod $store {
            $crate::stores::on_each_store!(@laws $store $kind $laws);
        })+
    };
    (@laws $store:ident async [$($law:ident)+]) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let Some(store) = crate::stores::Store::$store() else { return };
            super::$law(&store).await;
        })+
    };
    (@laws $store:ident blocking [$($law:ident)+]) => {
        $(#[test]
        fn $law() {
            let Some(store) = crate::stores::Store::$store() else { return };
            super::$law(&store);
        })+
    };
    ($($law:ident),+ $(,)?) => {
        $crate::stores::on_each_store!(on etcd, files, postgres, redis: $($law),+);
    };
}
pub(crate) use on_each_store;

/// A store that lasts as long as this value. What a test keeps there has a prefix of its own.
pub(crate) struct Store {
    url: String,
    prefix: String,
    /// Zero if the store is no server.
    port: u16,
    /// The server or the directory.
    _place: Box<dyn Any + Send + Sync>,
}

impl Store {
    pub(crate) fn redis() -> Option<Self> {
        static SERVER: Shared<RedisServer> = Shared::new();
        let server = SERVER.get(RedisServer::start)?;
        Some(Self::new(server.url(), server.port(), server))
    }

    pub(crate) fn postgres() -> Option<Self> {
        static SERVER: Shared<PostgresServer> = Shared::new();
        let server = SERVER.get(PostgresServer::start)?;
        Some(Self::new(server.url(), server.port(), server))
    }

    pub(crate) fn etcd() -> Option<Self> {
        static SERVER: Shared<EtcdServer> = Shared::new();
        let server = SERVER.get(EtcdServer::start)?;
        Some(Self::new(server.url(), server.port(), server))
    }

    pub(crate) fn mysql() -> Option<Self> {
        static SERVER: Shared<MysqlServer> = Shared::new();
        let server = SERVER.get(MysqlServer::start)?;
        Some(Self::new(server.url(), server.port(), server))
    }

    pub(crate) fn zookeeper() -> Option<Self> {
        static SERVER: Shared<ZookeeperCluster> = Shared::new();
        let server = SERVER.get(|| ZookeeperCluster::start(1))?;
        Some(Self::new(server.url(), server.port(0), server))
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the others")]
    pub(crate) fn files() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        Some(Self::new(format!("file://{}", directory.path().display()), 0, directory))
    }

    /// The store of a server that a test has for itself.
    pub(crate) fn of(redis: &RedisServer) -> Self {
        Self::new(redis.url(), redis.port(), ())
    }

    /// The same without a prefix.
    pub(crate) fn unprefixed(redis: &RedisServer) -> Self {
        Self { prefix: String::new(), ..Self::of(redis) }
    }

    fn new(url: String, port: u16, place: impl Any + Send + Sync) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("test-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { url, prefix, port, _place: Box::new(place) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A network to the store, and the same store behind it.
    pub(crate) fn far(&self) -> (Proxy, Self) {
        let proxy = Proxy::to(self.port);
        let behind = proxy.url();
        let (_, port) = behind.rsplit_once(':').unwrap();
        let url = self.url.replace(&format!(":{}", self.port), &format!(":{port}"));
        (proxy, Self { url, prefix: self.prefix.clone(), port: 0, _place: Box::new(()) })
    }

    /// Starts a server on the store.
    pub(crate) fn server(&self, more: &[&str]) -> Server {
        Server::start(&[&["--store", &self.url, "--prefix", &self.prefix][..], more].concat())
    }

    /// Starts two servers on the store.
    pub(crate) fn two_servers(&self) -> [Server; 2] {
        [self.server(&[]), self.server(&[])]
    }

    /// Waits longer than by default for answers, which come late while many servers start.
    pub(crate) fn builder(&self) -> LockerBuilder {
        Locker::builder().url(&self.url).prefix(&self.prefix).command_timeout(Duration::from_secs(5))
    }

    pub(crate) async fn locker(&self) -> Locker {
        self.builder().build().await.unwrap()
    }

    /// A command of the program.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.envs([("LOCKER_URL", &self.url), ("LOCKER_PREFIX", &self.prefix)]).args(arguments);
        command
    }
}
