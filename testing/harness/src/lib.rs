//! Support for the tests: real servers, a network that can be broken, a store that fails on demand, and waiting for
//! conditions.

mod chromedriver;
mod cluster_setup;
mod corpus;
mod courses;
mod ensemble;
mod etcd_server;
mod keeper;
mod lateness;
mod messages;
mod mysql_server;
mod pgbouncer;
mod ports;
mod postgres_server;
mod processors;
mod proxy;
mod redis_server;
mod scripted_store;
mod sentinel_setup;
mod shared;
mod signals;
mod slow_disk;
mod test_process;
mod wall_clock;
mod zookeeper;

pub use chromedriver::Chromedriver;
pub use cluster_setup::ClusterSetup;
pub use corpus::corpus;
pub use courses::{explore, explores_more, free_number, rename};
pub use ensemble::{Ensemble, Kind, Single};
pub use etcd_server::{Etcd, EtcdCluster, EtcdServer};
pub use lateness::{Lateness, while_the_machine_runs};
pub use mysql_server::MysqlServer;
pub use pgbouncer::PgBouncer;
pub use ports::free_port;
pub use postgres_server::PostgresServer;
pub use processors::in_both_places;
pub use proxy::{Fault, Proxy};
pub use redis_server::{RedisServer, Signal};
pub use scripted_store::{ScriptedStore, Step, Wait, is_release, is_renewal};
pub use sentinel_setup::SentinelSetup;
pub use shared::Shared;
pub use slow_disk::SlowDisk;
pub use test_process::TestProcess;
pub use wall_clock::wall_clock;
pub use zookeeper::{Zookeeper, ZookeeperCluster, ZookeeperServer};

use std::{
    future::Future,
    io::Write,
    time::{Duration, Instant},
};

/// Longer than any call takes that succeeds.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// The time between two checks of a condition. A test that checked all the time would delay what it waits for.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Returns the value of `future`.
///
/// # Panics
/// If it takes longer than [`GENEROUS`].
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let value = tokio::time::timeout(GENEROUS, future).await;
    value.unwrap_or_else(|_| panic!("waited {GENEROUS:?} for: {what}"))
}

/// Waits until `condition` holds.
///
/// # Panics
/// If that takes longer than [`GENEROUS`].
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    in_time(what, async {
        while !condition().await {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    })
    .await;
}

/// Calls `find` until it returns a value, and returns that. For tests without a runtime.
///
/// # Panics
/// If that takes longer than [`GENEROUS`].
pub fn eventually<T>(what: &str, find: impl FnMut() -> Option<T>) -> T {
    eventually_within(GENEROUS, what, find)
}

/// As [`eventually`], with another limit.
pub(crate) fn eventually_within<T>(limit: Duration, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for: {what}");
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Prints why a test is skipped.
///
/// # Panics
/// If `CI=true`, which requires every program.
#[must_use]
pub fn missing<T>(what: &str) -> Option<T> {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what}");
    // Unlike `eprintln!`, this is also seen if the test passes.
    writeln!(std::io::stderr(), "skipped: {what}").ok();
    None
}
