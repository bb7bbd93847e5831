//! Processes that share a lock while servers are killed, stopped and started.

use super::*;
use locker_harness::ZookeeperCluster;
use locker_runtime::Guard;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// How long the servers are broken.
const BROKEN: Duration = Duration::from_secs(25);

/// Holders that enter one after the other, with rising fences.
#[derive(Default)]
struct Critical {
    is_taken: AtomicBool,
    fences: Mutex<Vec<u64>>,
}

impl Critical {
    async fn pass(&self, guard: Guard) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two holders at once");
        let fence = guard.fence();
        {
            let mut fences = self.fences.lock().unwrap();
            assert!(fences.last().is_none_or(|last| *last < fence), "{fence} after {:?}", fences.last());
            fences.push(fence);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.is_taken.store(false, Ordering::SeqCst);
        // Without an answer it is repeated in the background.
        drop(guard.release().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_has_one_holder_while_servers_break() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
    let (critical, is_over) = (Critical::default(), AtomicBool::new(false));
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(process(&cluster.url()).await);
    }
    let work = async |locker: &Locker| {
        let mut passed = 0;
        while !is_over.load(Ordering::Relaxed) {
            let lock = locker.lock("shared").lease(Duration::from_secs(10)).timeout(Duration::from_secs(5));
            if let Ok(guard) = lock.acquire().await {
                critical.pass(guard).await;
                passed += 1;
            }
        }
        passed
    };
    let breaking = async {
        let started = Instant::now();
        let mut rounds = 0;
        while started.elapsed() < BROKEN {
            let server = if rounds % 2 == 0 { cluster.leader() } else { fastrand::usize(..3) };
            if rounds % 3 == 0 {
                cluster.kill(server);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                cluster.restart(server);
            } else {
                cluster.stop(server);
                tokio::time::sleep(Duration::from_secs(2)).await;
                cluster.cont(server);
            }
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            tokio::task::block_in_place(|| cluster.settle());
            rounds += 1;
        }
        until("all at work again", async || {
            let passed = critical.fences.lock().unwrap().len();
            tokio::time::sleep(Duration::from_secs(1)).await;
            critical.fences.lock().unwrap().len() > passed + 4
        })
        .await;
        is_over.store(true, Ordering::Relaxed);
        rounds
    };
    let (rounds, passed) = tokio::join!(breaking, futures_util::future::join_all(lockers.iter().map(work)));
    assert!(rounds >= 4 && passed.iter().all(|passed| *passed > 3), "{rounds} rounds, {passed:?}");
    println!("{rounds} rounds, {passed:?}");
}
