//! A process that stops, with any number of waiters ahead of all others, delays the next living waiter by one grant
//! window. When it goes on, its waiters are served as well.

use crate::support::{GENEROUS, Opened, connect, fresh_name, in_time, queued, waiting_at};
use locker::{LockRequest, Locker};
use locker_harness::{Lateness, TestProcess};
use std::{
    env,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::timeout};

const CROWD: &str = "LOCKER_TEST_CROWD";
const HOUR: Duration = Duration::from_secs(3_600);

/// How long a grant is kept for a process that does not confirm it.
const GRANT_WINDOW: Duration = Duration::from_secs(2);
/// How much later than that the next waiter is served.
const LATER: Duration = Duration::from_millis(1_500);
/// How much later still, where the processes move the clock on.
const TICKED: Duration = Duration::from_secs(3);
/// The threads and processes that have to wake, one after the other, until a waiter is served.
const WAKES: u32 = 12;

macro_rules! laws {
    (@of $store:ident, $bound:expr, [$($law:ident: $count:literal),+]) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let Some(store) = crate::support::$store().await else { return };
            stopped_process_costs_one_window(&store, $count, $bound).await;
        })+
    };
    ($laws:tt $($store:ident: $bound:expr;)+) => {
        $(mod $store {
            use super::*;

            laws!(@of $store, $bound, $laws);
        })+
    };
}

laws! {
    [
        stopped_waiter_costs_one_window: 1,
        stopped_queue_costs_one_window: 64,
        stopped_crowd_costs_one_window: 640
    ]
    redis: GRANT_WINDOW + LATER;
    sentinel: GRANT_WINDOW + LATER;
    cluster: GRANT_WINDOW + LATER;
    postgres: GRANT_WINDOW + LATER;
    pgbouncer: GRANT_WINDOW + LATER;
    etcd: GRANT_WINDOW + LATER + TICKED;
    mysql: GRANT_WINDOW + LATER;
    zookeeper: GRANT_WINDOW + LATER + TICKED;
    files: GRANT_WINDOW + LATER;
}

/// Starts a process whose waiters take the holds of a name one after the other.
fn start_crowd(url: &str, name: &str, count: usize) -> TestProcess {
    TestProcess::start("silence::crowd", CROWD, &format!("{count} {url} {name}"))
}

/// Lets a crowd go on, and returns when all waiters have been served.
async fn finish(mut crowd: TestProcess) {
    crowd.go_on();
    let ended = tokio::task::spawn_blocking(move || crowd.wait().unwrap());
    // Each waiter writes several times, one after the other.
    let status = timeout(10 * GENEROUS, ended).await.expect("the crowd ends").unwrap();
    assert!(status.success(), "all waiters of the crowd are served");
}

/// The process that [`start_crowd`] starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd() {
    let Ok(arguments) = env::var(CROWD) else { return };
    let mut arguments = arguments.splitn(3, ' ');
    let mut next = || arguments.next().unwrap();
    let (count, locker, name) = (next().parse().unwrap(), connect(next()).await, next());
    let mut waiters = JoinSet::new();
    for waiter in 0..count {
        for kind in KINDS {
            waiters.spawn(take(locker.clone(), kind, name.into(), waiter));
        }
    }
    waiters.join_all().await;
}

const KINDS: [&str; 3] = ["lock", "rwlock", "semaphore"];

async fn take(locker: Locker, kind: &'static str, name: String, waiter: usize) {
    // Every second one, as a server does for its clients.
    if kind == "semaphore" && waiter % 2 == 1 {
        let (permits, holder) = (locker.keyed_semaphore(&name, 1), waiter.to_string());
        permits.clone().acquire(&holder, HOUR, HOUR).await.unwrap();
        assert!(permits.release(&holder).await.unwrap());
    } else {
        let request = request(&locker, kind, &name, waiter.is_multiple_of(3));
        request.acquire().await.unwrap().release().await.unwrap();
    }
}

fn request(locker: &Locker, kind: &str, name: &str, writes: bool) -> LockRequest {
    let request = match kind {
        "lock" => locker.lock(name),
        "semaphore" => locker.semaphore(name, 1),
        _ if writes => locker.write_lock(name),
        _ => locker.read_lock(name),
    };
    request.lease(HOUR).timeout(HOUR)
}

async fn stopped_process_costs_one_window(store: &Opened, count: usize, bound: Duration) {
    let (locker, name) = (&store.locker, fresh_name());
    let mut held = Vec::new();
    for kind in KINDS {
        held.push(request(locker, kind, &name, true).acquire().await.unwrap());
    }
    let crowd = start_crowd(&store.url, &name, count);
    for kind in KINDS {
        waiting_at(locker, kind, &name, count as u64).await;
    }
    crowd.stop();
    let mut living = Vec::new();
    for kind in KINDS {
        living.push(queued(locker, kind, &name, request(locker, kind, &name, true).acquire()).await);
    }
    let machine = Lateness::measure();
    let mut served = JoinSet::new();
    for ((kind, held), living) in KINDS.into_iter().zip(held).zip(living) {
        served.spawn(async move {
            held.release().await.unwrap();
            let released = Instant::now();
            let guard = in_time("the living waiter", living).await.unwrap();
            (kind, released.elapsed(), guard)
        });
    }
    for (kind, took, guard) in served.join_all().await {
        let late = WAKES * machine.worst();
        assert!(took <= bound + late, "{kind}: {took:?}, of which the machine may have taken {late:?}");
        guard.release().await.unwrap();
    }
    finish(crowd).await;
}
