//! Losses of all data, by `FLUSHALL` and by a restart: what is admitted beyond the bound of a semaphore or limiter.

use crate::support::{GENEROUS, MINUTE, builder, clock, in_time, until, waiting};
use locker::{ErrorKind, Guard, Locker, Quota, RateLimiter};
use locker_harness::RedisServer;
use std::time::Duration;
use tokio::task::JoinSet;

const SIZE: u64 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// A locker that waits long enough for a reply on a busy machine.
async fn connect(url: &str) -> Locker {
    builder(url).command_timeout(Duration::from_secs(10)).build().await.unwrap()
}

/// Makes the server lose all data: without a trace for its clients, or by a restart.
async fn lose(server: &mut RedisServer, restart: bool, lockers: &[&Locker]) {
    if restart {
        server.restart();
    } else {
        let _: String = server.ask("FLUSHALL", &[]);
    }
    for locker in lockers {
        until("the connection", async || locker.admin().ping().await.is_ok()).await;
    }
}

async fn permits(locker: &Locker) -> Vec<Guard> {
    let mut guards = Vec::new();
    while let Some(guard) = locker.semaphore("a", SIZE).try_acquire().await.unwrap() {
        guards.push(guard);
    }
    guards
}

/// The former holders learn of it, and do not take their permits back.
#[tokio::test]
async fn lost_data_admits_one_extra_size() {
    for restart in [false, true] {
        let Some(mut server) = RedisServer::start() else { return };
        let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
        let before = permits(&first).await;
        assert_eq!(before.len() as u64, SIZE);
        lose(&mut server, restart, &[&first, &second]).await;
        let after = permits(&second).await;
        assert_eq!(after.len() as u64, SIZE, "one extra size");
        for guard in before {
            in_time("the loss", guard.lost()).await;
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        }
        assert!(
            after.iter().all(Guard::is_held) && permits(&first).await.is_empty(),
            "no more than the size"
        );
        for guard in after {
            guard.release().await.unwrap();
        }
    }
}

/// Their clients learn of it with their next call.
#[tokio::test]
async fn lost_data_admits_one_extra_size_by_name() {
    for restart in [false, true] {
        let Some(mut server) = RedisServer::start() else { return };
        let locker = connect(&server.url()).await;
        let acquire = async |name: &str| {
            locker.keyed_semaphore("a", 1).acquire(name, MINUTE, Duration::ZERO).await.is_ok()
        };
        assert!(acquire("before").await && !acquire("second").await);
        lose(&mut server, restart, &[&locker]).await;
        assert!(acquire("after").await && !acquire("second").await, "one extra size");
        assert!(!locker.keyed_semaphore("a", 1).renew("before", MINUTE).await.unwrap());
        assert!(!locker.keyed_semaphore("a", 1).release("before").await.unwrap());
        assert!(locker.keyed_semaphore("a", 1).release("after").await.unwrap());
    }
}

/// Makes many calls and checks that `SIZE` of them are admitted, `before` among them, and those whose tokens have come
/// back since `since`.
async fn one_size_is_admitted(server: &RedisServer, limiter: &RateLimiter, since: Duration, before: u64) {
    let mut count = before;
    for _ in 0..4 * SIZE {
        count += u64::from(limiter.try_acquire().await.unwrap().is_some());
    }
    let refilled =
        clock(server).checked_sub(since).expect("the clock goes on").as_secs() * SIZE / WINDOW.as_secs();
    assert!(
        (SIZE..=SIZE + refilled).contains(&count),
        "{limiter:?}: {count} admitted, {refilled} of them later"
    );
}

/// Starts callers that wait for reservations.
async fn reserve(server: &RedisServer, limiter: &RateLimiter, count: usize) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let limiter = limiter.clone().timeout(GENEROUS);
        callers.spawn(async move { limiter.acquire().await.map(|_| ()).unwrap() });
    }
    until("the reservations", async || waiting(server, "rate:a") == count).await;
    callers
}

/// A reservation is kept by the caller that waits for it: after `FLUSHALL` the caller is admitted when it is due. After
/// a restart it asks again.
#[tokio::test]
async fn lost_data_admits_one_extra_burst() {
    for quota in [Quota::fixed_window, Quota::token_bucket, Quota::gcra].map(|kind| kind(SIZE, WINDOW)) {
        for restart in [false, true] {
            let Some(mut server) = RedisServer::start() else { return };
            let locker = connect(&server.url()).await;
            let limiter = locker.rate_limiter("a", quota).cache_refusals(false);
            one_size_is_admitted(&server, &limiter, clock(&server), 0).await;
            let mut callers = reserve(&server, &limiter, 2).await;
            let since = clock(&server);
            lose(&mut server, restart, &[&locker]).await;
            if restart {
                while let Some(admitted) = in_time("a reservation", callers.join_next()).await {
                    admitted.unwrap();
                }
            }
            one_size_is_admitted(&server, &limiter, since, if restart { 2 } else { 0 }).await;
            in_time("the reservations", callers.join_all()).await;
        }
    }
}
