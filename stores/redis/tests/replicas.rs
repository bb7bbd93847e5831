//! Grants that replicas must have acknowledged.

use crate::support::{GENEROUS, MINUTE, builder, connect, hold, holder, in_time, queue, queue_permit, until};
use futures_util::future::join_all;
use locker::{Error, ErrorKind, Locker};
use locker_harness::{RedisServer, SentinelSetup, Signal};
use std::time::Duration;

/// Longer than a busy machine and a replica that does not answer take together.
const PATIENT: Duration = Duration::from_secs(2);

/// A master and two replicas.
struct Replicated {
    master: RedisServer,
    replicas: [RedisServer; 2],
}

impl Replicated {
    async fn start() -> Option<Self> {
        let start = || RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
        let (master, replicas) = (start()?, [start()?, start()?]);
        for replica in &replicas {
            let _: String = replica.ask("REPLICAOF", &["127.0.0.1", &master.port().to_string()]);
        }
        let online = || master.ask::<String>("INFO", &["replication"]).matches("state=online").count();
        until("two replicas", async || online() == 2).await;
        Some(Self { master, replicas })
    }

    async fn locker(&self, replicas: u32) -> Locker {
        let url = format!("{}?wait_replicas={replicas}&wait_timeout=150ms", self.master.url());
        builder(&url).command_timeout(PATIENT).build().await.unwrap()
    }

    fn stop_one(&self) {
        self.replicas[1].signal(Signal::STOP);
    }

    fn continue_it(&self) {
        self.replicas[1].signal(Signal::CONT);
    }

    /// Checks that nobody holds the lock `a` long before the end of a lease.
    async fn nobody_holds(&self) {
        let other = connect(&self.master.url()).await;
        in_time("the lock", other.lock("a").acquire()).await.unwrap().release().await.unwrap();
    }
}

fn lacks_a_replica(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // On a busy machine the other one may be late, too.
    let is_named =
        |number| error.message().contains(&format!("{number} of 2 replicas acknowledged it within 150ms"));
    assert!(is_named(1) || is_named(0), "{error}");
    assert!(!error.is_certain() && error.is_temporary());
}

/// They have it when the caller has it, also if many calls are one command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_have_what_a_caller_holds() {
    let Some(setup) = Replicated::start().await else { return };
    let url = format!("{}?wait_replicas=2&wait_timeout=400ms", setup.master.url());
    let locker = builder(&url).command_timeout(PATIENT).build().await.unwrap();
    let one = async |name: usize| {
        let guard = hold(&locker, &format!("name {name}")).await;
        for replica in &setup.replicas {
            assert_eq!(holder(replica, guard.key()).as_deref(), Some(guard.id()));
        }
        guard.release().await.unwrap();
    };
    for round in 0..8 {
        join_all((0..48).map(|task| one(round * 48 + task))).await;
    }
    let permit = locker.semaphore("s", 2).acquire().await.unwrap();
    let reading = locker.read_lock("r").acquire().await.unwrap();
    for replica in &setup.replicas {
        for key in ["semaphore:s", "rwlock:r"] {
            assert_eq!(replica.ask::<String>("HGET", &[key, "taken"]), "1", "{key}");
        }
    }
    permit.release().await.unwrap();
    reading.release().await.unwrap();
}

/// The master granted it, and a replica is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_that_a_replica_lacks_is_not_kept() {
    let Some(setup) = Replicated::start().await else { return };
    let (strict, one) = (setup.locker(2).await, setup.locker(1).await);
    setup.stop_one();
    let lock = || strict.lock("a").lease(MINUTE);
    lacks_a_replica(&lock().try_acquire().await.unwrap_err());
    setup.nobody_holds().await;
    lacks_a_replica(&lock().timeout(Duration::from_secs(1)).acquire().await.unwrap_err());
    setup.nobody_holds().await;
    // Each of many calls in one write gets the answer about the write.
    let names: Vec<_> = (0..20).map(|number| format!("many {number}")).collect();
    let many =
        names.iter().map(|name| strict.lock(name).lease(MINUTE).timeout(Duration::from_secs(3)).acquire());
    for refused in join_all(many).await {
        lacks_a_replica(&refused.unwrap_err());
    }
    let all = connect(&setup.master.url()).await;
    for name in &names {
        hold(&all, name).await.release().await.unwrap();
    }
    lacks_a_replica(&strict.semaphore("s", 1).lease(MINUTE).try_acquire().await.unwrap_err());
    lacks_a_replica(&strict.write_lock("r").lease(MINUTE).try_acquire().await.unwrap_err());
    let by_name = strict.keyed_lock("k").acquire("me", MINUTE, Duration::ZERO).await;
    lacks_a_replica(&by_name.unwrap_err());
    in_time("the permit", all.semaphore("s", 1).acquire()).await.unwrap().release().await.unwrap();
    in_time("the writer", all.write_lock("r").acquire()).await.unwrap().release().await.unwrap();
    in_time("the name", all.keyed_lock("k").acquire("you", MINUTE, GENEROUS)).await.unwrap();

    // One replica is enough for another locker, and both answer again later.
    hold(&one, "a").await.release().await.unwrap();
    let waiter = tokio::spawn(async move { hold(&strict, "a").await.release().await });
    setup.continue_it();
    in_time("the grant", waiter).await.unwrap().unwrap();
}

/// The release of another process hands the lock to waiters of this one, one by one or several at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_off_that_a_replica_lacks_is_not_kept() {
    let Some(setup) = Replicated::start().await else { return };
    let (strict, other) = (setup.locker(2).await, connect(&setup.master.url()).await);
    let wait = |timeout: Duration| {
        let strict = strict.clone();
        tokio::spawn(async move { strict.lock("a").lease(MINUTE).timeout(timeout).acquire().await })
    };
    for waiters in [1, 3] {
        let held = hold(&other, "a").await;
        let waiting: Vec<_> = (0..waiters).map(|_| wait(Duration::from_secs(3))).collect();
        until("the waiters", async || crate::support::waiting(&setup.master, "lock:a") == waiters).await;
        setup.stop_one();
        held.release().await.unwrap();
        for waiter in waiting {
            let error = in_time("the end of the wait", waiter).await.unwrap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
        }
        setup.nobody_holds().await;
        setup.continue_it();
    }
    let held = other.semaphore("a", 1).acquire().await.unwrap();
    let waiter = queue_permit(&setup.master, &strict, "me", MINUTE, Duration::from_secs(3)).await;
    setup.stop_one();
    held.release().await.unwrap();
    let error = in_time("the end of the wait", waiter).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
    in_time("the permit", other.semaphore("a", 1).acquire()).await.unwrap().release().await.unwrap();
    setup.continue_it();

    let held = hold(&other, "a").await;
    let waiter = queue(&setup.master, &strict).await;
    held.release().await.unwrap();
    let guard = in_time("the hand-off", waiter).await.unwrap();
    for replica in &setup.replicas {
        assert_eq!(holder(replica, "lock:a").as_deref(), Some(guard.id()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_that_a_replica_lacks_has_failed() {
    const LEASE: Duration = Duration::from_secs(3);
    let Some(setup) = Replicated::start().await else { return };
    let (strict, other) = (setup.locker(2).await, connect(&setup.master.url()).await);
    let guard = strict.lock("a").lease(LEASE).acquire().await.unwrap();
    setup.stop_one();
    // A renewal is carried out by the master, and the local deadline stays.
    until("a renewal that does not count", async || {
        guard.remaining() + Duration::from_millis(500)
            < Duration::from_millis(setup.master.ask("PTTL", &["lock:a"]))
    })
    .await;
    assert!(guard.is_held());
    setup.continue_it();
    until("a renewal that counts", async || guard.remaining() > LEASE * 2 / 3).await;
    setup.stop_one();
    let free = other.lock("b").lease(LEASE).acquire().await.unwrap();
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held() && free.is_held());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    setup.nobody_holds().await;
}

#[tokio::test]
async fn what_cannot_wait_for_replicas_is_refused_by_name() {
    let Some(server) = RedisServer::start() else { return };
    let refused = async |url: &str| {
        let error = Locker::connect(&format!("{url}?wait_replicas=1")).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Misused, "{url}: {error}");
        error
    };
    let error = refused("memory://").await;
    assert!(error.message().contains("`wait_replicas` in the memory URL is unknown"), "{error}");
    let _: String = server.ask("ACL", &["SETUSER", "default", "-wait"]);
    let error = refused(&server.url()).await;
    assert!(error.message().contains("wait_replicas needs the command WAIT"), "{error}");
    // Without the option nobody asks for it.
    hold(&connect(&server.url()).await, "a").await.release().await.unwrap();
    let Some(server) = RedisServer::with(&["--rename-command", "WAIT", ""]) else { return };
    let error = refused(&server.url()).await;
    assert!(error.message().contains("wait_replicas needs the command WAIT"), "{error}");
}

/// A grant that replicas have acknowledged is not lost with its master, if one of them is the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_hold_survives_its_master() {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let url = format!("{}?wait_replicas=1", setup.url());
    let locker = builder(&url).command_timeout(PATIENT).build().await.unwrap();
    let guard = locker.lock("a").lease(Duration::from_secs(20)).acquire().await.unwrap();
    setup.kill(0);
    let new = setup.successor(0);
    until("the hold at the new master", async || {
        let probe = locker.lock("b").timeout(GENEROUS).acquire().await.unwrap();
        let is_there = holder(&setup.servers()[new], "lock:b").as_deref() == Some(probe.id());
        drop(probe.release().await);
        is_there
    })
    .await;
    assert!(guard.is_held());
    assert_eq!(holder(&setup.servers()[new], "lock:a").as_deref(), Some(guard.id()));
    guard.release().await.unwrap();
}

/// The check of the command ends with an error when its master is demoted. It was taken for a server that refuses the
/// command.
#[tokio::test]
async fn demotion_during_the_check_is_no_misuse() {
    let Some(server) = RedisServer::start() else { return };
    let request = builder(&format!("{}?wait_replicas=1", server.url())).command_timeout(GENEROUS);
    let connecting = tokio::spawn(request.timeout(Duration::from_secs(2)).build());
    until("a client that waits for replicas", async || {
        server.ask::<String>("CLIENT", &["LIST"]).lines().any(|client| client.contains("cmd=wait"))
    })
    .await;
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", "1"]);
    if let Err(error) = in_time("the end of the check", connecting).await.unwrap() {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_temporary());
    }
}
