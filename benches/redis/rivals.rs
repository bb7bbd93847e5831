//! The ways to lock, each with the defaults that an application gets.

use super::tasks;
use locker::{Guard, Locker};
use locker_harness::RedisServer;
use redis::{Client, Script, aio::MultiplexedConnection};
use rslock::LockManager;
use std::{sync::LazyLock, time::Duration};
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(10);

/// The script of a raw release.
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    )
});

/// A way to lock. Its clones share one connection.
#[derive(Clone)]
pub(crate) enum Rival {
    Locker(Locker),
    Rslock(LockManager),
    /// Raw commands, which take only free names.
    Raw(MultiplexedConnection),
}

/// A name that is held.
pub(crate) enum Held {
    Locker(Guard),
    Rslock(rslock::Lock),
    Raw(MultiplexedConnection, String, String),
}

impl Rival {
    pub(crate) fn locker(runtime: &Runtime, server: &RedisServer) -> Self {
        Self::Locker(runtime.block_on(Locker::connect(&server.url())).expect("a connection"))
    }

    /// Returns `rslock` with its defaults: three tries, each after a random part of 200 ms.
    pub(crate) fn rslock(server: &RedisServer) -> Self {
        Self::Rslock(LockManager::new(vec![server.url()]))
    }

    /// Returns `rslock` with a try every millisecond on average: below 3 ms it draws 0, 1 or 2 ms.
    pub(crate) fn rslock_every_ms(server: &RedisServer) -> Self {
        let mut manager = LockManager::new(vec![server.url()]);
        manager.set_retry(u32::MAX, Duration::from_millis(3));
        Self::Rslock(manager)
    }

    /// Returns a raw connection with its defaults: RESP2, a reply within 500 ms, `TCP_NODELAY` off.
    pub(crate) fn raw(runtime: &Runtime, server: &RedisServer) -> Self {
        let client = Client::open(server.url()).expect("a client");
        Self::Raw(runtime.block_on(client.get_multiplexed_async_connection()).expect("a connection"))
    }

    pub(crate) async fn acquire(&self, name: &str) -> Held {
        match self {
            Self::Locker(locker) => {
                let request = locker.lock(name).timeout(Duration::from_secs(60));
                Held::Locker(request.acquire().await.expect("the lock"))
            }
            Self::Rslock(manager) => loop {
                if let Ok(lock) = manager.lock(name, LEASE).await {
                    return Held::Rslock(lock);
                }
            },
            Self::Raw(connection) => {
                let (mut connection, token) = (connection.clone(), token());
                let set: Option<String> =
                    set_if_free(name, &token).query_async(&mut connection).await.expect("a reply");
                assert!(set.is_some(), "{name} is not free");
                Held::Raw(connection, name.to_owned(), token)
            }
        }
    }
}

impl Held {
    pub(crate) async fn release(self) {
        match self {
            Self::Locker(guard) => guard.release().await.expect("a release"),
            Self::Rslock(lock) => lock.release().await,
            Self::Raw(mut connection, name, token) => {
                let released: i64 =
                    RELEASE.key(name).arg(token).invoke_async(&mut connection).await.expect("a reply");
                assert_eq!(released, 1);
            }
        }
    }
}

pub(crate) fn token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Returns the command of a raw acquire.
pub(crate) fn set_if_free(name: &str, token: &str) -> redis::Cmd {
    let mut command = redis::cmd("SET");
    command.arg(name).arg(token).arg("NX").arg("PX").arg(LEASE.as_secs() * 1_000);
    command
}

/// Acquires and releases `times` times in `tasks` tasks, and returns how long that took.
///
/// The argument of `name` is the task's number.
pub(crate) fn spread(
    runtime: &Runtime,
    rival: &Rival,
    tasks: u32,
    times: u32,
    name: impl Fn(u32) -> String,
) -> Duration {
    tasks::spread(runtime, tasks, times, |task, times| {
        let (rival, name) = (rival.clone(), name(task));
        async move {
            for _ in 0..times {
                rival.acquire(&name).await.release().await;
            }
        }
    })
}
