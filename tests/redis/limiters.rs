//! What rate limiters cost the server, and what they leave there.

use crate::support::{commands_run, connect, in_time, scripts_run, until, waiting};
use locker::{Locker, Quota};
use locker_harness::RedisServer;
use std::time::Duration;
use tokio::task::JoinSet;

const CROWD: usize = 500;
const HOUR: Duration = Duration::from_secs(3600);

/// So many wait for their turn at the name `crowd`.
async fn crowd(server: &RedisServer, locker: &Locker, quota: Quota) -> JoinSet<()> {
    let limiter = locker.rate_limiter("crowd", quota).timeout(Duration::MAX);
    let mut callers = JoinSet::new();
    for _ in 0..CROWD {
        let limiter = limiter.clone();
        callers
            .spawn(async move { limiter.acquire().await.map_or((), |_| panic!("its turn is hours away")) });
    }
    until("everybody in line", async || waiting(server, "rate:crowd") == CROWD).await;
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_leaves_costs_a_little_for_each() {
    for quota in [Quota::gcra(1, HOUR), Quota::token_bucket(1, HOUR), Quota::fixed_window(0, HOUR)] {
        let Some(server) = RedisServer::start() else { return };
        let locker = connect(&server.url()).await;
        locker.rate_limiter("crowd", quota).try_acquire().await.unwrap();
        let callers = crowd(&server, &locker, quota).await;
        let (scripts, commands) = (scripts_run(&server), commands_run(&server, |_| true));
        drop(callers);
        in_time("an unrelated call", locker.lock("other").acquire()).await.unwrap().release().await.unwrap();
        until("everybody gone", async || waiting(&server, "rate:crowd") == 0).await;
        let (scripts, commands) =
            (scripts_run(&server) - scripts, commands_run(&server, |_| true) - commands);
        assert!(scripts <= 2 * CROWD as u64, "{quota:?}: {scripts} scripts");
        assert!(commands <= 60 * CROWD as u64, "{quota:?}: {commands} commands");
    }
}

/// The longest that any key is kept.
fn kept(server: &RedisServer) -> Duration {
    let keys: Vec<String> = server.ask("KEYS", &["*"]);
    let left = keys.iter().map(|key| server.ask::<i64>("PTTL", &[key]));
    Duration::from_millis(left.map(|left| u64::try_from(left).expect("an end")).max().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_forgotten_a_minute_after_the_last_turn() {
    const MINUTE: Duration = Duration::from_secs(60);
    for kind in [Quota::fixed_window, Quota::token_bucket, Quota::gcra] {
        let Some(server) = RedisServer::start() else { return };
        let locker = connect(&server.url()).await;
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
        let in_line =
            async |number| until("everybody in line", async || waiting(&server, "rate:name") == number).await;

        let slow = takes(5, kind(1, HOUR));
        in_line(4).await;
        assert!(kept(&server) > 5 * HOUR, "as long as the last turn");
        drop(slow);
        in_line(0).await;
        assert!(kept(&server) <= 2 * HOUR + MINUTE, "those who wait no longer are not waited for");

        let parked = takes(2, kind(0, HOUR));
        in_line(2).await;
        assert!(kept(&server) <= 2 * HOUR + MINUTE);
        drop(parked);
        in_line(0).await;

        let short = Duration::from_millis(200);
        limiter(kind(1, short)).acquire().await.unwrap();
        in_time("a turn", limiter(kind(1, short)).acquire()).await.unwrap();
        assert!(kept(&server) <= 3 * short + MINUTE);
    }
}
