//! The cost of rate limiters on the server, and the keys that they leave there.

use crate::support::{
    MINUTE, commands_run, connect, connect_patiently, in_time, scripts_run, server_behind_proxy, until,
    waiting,
};
use locker::{ErrorKind, Locker, Quota, RateLimiter};
use locker_harness::{Fault, RedisServer};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CROWD: usize = 500;
const HOUR: Duration = Duration::from_secs(3600);

/// Queues `CROWD` callers at the limiter `crowd`.
async fn crowd(server: &RedisServer, locker: &Locker, quota: Quota) -> JoinSet<()> {
    let limiter = locker.rate_limiter("crowd", quota).timeout(Duration::MAX);
    let mut callers = JoinSet::new();
    for _ in 0..CROWD {
        let limiter = limiter.clone();
        callers.spawn(async move { limiter.acquire().await.map_or((), |_| panic!("it waits for hours")) });
    }
    until("all callers", async || waiting(server, "rate:crowd") == CROWD).await;
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn departing_crowd_costs_linear_work() {
    for quota in [Quota::gcra(1, HOUR), Quota::token_bucket(1, HOUR), Quota::fixed_window(0, HOUR)] {
        let Some(server) = RedisServer::start() else { return };
        let locker = connect_patiently(&server.url()).await;
        locker.rate_limiter("crowd", quota).try_acquire().await.unwrap();
        let callers = crowd(&server, &locker, quota).await;
        let (scripts, commands) = (scripts_run(&server), commands_run(&server, |_| true));
        drop(callers);
        in_time("an unrelated call", locker.lock("other").acquire()).await.unwrap().release().await.unwrap();
        until("an empty queue", async || waiting(&server, "rate:crowd") == 0).await;
        let (scripts, commands) =
            (scripts_run(&server) - scripts, commands_run(&server, |_| true) - commands);
        assert!(scripts <= 2 * CROWD as u64, "{quota:?}: {scripts} scripts");
        assert!(commands <= 60 * CROWD as u64, "{quota:?}: {commands} commands");
    }
}

/// Returns the longest time to live of all keys.
fn kept(server: &RedisServer) -> Duration {
    let keys: Vec<String> = server.ask("KEYS", &["*"]);
    let left = keys.iter().map(|key| server.ask::<i64>("PTTL", &[key]));
    Duration::from_millis(left.map(|left| u64::try_from(left).expect("an end")).max().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_is_forgotten_a_minute_after_its_use() {
    const MINUTE: Duration = Duration::from_secs(60);
    for kind in [Quota::fixed_window, Quota::token_bucket, Quota::gcra] {
        let Some(server) = RedisServer::start() else { return };
        let locker = connect_patiently(&server.url()).await;
        let limiter = |quota| locker.rate_limiter("name", quota).timeout(Duration::MAX);
        let takes = |number: usize, quota| {
            let limiter = limiter(quota);
            let mut callers = JoinSet::new();
            for _ in 0..number {
                let limiter = limiter.clone();
                callers.spawn(async move { limiter.acquire().await });
            }
            callers
        };
        let queued =
            async |number| until("all callers", async || waiting(&server, "rate:name") == number).await;

        let slow = takes(5, kind(1, HOUR));
        queued(4).await;
        assert!(kept(&server) > 5 * HOUR, "as long as the last reservation");
        drop(slow);
        queued(0).await;
        assert!(kept(&server) <= 2 * HOUR + MINUTE, "callers that have left do not count");

        let parked = takes(2, kind(0, HOUR));
        queued(2).await;
        assert!(kept(&server) <= 2 * HOUR + MINUTE);
        drop(parked);
        queued(0).await;

        let short = Duration::from_millis(200);
        limiter(kind(1, short)).acquire().await.unwrap();
        in_time("a reservation", limiter(kind(1, short)).acquire()).await.unwrap();
        assert!(kept(&server) <= 3 * short + MINUTE);
    }
}

/// A refusal is cached for this long at most.
const CACHED: Duration = Duration::from_millis(50);

fn all(size: u64, per: Duration) -> [Quota; 3] {
    [Quota::fixed_window(size, per), Quota::token_bucket(size, per), Quota::gcra(size, per)]
}

/// Returns a limiter whose tokens are all taken.
async fn used_up(locker: &Locker, name: &str, quota: Quota) -> RateLimiter {
    let limiter = locker.rate_limiter(name, quota);
    limiter.clone().tokens(quota.size()).acquire().await.unwrap();
    limiter
}

async fn is_refused(limiter: &RateLimiter) -> bool {
    limiter.try_acquire().await.unwrap().is_none()
}

/// Makes `calls` calls, which are all refused, and returns how many of them ask the server.
async fn asked(server: &RedisServer, limiter: &RateLimiter, calls: usize) -> u64 {
    let before = scripts_run(server);
    for _ in 0..calls {
        assert!(is_refused(limiter).await);
    }
    scripts_run(server) - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_ask_once_in_50_ms() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let limiter = used_up(&locker, &number.to_string(), quota).await;
        let started = Instant::now();
        let asked = asked(&server, &limiter, 500).await;
        let most = 1 + started.elapsed().as_millis() / CACHED.as_millis();
        assert!(u128::from(asked) <= most, "{quota:?}: {asked} of 500 calls asked, at most {most} should");

        let more = limiter.clone().tokens(2).timeout(Duration::ZERO).acquire().await.unwrap_err();
        let one = limiter.timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!((more.kind(), one.kind()), (ErrorKind::Limited, ErrorKind::Limited));
        assert!(more.retry_after() <= Some(MINUTE) && one.retry_after() <= more.retry_after(), "{quota:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_all_ask_without_the_cache() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let limiter = used_up(&locker, &number.to_string(), quota).await.cache_refusals(false);
        assert_eq!(asked(&server, &limiter, 50).await, 50, "{quota:?}");
    }
}

/// A queued caller may give up, and its tokens may be there for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_all_ask_while_a_caller_waits() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let name = number.to_string();
        let limiter = used_up(&locker, &name, quota).await;
        let patient = limiter.clone().timeout(5 * MINUTE);
        let mut waiter = Box::pin(patient.acquire());
        until("a queued caller", async || {
            assert!(futures_util::poll!(&mut waiter).is_pending());
            waiting(&server, &format!("rate:{name}")) == 1
        })
        .await;
        assert_eq!(asked(&server, &limiter, 50).await, 50, "{quota:?}");
        // The cancel must not count as a call of the next limiter.
        drop(waiter);
        in_time("the cancel", locker.settled()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_call_for_fewer_tokens_asks() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let limiter = locker.rate_limiter(&number.to_string(), quota);
        limiter.clone().tokens(2).acquire().await.unwrap();
        assert!(is_refused(&limiter.clone().tokens(2)).await);
        assert!(!is_refused(&limiter).await, "{quota:?}: one was left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_limit_is_noticed_within_50_ms() {
    let Some(server) = RedisServer::start() else { return };
    let [locker, other] = [connect(&server.url()).await, connect(&server.url()).await];
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let limiter = used_up(&locker, &number.to_string(), quota).await;
        assert!(is_refused(&limiter).await);
        assert!(other.admin().delete(&other.admin().key("rate", &number.to_string())).await.unwrap());
        let deleted = Instant::now();
        let mut begun = Duration::ZERO;
        while is_refused(&limiter).await {
            assert!(begun < CACHED, "{quota:?}: refused {begun:?} later");
            begun = deleted.elapsed();
        }
    }
}

/// The other caller's tokens refill every millisecond. The limiter is unused once all of them are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raised_limit_is_noticed_within_50_ms() {
    let Some(server) = RedisServer::start() else { return };
    let [locker, other] = [connect(&server.url()).await, connect(&server.url()).await];
    let short = Duration::from_millis(1);
    for (number, (slow, fast)) in all(1, MINUTE).into_iter().zip(all(1, short)).enumerate() {
        let name = number.to_string();
        let limiter = used_up(&locker, &name, slow).await;
        assert!(is_refused(&limiter).await);
        in_time("a token of the faster limit", other.rate_limiter(&name, fast).acquire()).await.unwrap();
        let (admin, key) = (other.admin(), other.admin().key("rate", &name));
        until("all tokens being there", async || admin.inspect(&key).await.unwrap().is_none()).await;
        let raised = Instant::now();
        let mut begun = Duration::ZERO;
        while is_refused(&limiter).await {
            assert!(begun < CACHED, "{slow:?}: refused {begun:?} later");
            begun = raised.elapsed();
        }
    }
}

/// If a batch left refused calls undone, each of them would be sent twice. Requests are held back until all calls are
/// made, so that they gather.
#[tokio::test]
async fn simultaneous_refusals_take_few_commands() {
    let (server, proxy, locker) = server_behind_proxy!();
    for (number, quota) in all(3, MINUTE).into_iter().enumerate() {
        let limiter = used_up(&locker, &number.to_string(), quota).await.cache_refusals(false);
        let before = scripts_run(&server);
        proxy.set(Fault::HoldRequests);
        let mut calls: Vec<_> = (0..CROWD).map(|_| Box::pin(limiter.try_acquire())).collect();
        for call in &mut calls {
            assert!(futures_util::poll!(call).is_pending());
        }
        proxy.set(Fault::None);
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(answer.unwrap(), None, "{quota:?}");
        }
        let scripts = scripts_run(&server) - before;
        assert!(scripts <= 2 + CROWD as u64 / 8, "{quota:?}: {scripts} scripts");
    }
}
