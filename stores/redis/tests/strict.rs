//! Strict mode: nothing is granted twice, whatever the server or a failover has lost. Without it, the same events make
//! two callers hold.

use crate::support::{GENEROUS, in_time, until, waiting};
use locker::{Error, ErrorKind, Guard, LockRequest, Locker};
use locker_harness::{ClusterSetup, Fault, Proxy, RedisServer, SentinelSetup};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};

/// The longest lease, which all callers use.
const LONGEST: Duration = Duration::from_secs(6);

/// How long nothing is granted: 2 s more.
const CLOSED: Duration = Duration::from_secs(8);

const RECORD: &str = "{locker}:epoch";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Strict,
    Plain,
}

async fn connect(port: u16, mode: Mode) -> Locker {
    let url = match mode {
        Mode::Strict => format!("redis://127.0.0.1:{port}?strict=6s"),
        Mode::Plain => format!("redis://127.0.0.1:{port}"),
    };
    let builder = Locker::builder().url(url).lease(LONGEST).timeout(GENEROUS);
    let locker = builder.command_timeout(Duration::from_secs(2)).build().await;
    locker.expect("a connection to the test's server")
}

fn facts(server: &RedisServer, section: &str) -> BTreeMap<String, String> {
    let info: String = server.ask("INFO", &[section]);
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, fact)| (name.into(), fact.into()))
        .collect()
}

fn replication_id(server: &RedisServer) -> String {
    facts(server, "replication")["master_replid"].clone()
}

/// Ends the quiet time of a new server, as its passing does.
fn open(server: &RedisServer, longest: Duration) {
    let record = format!("{} 0 {}", replication_id(server), longest.as_micros());
    let _: String = server.ask("SET", &[RECORD, &record]);
}

fn is_linked(replica: &RedisServer) -> bool {
    facts(replica, "replication").get("master_link_status").is_some_and(|status| status == "up")
}

fn promote(server: &RedisServer) {
    let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
}

/// Makes a server a replica, and waits until it has all data.
async fn demote(server: &RedisServer, master: u16) {
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", &master.to_string()]);
    until("the data of the master", async || is_linked(server)).await;
}

/// Starts a master, open for grants, with a replica.
async fn pair() -> Option<(RedisServer, RedisServer)> {
    let arguments = ["--repl-diskless-sync-delay", "0"];
    let (master, replica) = (RedisServer::with(&arguments)?, RedisServer::with(&arguments)?);
    demote(&replica, master.port()).await;
    open(&master, LONGEST);
    until("the record at the replica", async || {
        replica.ask::<Option<String>>("GET", &[RECORD]) == master.ask("GET", &[RECORD])
    })
    .await;
    Some((master, replica))
}

/// Cuts the replica off: it misses what is written from now on.
async fn cut_replication(master: &RedisServer) {
    let _: String = master.ask("ACL", &["SETUSER", "default", "-psync", "-sync"]);
    let _: i64 = master.ask("CLIENT", &["KILL", "TYPE", "replica"]);
    until("no replica", async || facts(master, "replication")["connected_slaves"] == "0").await;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// The master is killed, and a replica promoted that lags.
    Failover,
    /// The master becomes a replica, loses what it had, and is promoted again. It keeps its run id and its connections.
    Demotion,
    /// The server is killed, and starts without data.
    Restart,
    Flush,
}

/// Returns the port of the server that new callers use.
async fn lose(loss: Loss, master: &mut RedisServer, replica: &RedisServer) -> u16 {
    match loss {
        Loss::Failover => {
            master.kill();
            promote(replica);
            return replica.port();
        }
        Loss::Demotion => {
            let before = (facts(master, "server")["run_id"].clone(), replication_id(master));
            promote(replica);
            demote(master, replica.port()).await;
            promote(master);
            let after = (facts(master, "server")["run_id"].clone(), replication_id(master));
            assert!(before.0 == after.0 && before.1 != after.1, "{before:?} {after:?}");
        }
        Loss::Restart => {
            let before = replication_id(master);
            master.restart();
            assert_ne!(replication_id(master), before);
        }
        Loss::Flush => drop(master.ask::<String>("FLUSHALL", &[])),
    }
    master.port()
}

fn is_quiet(error: &Error) -> bool {
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.message().contains("nothing is granted for another"), "{error}");
    error.retry_after().is_some_and(|after| after <= CLOSED && !after.is_zero())
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How many holds there are: a third of them locks, permits, and sides of read/write locks.
const HELD: usize = 9;

fn request(locker: &Locker, what: usize) -> LockRequest {
    let name = NAMES[what / 3];
    match what % 3 {
        0 => locker.lock(name),
        1 => locker.semaphore(name, 1),
        _ => locker.write_lock(name),
    }
}

/// Returns how many callers got what a former holder still held by its own clock.
async fn overlaps(loss: Loss, mode: Mode) -> Option<usize> {
    let (mut master, replica) = pair().await?;
    let proxy = Proxy::to(master.port());
    let ours = connect(proxy.port(), mode).await;
    cut_replication(&master).await;
    let mut held = Vec::new();
    for what in 0..HELD {
        held.push(request(&ours, what).acquire().await.unwrap());
    }
    // The holders hear nothing, and go by their own clocks.
    proxy.set(Fault::HoldRequests);
    let theirs = connect(lose(loss, &mut master, &replica).await, mode).await;
    let (mut callers, started) = (JoinSet::new(), Instant::now());
    for (what, guard) in held.into_iter().enumerate() {
        let theirs = theirs.clone();
        callers.spawn(async move {
            let next = match request(&theirs, what).try_acquire().await {
                Ok(next) => next.expect("it is free"),
                Err(error) => {
                    assert!(mode == Mode::Strict && is_quiet(&error), "{error}");
                    request(&theirs, what).acquire().await.unwrap()
                }
            };
            let is_double = guard.is_held() && next.is_held();
            next.release().await.unwrap();
            usize::from(is_double)
        });
    }
    let doubles: usize = in_time("the callers", callers.join_all()).await.into_iter().sum();
    if mode == Mode::Strict {
        let waited = started.elapsed();
        assert!(waited > LONGEST && waited < CLOSED + Duration::from_secs(10), "{loss:?}: {waited:?}");
    }
    Some(doubles)
}

macro_rules! losses {
    ($($name:ident: $loss:ident;)+) => {
        mod nothing_is_granted_twice {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (strict, plain) = tokio::join!(overlaps(Loss::$loss, Mode::Strict), overlaps(Loss::$loss, Mode::Plain));
                let (Some(strict), Some(plain)) = (strict, plain) else { return };
                assert_eq!(strict, 0);
                assert!(plain > 0, "the test tests nothing");
            })+
        }
    };
}

losses! {
    over_a_failover_to_a_replica_that_lags: Failover;
    at_a_master_that_was_demoted_for_a_moment: Demotion;
    over_a_restart_without_data: Restart;
    after_flushall: Flush;
}

/// A former master goes on with the clients beside it, until it misses its replica.
async fn overlaps_beside_a_former_master(mode: Mode) -> Option<usize> {
    let (former, new) = pair().await?;
    let beside = connect(former.port(), mode).await;
    promote(&new);
    let far = connect(new.port(), mode).await;
    let mut granted: BTreeMap<&str, Guard> = BTreeMap::new();
    let mut doubles = 0;
    // The new master is asked first, so that its time counts from its promotion.
    let first = far.lock("z").try_acquire().await;
    assert_eq!(first.is_ok(), mode == Mode::Plain);
    for name in NAMES {
        if let Ok(Some(guard)) = beside.lock(name).try_acquire().await {
            granted.insert(name, guard);
        }
    }
    assert_eq!(granted.len(), NAMES.len(), "by the former master");
    // It has heard nothing of its replica for too long.
    let _: String = former.ask("CONFIG", &["SET", "min-replicas-to-write", "1"]);
    let mut callers = JoinSet::new();
    for (name, guard) in granted {
        let far = far.clone();
        callers.spawn(async move {
            let next = far.lock(name).acquire().await.unwrap();
            usize::from(guard.is_held() && next.is_held())
        });
    }
    until("the end of the former master", async || beside.lock("y").try_acquire().await.is_err()).await;
    let refusal = beside.lock("y").try_acquire().await.unwrap_err();
    assert!(refusal.message().contains("NOREPLICAS"), "{refusal}");
    for double in in_time("the callers", callers.join_all()).await {
        doubles += double;
    }
    Some(doubles)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn former_master_and_its_clients_overlap_with_nobody() {
    let strict = overlaps_beside_a_former_master(Mode::Strict);
    let plain = overlaps_beside_a_former_master(Mode::Plain);
    let (Some(strict), Some(plain)) = tokio::join!(strict, plain) else { return };
    assert_eq!(strict, 0);
    assert!(plain > 0, "the test tests nothing");
}

/// The replicas have the hold. What the holder gives up is not granted to the next one yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_keep_theirs_and_queues_wait_over_a_failover() {
    let Some(setup) = SentinelSetup::start() else { return };
    let minute = Duration::from_secs(60);
    open(&setup.servers()[0], minute);
    let url = format!("{}?strict=60s", setup.url());
    let build = || Locker::builder().url(&url).lease(minute).timeout(GENEROUS).build();
    let locker = build().await.unwrap();
    let guard = locker.lock("a").acquire().await.unwrap();
    let is_there =
        |server: &RedisServer| crate::support::holder(server, "lock:a").as_deref() == Some(guard.id());
    until("the hold at the replicas", async || setup.servers().iter().all(is_there)).await;
    let new = &setup.servers()[setup.fail_over()];
    let other = build().await.unwrap();
    until("the new master", async || {
        other.lock("b").try_acquire().await.is_err_and(|error| error.message().contains("nothing is granted"))
    })
    .await;
    until("a renewal at the new master", async || new.ask::<i64>("PTTL", &["lock:a"]) > 58_000).await;
    assert!(guard.is_held() && is_there(new));
    let queued = tokio::spawn(async move { other.lock("a").acquire().await });
    until("the place", async || waiting(new, "lock:a") == 1).await;
    guard.release().await.unwrap();
    for _ in 0..20 {
        sleep(Duration::from_millis(50)).await;
        assert_eq!(crate::support::holder(new, "lock:a"), None, "granted in the quiet time");
    }
    assert!(!queued.is_finished() && waiting(new, "lock:a") == 1);
    queued.abort();
}

/// Queues, runs, batches and permits, when the server is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_when_it_is_open() {
    let Some(server) = RedisServer::start() else { return };
    open(&server, LONGEST);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for number in 0..40 {
        let locker = connect(server.port(), Mode::Strict).await;
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        callers.spawn(async move {
            for _ in 0..5 {
                let own = locker.lock(&format!("own {number}")).acquire().await.unwrap();
                let permit = locker.semaphore("few", 3).acquire().await.unwrap();
                let guard = locker.lock("one").acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                for guard in [guard, permit, own] {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    in_time("the callers", callers.join_all()).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn longer_leases_are_refused() {
    let Some(server) = RedisServer::start() else { return };
    open(&server, LONGEST);
    let locker = connect(server.port(), Mode::Strict).await;
    let longer = LONGEST + Duration::from_millis(1);
    let keyed = locker.keyed_semaphore("a", 1);
    for error in [
        locker.lock("a").lease(longer).acquire().await.unwrap_err(),
        locker.semaphore("a", 1).lease(longer).try_acquire().await.unwrap_err(),
        keyed.acquire("me", Duration::MAX, Duration::ZERO).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        assert!(error.message().contains("longer than strict mode allows, which is 6s here"), "{error}");
    }
    // The lease that keeps it for that long would be refused at the release.
    let error = locker.lock("a").min_hold(LONGEST).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(
        error.message().contains(
            "min_hold 6s and a quarter of the lease are longer than strict mode allows, which is 6s"
        ),
        "{error}"
    );
    let kept = locker.lock("a").lease(LONGEST / 3).min_hold(LONGEST / 2).acquire().await.unwrap();
    kept.release().await.unwrap();
    let next = in_time("the end of min_hold", locker.lock("a").timeout(GENEROUS).acquire()).await.unwrap();
    next.release().await.unwrap();
}

/// The hold may have been released at the former master.
#[tokio::test]
async fn name_gets_no_hold_again_in_the_quiet_time() {
    let Some(server) = RedisServer::start() else { return };
    open(&server, LONGEST);
    let locker = connect(server.port(), Mode::Strict).await;
    let (keyed, now) = (|| locker.keyed_semaphore("a", 1), Duration::ZERO);
    for _ in 0..2 {
        keyed().acquire("me", LONGEST, now).await.unwrap();
    }
    let _: i64 = server.ask("DEL", &[RECORD]);
    assert!(is_quiet(&keyed().acquire("me", LONGEST, now).await.unwrap_err()));
    // It lasts longer than a former master would go on.
    assert!(keyed().renew("me", LONGEST).await.unwrap());
    assert!(keyed().release("me").await.unwrap());
    assert!(is_quiet(&keyed().acquire("you", LONGEST, now).await.unwrap_err()));
}

#[tokio::test]
async fn user_needs_the_replication_id() {
    let Some(server) = RedisServer::start() else { return };
    let permissions = ["SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-info"];
    let _: String = server.ask("ACL", &permissions);
    let url = format!("redis://shop:secret@127.0.0.1:{}", server.port());
    Locker::connect(&url).await.unwrap();
    let error = Locker::connect(&format!("{url}?strict=6s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.message().contains("INFO"), "{error}");
}

#[tokio::test]
async fn server_that_evicts_keys_is_refused() {
    let error = Locker::connect("redis://127.0.0.1:1?strict=6s&allow_eviction=yes").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("allow_eviction"), "{error}");
}

#[tokio::test]
async fn each_prefix_has_a_record() {
    let Some(server) = RedisServer::start() else { return };
    for prefix in ["a:", "b:"] {
        let url = format!("{}?strict=6s", server.url());
        let locker = Locker::builder().url(url).prefix(prefix).lease(LONGEST).build().await.unwrap();
        assert!(is_quiet(&locker.lock("x").try_acquire().await.unwrap_err()));
    }
    let mut records: Vec<String> = server.ask("KEYS", &["*:epoch"]);
    records.sort_unstable();
    assert_eq!(records, ["{a:locker}:epoch", "{b:locker}:epoch"]);
}

/// Each slot of a cluster has a record. A slot that has moved is closed at its next master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_cluster_are_quiet_one_by_one() {
    let Some(setup) = ClusterSetup::start() else { return };
    let lease = Duration::from_secs(1);
    let builder = Locker::builder().url(setup.url() + "?strict=1s").lease(lease).timeout(GENEROUS);
    let locker = builder.build().await.unwrap();
    let names: Vec<_> = (0..ClusterSetup::MASTERS).map(|master| setup.name_at(master, "lock:")).collect();
    for name in &names {
        assert!(is_quiet(&locker.lock(name).try_acquire().await.unwrap_err()), "{name}");
    }
    for name in &names {
        in_time("the lock", locker.lock(name).acquire()).await.unwrap().release().await.unwrap();
        locker.lock(name).try_acquire().await.unwrap().expect("an open slot").release().await.unwrap();
    }
    setup.move_slot(setup.slot(&format!("lock:{}", names[0])), 0, 1);
    assert!(is_quiet(&locker.lock(&names[0]).try_acquire().await.unwrap_err()));
    for name in &names[1..] {
        locker.lock(name).try_acquire().await.unwrap().expect("an open slot").release().await.unwrap();
    }
    in_time("the lock", locker.lock(&names[0]).acquire()).await.unwrap().release().await.unwrap();
}

/// Without strict mode the policy is read when a connection is made.
#[tokio::test]
async fn changed_eviction_policy_is_noticed() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(server.port(), Mode::Strict).await;
    let set = |policy| drop(server.ask::<String>("CONFIG", &["SET", "maxmemory-policy", policy]));
    set("allkeys-lru");
    until("the refusal", async || {
        let tried = locker.lock("a").try_acquire().await;
        tried
            .is_err_and(|error| error.kind() == ErrorKind::Misused && error.message().contains("allkeys-lru"))
    })
    .await;
    set("noeviction");
    until("a server that is used again", async || {
        locker.lock("a").try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}
