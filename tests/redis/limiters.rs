//! What rate limiters cost the server.

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
