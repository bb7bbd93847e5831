//! Members that are cut off from each other, and not from their clients.

use futures_util::future::join_all;
use locker_core::error::ErrorKind;
use locker_harness::{EtcdCluster, GENEROUS, in_time, until};
use locker_runtime::{Guard, Locker};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Less than a waiter's interval of asking again.
const PROMPT: Duration = Duration::from_secs(8);

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
        let highest = std::mem::replace(&mut *self.fences.lock().unwrap(), vec![fence]);
        assert!(highest.iter().all(|highest| *highest < fence), "{fence} after {highest:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.is_taken.store(false, Ordering::SeqCst);
        // Without an answer it is repeated in the background.
        let released = guard.release().await;
        assert!(released.is_ok() || released.is_err_and(|error| error.kind() == ErrorKind::Unavailable));
    }
}

/// Lockers whose options differ share no session, so each begins with a member of its own choice.
async fn locker(url: &str, number: u64) -> Locker {
    let builder = Locker::builder().url(url).lease(Duration::from_secs(5)).timeout(GENEROUS);
    let locker = builder.command_timeout(Duration::from_millis(2_000 + number)).build();
    in_time("a locker", locker).await.unwrap()
}

async fn hold(locker: &Locker, name: &str) -> Guard {
    in_time(name, locker.lock(name).acquire()).await.unwrap()
}

/// Clients reach the leader, and the other members do not. They elect another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_that_is_cut_off_from_its_peers_grants_nothing() {
    let Some(cluster) = EtcdCluster::divisible(3) else { return };
    let leader = cluster.leader();
    let address = |member: usize| format!("127.0.0.1:{}", cluster.port(member));
    let others = [(leader + 1) % 3, (leader + 2) % 3].map(address);
    let bound = locker(&format!("etcd://{}", address(leader)), 0).await;
    let url = format!("etcd://{},{}", address(leader), others.join(","));
    // Some of them ask the leader at first.
    let free = join_all((1..=6).map(|number| locker(&url, number))).await;
    let (of_bound, of_free) = (hold(&bound, "of bound").await, hold(&free[0], "of free").await);
    let critical = Critical::default();
    critical.pass(hold(&bound, "shared").await).await;

    cluster.cut_off(leader);
    let cut = Instant::now();
    let pass = async |locker: &Locker| {
        critical.pass(hold(locker, "shared").await).await;
        let first = cut.elapsed();
        for _ in 0..5 {
            critical.pass(hold(locker, "shared").await).await;
        }
        first
    };
    let refused = async |name: &str| {
        let error = bound.lock(name).timeout(Duration::from_secs(2)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
    };
    let taken_over = async {
        let guard = hold(&free[1], "of bound").await;
        assert!(!of_bound.is_held(), "two holders of a lock");
        assert!(guard.fence() > of_bound.fence(), "{} after {}", guard.fence(), of_bound.fence());
        guard
    };
    let (firsts, (), (), (), taken_over) = tokio::join!(
        join_all(free.iter().map(pass)),
        refused("shared"),
        refused("of free"),
        refused("new"),
        taken_over,
    );
    assert!(firsts.iter().all(|first| *first < PROMPT), "{firsts:?}");
    assert_ne!(cluster.leader(), leader);
    assert!(of_free.is_held(), "its client has reached the other members for more than a lease");

    cluster.unite();
    until("the member that was cut off", async || bound.lock("new").acquire().await.is_ok()).await;
    assert_eq!(of_bound.release().await.unwrap_err().kind(), ErrorKind::Lost);
    of_free.release().await.unwrap();
    // The process at that member hears of the release.
    let waiter = tokio::spawn(async move { (hold(&bound, "of bound").await, bound) });
    let queue = free[0].admin();
    let key = queue.key("lock", "of bound");
    until("its place in the queue", async || {
        queue.inspect(&key).await.unwrap().is_some_and(|state| state.waiting == 1)
    })
    .await;
    let (fence, released) = (taken_over.fence(), Instant::now());
    taken_over.release().await.unwrap();
    let (guard, bound) = waiter.await.unwrap();
    assert!(released.elapsed() < PROMPT, "{:?}", released.elapsed());
    assert!(guard.fence() > fence, "{} after {fence}", guard.fence());
    join_all(
        free.iter().chain([&bound]).map(async |locker| critical.pass(hold(locker, "shared").await).await),
    )
    .await;
}
