//! Simultaneous calls become few commands, and each caller gets the same reply as from a call of its own.

use crate::{
    refusals::whole_cluster,
    support::{GENEROUS, LAST_FENCE, LEASE, builder, hold, holder, in_time, scripts_run, until},
};
use locker::{Error, ErrorKind, Guard, Locker, Quota, RateLimiter};
use locker_harness::{RedisServer, Signal};
use std::{collections::HashSet, time::Duration};
use tokio::task::JoinSet;

const CALLERS: usize = 64;

/// Connects with a command timeout that no busy machine exceeds.
async fn connect(server: &RedisServer) -> Locker {
    let locker = builder(&server.url()).command_timeout(GENEROUS).lease(GENEROUS).build().await.unwrap();
    hold(&locker, "warm").await.release().await.unwrap();
    locker
}

/// Starts all calls while the server is paused, so that all of them wait to be written.
async fn at_once<T: Send + 'static, F>(server: &RedisServer, calls: impl Iterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    server.signal(Signal::STOP);
    let mut tasks: JoinSet<T> = calls.collect();
    let asked = tokio::spawn(async { tokio::task::yield_now().await });
    in_time("all calls to be sent", asked).await.unwrap();
    server.signal(Signal::CONT);
    let mut results = Vec::new();
    while let Some(result) = in_time("a reply", tasks.join_next()).await {
        results.push(result.unwrap());
    }
    results
}

/// Not renewed: once a process is subscribed, which may come late, it renews what it holds.
async fn locks(server: &RedisServer, locker: &Locker, names: &[String]) -> Vec<Result<Guard, Error>> {
    let acquire = |name: &String| {
        let request = locker.lock(name).timeout(Duration::from_secs(20)).renew(false);
        async move { request.acquire().await }
    };
    at_once(server, names.iter().map(acquire)).await
}

fn names() -> Vec<String> {
    (0..CALLERS).map(|number| format!("name {number}")).collect()
}

#[tokio::test]
async fn many_locks_take_few_commands() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    for _ in 0..2 {
        let before = scripts_run(&server);
        let guards = locks(&server, &locker, &names()).await;
        let guards: Vec<Guard> = guards.into_iter().map(|guard| guard.unwrap()).collect();
        let scripts = scripts_run(&server) - before;
        assert!(scripts <= CALLERS as u64 / 4, "{scripts} scripts for {CALLERS} locks");
        for guard in &guards {
            assert_eq!(holder(&server, guard.key()).as_deref(), Some(guard.id()));
        }
        let keys: Vec<String> = guards.iter().map(|guard| guard.key().to_owned()).collect();
        let before = scripts_run(&server);
        for released in at_once(&server, guards.into_iter().map(Guard::release)).await {
            released.unwrap();
        }
        let scripts = scripts_run(&server) - before;
        assert!(scripts <= CALLERS as u64 / 4, "{scripts} scripts for {CALLERS} releases");
        assert!(keys.iter().all(|key| holder(&server, key).is_none()));
    }
}

#[tokio::test]
async fn callers_of_one_lock_get_it_one_by_one() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    let names: Vec<String> = (0..CALLERS).map(|number| format!("name {}", number % 8)).collect();
    let turns = names.iter().map(|name| {
        let request = locker.lock(name);
        async move {
            let guard = request.acquire().await.unwrap();
            let turn = (guard.key().to_owned(), guard.fence());
            guard.release().await.unwrap();
            turn
        }
    });
    let turns: HashSet<_> = at_once(&server, turns).await.into_iter().collect();
    assert_eq!(turns.len(), CALLERS, "one fence twice");
}

#[tokio::test]
async fn foreign_key_fails_only_its_own_call() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    let _: i64 = server.ask("HSET", &["lock:name 3", "not", "a lock"]);
    let _: i64 = server.ask("RPUSH", &["{lock:name 5}:q", "no queue"]);
    let _: String = server.ask("SET", &[LAST_FENCE, "words"]);
    let results = locks(&server, &locker, &names()).await;
    let (held, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((held.len(), refused.len()), (CALLERS - 2, 2));
    let fences: HashSet<_> = held.iter().flatten().map(|guard| guard.fence().to_string().len()).collect();
    assert_eq!(fences, HashSet::from([16]), "microseconds since 1970");
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    assert_eq!(server.ask::<String>("TYPE", &["lock:name 3"]), "hash");
    assert_eq!(server.ask::<String>("TYPE", &["{lock:name 5}:q"]), "list");
    assert_eq!(holder(&server, "lock:name 5"), None);
}

#[tokio::test]
async fn script_flush_reloads_batch_scripts() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    for _ in 0..3 {
        let _: String = server.ask("SCRIPT", &["FLUSH"]);
        let guards = locks(&server, &locker, &names()).await;
        assert!(guards.iter().all(Result::is_ok));
        let released = at_once(&server, guards.into_iter().flatten().map(Guard::release)).await;
        assert!(released.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn cluster_node_gets_one_name_per_command() {
    let Some(server) = whole_cluster().await else { return };
    let locker = connect(&server).await;
    for _ in 0..2 {
        let guards = locks(&server, &locker, &names()).await;
        let guards: Vec<Guard> = guards.into_iter().map(|guard| guard.unwrap()).collect();
        let released = at_once(&server, guards.into_iter().map(Guard::release)).await;
        assert!(released.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn limit_counts_simultaneous_callers() {
    const SIZE: u64 = 40;
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    let hour = Duration::from_secs(3600);
    for (name, quota) in [
        ("window", Quota::fixed_window(SIZE, hour)),
        ("bucket", Quota::token_bucket(SIZE, hour)),
        ("gcra", Quota::gcra(SIZE, hour).burst(SIZE)),
    ] {
        let limiter = locker.rate_limiter(name, quota).timeout(Duration::ZERO);
        // The first request creates the limiter. The others find it.
        limiter.acquire().await.unwrap();
        let before = scripts_run(&server);
        let take = |_| {
            let limiter = limiter.clone();
            async move { limiter.acquire().await }
        };
        let admitted: Vec<_> =
            at_once(&server, (1..SIZE).map(take)).await.into_iter().map(|turn| turn.unwrap()).collect();
        assert!(scripts_run(&server) - before <= SIZE / 4, "{name}");
        let left: HashSet<u64> = admitted.iter().map(|turn| turn.remaining).collect();
        assert_eq!(left, (0..SIZE - 1).collect(), "{name}");
        for refused in at_once(&server, (1..SIZE).map(take)).await {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Limited, "{name}");
        }
    }
}

/// A caller that wants more tokens than are left keeps its place before a later caller that wants fewer.
#[tokio::test]
async fn repeated_call_is_not_overtaken() {
    const HOUR: Duration = Duration::from_secs(3600);
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server).await;
    for quota in [Quota::fixed_window(10, HOUR), Quota::token_bucket(10, HOUR), Quota::gcra(10, HOUR)] {
        let limiter = locker.rate_limiter(&format!("{quota:?}"), quota);
        limiter.clone().tokens(8).acquire().await.unwrap();
        let ask = |limiter: &RateLimiter, tokens, patience| {
            let limiter = limiter.clone().tokens(tokens).timeout(patience);
            tokio::spawn(async move { limiter.acquire().await })
        };
        server.signal(Signal::STOP);
        let alone = ask(&locker.rate_limiter("goes out alone", quota), 1, HOUR);
        let first = ask(&limiter, 5, 2 * HOUR);
        let second = ask(&limiter, 1, Duration::ZERO);
        in_time("all calls to be sent", tokio::spawn(tokio::task::yield_now())).await.unwrap();
        server.signal(Signal::CONT);
        in_time("the first call of all", alone).await.unwrap().unwrap();
        let refused = in_time("the second", second).await.unwrap().expect_err("its tokens come later");
        assert_eq!(refused.kind(), ErrorKind::Limited, "{quota:?}");
        assert!(!first.is_finished(), "{quota:?}");
        first.abort();
    }
}

/// The client holds calls back while two commands are on their way. None of them may wait indefinitely.
#[tokio::test]
async fn calls_behind_a_dead_connection_fail() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).build().await.unwrap();
    let guards = locks(&server, &locker, &names()).await;
    assert!(guards.iter().all(Result::is_ok));
    drop(guards);
    server.signal(Signal::STOP);
    let mut tasks = JoinSet::new();
    for name in names() {
        let request = locker.lock(&format!("{name}, again")).timeout(LEASE / 4);
        tasks.spawn(async move { request.acquire().await });
    }
    while let Some(result) = in_time("an error", tasks.join_next()).await {
        assert_eq!(result.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    server.signal(Signal::CONT);
    let locker_works = async { hold(&locker, "after that").await.release().await.unwrap() };
    in_time("the locker to work again", locker_works).await;
    until("all locks to be free", async || {
        let keys: Vec<String> = server.ask("KEYS", &["lock:*"]);
        keys.is_empty()
    })
    .await;
}
