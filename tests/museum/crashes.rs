//! Servers that crash right after they have acknowledged a grant.

use crate::support::{MINUTE, connect, connect_apart, in_time};
use locker::{Guard, Locker};
use locker_harness::{EtcdCluster, PostgresServer};

const COUNT: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_postgres_loses_no_grant() {
    let Some(mut server) = PostgresServer::with(&["fsync=on"]) else { return };
    let url = server.url();
    no_grant_is_lost(&url, || {
        server.kill_nine();
        server.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_all_of_etcd_loses_no_grant() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let url = cluster.url();
    no_grant_is_lost(&url, || {
        (0..3).for_each(|member| cluster.kill(member));
        (0..3).for_each(|member| cluster.restart(member));
    })
    .await;
}

/// Jepsen, `MariaDB` Galera Cluster 12.1.2: committed transactions were lost when all servers crashed at once.
async fn no_grant_is_lost(url: &str, crash: impl FnOnce()) {
    let (before, after, mut held) = (connect(url).await, connect_apart(url, 1).await, Vec::new());
    for number in 1..=COUNT {
        held.push(before.lock(&format!("name {number}")).lease(10 * MINUTE).acquire().await.unwrap());
        assert_eq!(before.counter("grants").add(1).await.unwrap(), number);
    }
    tokio::task::block_in_place(crash);
    for (number, guard) in (1..).zip(held) {
        let (name, fence) = (format!("name {number}"), guard.fence());
        assert!(attempt(&after, &name).await.is_none(), "{name} is granted twice");
        in_time("its release", guard.release()).await.unwrap();
        let next = in_time("the next holder", after.lock(&name).timeout(MINUTE).acquire()).await.unwrap();
        assert!(next.fence() > fence, "{} after {fence}", next.fence());
    }
    assert_eq!(after.counter("grants").get().await.unwrap(), COUNT);
}

/// Repeats an attempt that the servers, which have just been started, do not answer.
async fn attempt(locker: &Locker, name: &str) -> Option<Guard> {
    in_time("an answer", async {
        loop {
            match locker.lock(name).try_acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    })
    .await
}
