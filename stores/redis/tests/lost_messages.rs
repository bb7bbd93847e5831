//! Messages that are lost while the connection stays: a waiter asks again within the fall-back interval of its
//! primitive. `docs/explanation/guarantees.md` has the intervals.

use crate::support::{MINUTE, ROUND_TRIP, clock, connect, in_time, until, waiting};
use locker::{Locker, Quota};
use locker_harness::{Fault, Lateness, Proxy, RedisServer};
use std::{future::Future, time::Duration};

/// At an event, a watchdog, a barrier and a latch.
const WATCHER: Duration = Duration::from_secs(5);

/// A waiter that asks again takes up to three round trips through the proxy: its process, the waiter, the confirmation.
/// Each of them wakes four threads or processes.
const WAKES: u32 = 12;

/// A locker whose messages are lost, and another one of the same server.
struct Lockers {
    server: RedisServer,
    proxy: Proxy,
    deaf: Locker,
    other: Locker,
}

impl Lockers {
    async fn new() -> Option<Self> {
        let server = RedisServer::start()?;
        let proxy = Proxy::to(server.port());
        let (deaf, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
        Some(Self { server, proxy, deaf, other })
    }

    /// Checks that `wait`, which has a place at `key`, ends `interval` after `serve` by the server's clock, or earlier.
    async fn check<T: Send + 'static, U>(
        &self,
        key: &str,
        interval: Duration,
        wait: impl Future<Output = locker::Result<T>> + Send + 'static,
        serve: impl Future<Output = locker::Result<U>>,
    ) {
        let waiter = tokio::spawn(wait);
        until("the waiter", async || waiting(&self.server, key) == 1).await;
        self.proxy.set(Fault::DropMessages);
        serve.await.unwrap();
        let (served, machine) = (clock(&self.server), Lateness::measure());
        in_time("the waiter", waiter).await.unwrap().unwrap();
        let took = clock(&self.server).checked_sub(served).expect("the clock goes on");
        assert!(self.proxy.lost_messages() > 0, "the waiter was notified");
        let late = WAKES * machine.worst();
        assert!(took <= interval + ROUND_TRIP + late, "{key}: {took:?}, of which the machine took {late:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_waiter_asks_again_within_2_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let guard = lockers.other.lock("a").lease(MINUTE).acquire().await.unwrap();
    let wait = lockers.deaf.lock("a").acquire();
    lockers.check("lock:a", Duration::from_secs(2), wait, guard.release()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permit_waiter_asks_again_after_retry_delay() {
    for delay in [Duration::from_secs(1), Duration::from_secs(2)] {
        let Some(lockers) = Lockers::new().await else { return };
        let guard = lockers.other.semaphore("a", 1).lease(MINUTE).acquire().await.unwrap();
        let wait = lockers.deaf.semaphore("a", 1).retry_delay(delay).acquire();
        lockers.check("semaphore:a", delay, wait, guard.release()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_asks_again_after_retry_delay() {
    let Some(lockers) = Lockers::new().await else { return };
    let guard = lockers.other.write_lock("a").lease(MINUTE).acquire().await.unwrap();
    let wait = lockers.deaf.read_lock("a").acquire();
    lockers.check("rwlock:a", Duration::from_secs(2), wait, guard.release()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_waiter_asks_again_within_5_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let event = lockers.deaf.event("a");
    let wait = async move { event.wait(MINUTE).await };
    lockers.check("event:a", WATCHER, wait, async { lockers.other.event("a").send("sent").await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchdog_waiter_asks_again_within_5_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let watchdog = lockers.deaf.watchdog("a");
    let wait = async move { watchdog.wait(MINUTE).await };
    let expire = async { lockers.other.watchdog("a").kick(Duration::from_millis(1)).await };
    lockers.check("watchdog:a", WATCHER, wait, expire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn barrier_waiter_asks_again_within_5_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let barrier = lockers.deaf.barrier("a", 2);
    let wait = async move { barrier.wait(MINUTE).await };
    lockers
        .check("barrier:a", WATCHER, wait, async { lockers.other.barrier("a", 2).wait(MINUTE).await })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latch_waiter_asks_again_within_5_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let latch = lockers.deaf.latch("a", 1);
    let wait = async move { latch.wait(MINUTE).await };
    lockers.check("latch:a", WATCHER, wait, async { lockers.other.latch("a", 1).count_down().await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_by_name_asks_again_within_2_s() {
    let Some(lockers) = Lockers::new().await else { return };
    let permits = lockers.other.keyed_semaphore("a", 1);
    permits.clone().acquire("first", MINUTE, Duration::ZERO).await.unwrap();
    let wait = lockers.deaf.keyed_semaphore("a", 1).acquire("second", MINUTE, MINUTE);
    lockers.check("semaphore:a", Duration::from_secs(2), wait, permits.release("first")).await;
}

/// The limiter of size 0 is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_caller_asks_again_within_2_s() {
    for kind in [Quota::fixed_window, Quota::token_bucket, Quota::gcra] {
        let Some(lockers) = Lockers::new().await else { return };
        let parked = lockers.deaf.rate_limiter("a", kind(0, MINUTE)).timeout(MINUTE);
        let raised = lockers.other.rate_limiter("a", kind(2, MINUTE));
        let wait = async move { parked.acquire().await };
        lockers.check("rate:a", Duration::from_secs(2), wait, raised.acquire()).await;
    }
}
