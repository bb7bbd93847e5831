//! Many callers at one lock, most of which hand it off within this process.

use crate::support::{GENEROUS, builder, connect, holder, in_time, nobody_is_left, until};
use locker::ErrorKind;
use locker_harness::RedisServer;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Lets many callers take the lock, while some time out or are dropped at any moment.
///
/// A lock left to a caller that is gone would be held for longer than the crowd may go without a grant.
async fn a_crowd_comes_and_goes(members: usize, processes: usize) {
    const GRANTS: u64 = 4_000;
    let Some(server) = RedisServer::start() else { return };
    let lockers = [connect(&server.url()).await, connect(&format!("{}/0", server.url())).await];
    let (held, last, grants) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut crowd = JoinSet::new();
    for number in 0..members {
        let locker = lockers[usize::from(number % 3 == 0) % processes].clone();
        let (held, last, grants) = (Arc::clone(&held), Arc::clone(&last), Arc::clone(&grants));
        crowd.spawn(async move {
            while grants.load(Ordering::SeqCst) < GRANTS {
                let patience = Duration::from_micros(fastrand::u64(1..20_000));
                let request = locker.lock("a").lease(Duration::from_secs(60));
                let guard = match fastrand::u8(..5) {
                    0 => request.timeout(patience).acquire().await.ok(),
                    2 => request.max_retry(2).retry_delay(patience / 4).acquire().await.ok(),
                    1 => tokio::time::timeout(patience, request.acquire()).await.ok().map(Result::unwrap),
                    _ => Some(request.acquire().await.unwrap()),
                };
                let Some(guard) = guard else { continue };
                assert!(!held.swap(true, Ordering::SeqCst), "two hold the lock");
                assert!(last.swap(guard.fence(), Ordering::SeqCst) < guard.fence(), "the fence fell");
                if fastrand::bool() {
                    tokio::task::yield_now().await;
                }
                grants.fetch_add(1, Ordering::SeqCst);
                assert!(held.swap(false, Ordering::SeqCst));
                match fastrand::u8(..8) {
                    0 => drop(guard),
                    1 => drop(tokio::time::timeout(patience / 40, guard.release()).await.map(Result::unwrap)),
                    _ => guard.release().await.unwrap(),
                }
            }
        });
    }
    let mut before = 0;
    loop {
        match tokio::time::timeout(GENEROUS, crowd.join_next()).await {
            Ok(Some(member)) => member.unwrap(),
            Ok(None) => break,
            Err(_) => {
                let granted = grants.load(Ordering::SeqCst);
                assert!(granted > before, "no grant within {GENEROUS:?}, after {granted}");
                before = granted;
            }
        }
    }
    until("the last release", async || holder(&server, "lock:a").is_none()).await;
    nobody_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_two_processes_never_overlaps() {
    a_crowd_comes_and_goes(24, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_of_one_process_never_overlaps() {
    a_crowd_comes_and_goes(8, 1).await;
}

/// Far more waiters time out at the same time than the client writes calls at once. The server is not silent, however
/// long it takes to reply to all of their cancels.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_timeouts_leave_a_usable_store() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).command_timeout(GENEROUS).build().await.unwrap();
    let held = locker.lock("a").acquire().await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..4_000 {
        let waiting = locker.lock("a").timeout(Duration::from_secs(10)).acquire();
        crowd.spawn(async move { waiting.await.map(drop).map_err(|error| error.kind()) });
    }
    while let Some(ended) = in_time("the crowd", crowd.join_next()).await {
        assert_eq!(ended.unwrap(), Err(ErrorKind::TimedOut));
    }
    in_time("their cancels", locker.settled()).await;
    in_time("the release", held.release()).await.unwrap();
    drop(in_time("the next", locker.lock("a").acquire()).await.unwrap());
}

/// Checks that no hold is reported as lost while `disturb` runs again after every `holds` releases.
///
/// With `unknown`, the outcome of a release may be unknown.
async fn a_crowd_keeps_its_holds(holds: u32, unknown: bool, disturb: redis::Cmd) {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let mut connection = server.connection();
    let (held, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
    let mut crowd = JoinSet::new();
    for _ in 0..32 {
        let (locker, held, ended) = (locker.clone(), Arc::clone(&held), Arc::clone(&ended));
        crowd.spawn(async move {
            for _ in 0..40 {
                let guard = locker.lock("a").acquire().await.expect("the lock");
                assert!(!held.swap(true, Ordering::SeqCst), "two hold the lock");
                tokio::task::yield_now().await;
                assert!(held.swap(false, Ordering::SeqCst));
                let error = guard.release().await.err().filter(|error| !unknown || error.is_certain());
                assert!(error.is_none(), "a hold was not lost: {error:?}");
                ended.add_permits(1);
            }
        });
    }
    let mut disturbances = 0;
    in_time("the crowd", async {
        loop {
            tokio::select! {
                member = crowd.join_next() => match member {
                    Some(member) => member.unwrap(),
                    None => break,
                },
                some = ended.acquire_many(holds) => {
                    some.unwrap().forget();
                    disturb.exec(&mut connection).unwrap();
                    disturbances += 1;
                }
            }
        }
    })
    .await;
    assert!(disturbances > 10, "{disturbances}");
    until("the last release", async || holder(&server, "lock:a").is_none()).await;
    nobody_is_left(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_flushes_lose_no_hold() {
    a_crowd_keeps_its_holds(0, false, redis::cmd("SCRIPT").arg("FLUSH").take()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_lose_no_hold() {
    let kill = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("PUBSUB").take();
    a_crowd_keeps_its_holds(20, true, kill).await;
}
