//! Refusals by Redis itself: the outcome is certain. The client waits until the caller's timeout, or returns the error.

use crate::support::{GENEROUS, LAST_FENCE, builder, hold, holder, in_time, until, version, waiting};
use locker::{Error, ErrorKind, Locker};
use locker_harness::{Proxy, RedisServer, eventually, free_port};
use std::time::Duration;

/// Connects with a command timeout that no busy machine exceeds: no reply is lost in these tests.
async fn connect(url: &str) -> Locker {
    builder(url).command_timeout(GENEROUS).build().await.expect("a connection to the test's server")
}

/// Returns the error of one try.
async fn refused(locker: &Locker) -> Error {
    in_time("a reply", locker.lock("refused").try_acquire()).await.expect_err("an error")
}

/// Checks that an acquire after `fail` returns `Unavailable`, names `code` and holds nothing.
///
/// Earlier holds stay held, and a patient caller succeeds after `mend`.
async fn passes(server: &RedisServer, locker: &Locker, code: &str, fail: impl FnOnce(), mend: impl FnOnce()) {
    hold(locker, "refused").await.release().await.unwrap();
    let kept = locker.lock("kept").lease(GENEROUS).acquire().await.unwrap();
    fail();
    let error = refused(locker).await;
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.is_certain() && error.to_string().contains(code), "{error}");
    let patient = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "refused").await }
    });
    mend();
    let guard = in_time("the patient caller", patient).await.unwrap();
    assert_eq!(holder(server, guard.key()).as_deref(), Some(guard.id()));
    guard.release().await.unwrap();
    assert_eq!(holder(server, kept.key()).as_deref(), Some(kept.id()));
    kept.check().unwrap();
    kept.release().await.unwrap();
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let _: String = server.ask("CONFIG", &["SET", name, value]);
}

/// Makes the server a replica of a master that is not there.
fn lose_master(server: &RedisServer) {
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", &free_port().to_string()]);
}

fn become_master(server: &RedisServer) {
    let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
}

#[tokio::test]
async fn a_replica_refuses_until_it_is_master_again() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    passes(&server, &locker, "READONLY", || lose_master(&server), || become_master(&server)).await;
}

#[tokio::test]
async fn a_replica_without_its_master_refuses() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    set(&server, "replica-serve-stale-data", "no");
    passes(&server, &locker, "MASTERDOWN", || lose_master(&server), || become_master(&server)).await;
}

#[tokio::test]
async fn too_few_replicas_refuse() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let wanted = |count| set(&server, "min-replicas-to-write", count);
    passes(&server, &locker, "NOREPLICAS", || wanted("1"), || wanted("0")).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let fail = || {
        std::fs::create_dir(server.file("dump.rdb")).unwrap();
        set(&server, "save", "3600 1");
        let _: String = server.ask("BGSAVE", &[]);
        eventually("the save to fail", || {
            let facts: String = server.ask("INFO", &["persistence"]);
            facts.contains("rdb_last_bgsave_status:err").then_some(())
        });
    };
    passes(&server, &locker, "MISCONF", fail, || set(&server, "save", "")).await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_refuses() {
    let Some(server) = RedisServer::with(&["--lua-time-limit", "20"]) else { return };
    let locker = connect(&server.url()).await;
    let mut busy = server.connection();
    let fail = || {
        std::thread::spawn(move || {
            redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut busy).unwrap_err()
        });
        eventually("the script to be running", || {
            redis::cmd("GET").arg("x").query::<Option<String>>(&mut server.connection()).err()
        });
    };
    let mend = || {
        let _: String = server.ask("SCRIPT", &["KILL"]);
    };
    passes(&server, &locker, "BUSY", fail, mend).await;
}

/// The server crashes and reads a long file when it starts again.
#[tokio::test]
async fn a_server_that_reads_its_data_refuses() {
    let persistent = ["--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", "100"];
    let Some(mut server) = RedisServer::with(&persistent) else { return };
    let mut much = redis::pipe();
    for number in 0..50_000 {
        much.cmd("SET").arg(number).arg(number).arg("PX").arg(600_000).ignore();
    }
    much.exec(&mut server.connection()).unwrap();
    let locker = connect(&server.url()).await;
    let kept = locker.lock("kept").lease(GENEROUS).acquire().await.unwrap();
    server.restart_unseen();
    let is_loading = |error: &Error| error.to_string().contains("LOADING");
    let newcomer = in_time("the refusal of a newcomer", async {
        loop {
            match Locker::connect(&format!("{}/0", server.url())).await {
                Err(error) if is_loading(&error) => return error,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                Ok(_) => panic!("it loads too fast"),
            }
        }
    });
    let newcomer = newcomer.await;
    assert_eq!((newcomer.kind(), newcomer.is_temporary()), (ErrorKind::Unavailable, true), "{newcomer}");
    let error = in_time("the refusal of a known locker", async {
        loop {
            let error = refused(&locker).await;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            if is_loading(&error) {
                return error;
            }
        }
    });
    assert!(error.await.is_certain());
    let patient = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "refused").await.release().await }
    });
    // Redis 6.2 has no such setting.
    let hurry = redis::cmd("CONFIG").arg(&["SET", "key-load-delay", "0"]).exec(&mut server.connection());
    assert!(hurry.is_ok() || version(&server).starts_with("6."));
    in_time("the patient caller", patient).await.unwrap().unwrap();
    assert_eq!(holder(&server, kept.key()).as_deref(), Some(kept.id()));
    kept.check().unwrap();
    kept.release().await.unwrap();
}

const CLUSTER: [&str; 2] = ["--cluster-enabled", "yes"];

/// Starts a node that has all slots.
pub(crate) async fn whole_cluster() -> Option<RedisServer> {
    let server = RedisServer::with(&CLUSTER)?;
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    slots_of(&server, "ADDSLOTS", &slots);
    until("the cluster to be up", async || {
        server.ask::<String>("CLUSTER", &["INFO"]).contains("cluster_state:ok")
    })
    .await;
    Some(server)
}

fn slots_of(server: &RedisServer, change: &str, slots: &[String]) {
    let slots = slots.iter().map(String::as_str);
    let _: String = server.ask("CLUSTER", &[change].into_iter().chain(slots).collect::<Vec<_>>());
}

fn slot(server: &RedisServer, key: &str) -> String {
    server.ask::<u16>("CLUSTER", &["KEYSLOT", key]).to_string()
}

#[tokio::test]
async fn a_cluster_that_lacks_a_slot_refuses() {
    let Some(server) = whole_cluster().await else { return };
    let locker = connect(&server.url()).await;
    let slot = [slot(&server, "lock:refused")];
    let (fail, mend) = (|| slots_of(&server, "DELSLOTS", &slot), || slots_of(&server, "ADDSLOTS", &slot));
    passes(&server, &locker, "CLUSTERDOWN", fail, mend).await;
}

/// Starts another node that the first one knows, and returns it with its id.
async fn second_node(first: &RedisServer) -> (RedisServer, String) {
    let second = RedisServer::with(&CLUSTER).expect("another server");
    let id: String = second.ask("CLUSTER", &["MYID"]);
    let _: String = first.ask("CLUSTER", &["MEET", "127.0.0.1", &second.port().to_string()]);
    until("the nodes to know each other", async || {
        let knows = |server: &RedisServer| {
            let nodes: String = server.ask("CLUSTER", &["NODES"]);
            nodes.lines().count() == 2 && nodes.contains(&id) && !nodes.contains("handshake")
        };
        knows(first) && knows(&second)
    })
    .await;
    (second, id)
}

#[tokio::test]
async fn migrating_slot_refuses_until_it_is_stable() {
    let Some(first) = whole_cluster().await else { return };
    let locker = connect(&first.url()).await;
    let (_second, id) = second_node(&first).await;
    let slot = slot(&first, "lock:refused");
    let set_slot = |how: &[&str]| {
        let _: String = first.ask("CLUSTER", &[&["SETSLOT", &slot], how].concat());
    };
    let migrate = || set_slot(&["MIGRATING", &id]);
    // Redis 6.2 redirects a client that asks for a missing key.
    if version(&first).starts_with("6.") {
        hold(&locker, "refused").await.release().await.unwrap();
        migrate();
        assert_eq!(refused(&locker).await.kind(), ErrorKind::Misused);
        set_slot(&["STABLE"]);
        return hold(&locker, "refused").await.release().await.unwrap();
    }
    passes(&first, &locker, "TRYAGAIN", migrate, || set_slot(&["STABLE"])).await;
}

#[tokio::test]
async fn a_node_without_the_slot_is_not_waited_for() {
    let Some(first) = whole_cluster().await else { return };
    let locker = connect(&first.url()).await;
    let (second, id) = second_node(&first).await;
    let misused = |error: &Error, code: &str| {
        assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{error}");
        assert!(error.is_certain() && error.to_string().contains(code), "{error}");
        assert!(error.to_string().contains("node of a cluster"), "{error}");
    };
    until("the second node to know the slots", async || {
        second.ask::<String>("CLUSTER", &["INFO"]).contains("cluster_state:ok")
    })
    .await;
    misused(&Locker::connect(&second.url()).await.unwrap_err(), "MOVED");
    let slot = slot(&first, "lock:refused");
    let _: String = first.ask("CLUSTER", &["SETSLOT", &slot, "MIGRATING", &id]);
    misused(&refused(&locker).await, "ASK");
}

/// Renewals, cancels, releases and hand-offs work.
#[tokio::test]
async fn maxmemory_refuses_only_acquires() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(4)).acquire().await.unwrap();
    // Another URL of the same database makes another connection.
    let other = connect(&format!("{}/0", server.url())).await;
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { hold(&other, "a").await }
    });
    let impatient = tokio::spawn({
        let other = other.clone();
        async move { other.lock("a").acquire().await.map(drop) }
    });
    until("both waiters in the queue", async || waiting(&server, "lock:a") == 2).await;
    set(&server, "maxmemory", "1");
    assert_eq!(server.ask::<i64>("PEXPIRE", &["lock:a", "2500"]), 1);
    until("a renewal", async || server.ask::<i64>("PTTL", &["lock:a"]) > 2_500).await;
    impatient.abort();
    until("the cancelled waiter to be gone", async || waiting(&server, "lock:a") == 1).await;
    guard.release().await.unwrap();
    let next = in_time("the hand-over", waiter).await.unwrap();
    next.release().await.unwrap();
    set(&server, "maxmemory", "0");
    let limit = |bytes| set(&server, "maxmemory", bytes);
    passes(&server, &locker, "OOM", || limit("1"), || limit("0")).await;
}

/// For holds by name; also renewal, eviction and deletion.
#[tokio::test]
async fn maxmemory_allows_inspect_and_release() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let (admin, key) = (locker.admin(), locker.admin().key("semaphore", "a"));
    for holder in ["released", "evicted", "deleted"] {
        set(&server, "maxmemory", "0");
        locker.keyed_semaphore("a", 1).acquire(holder, Duration::MAX, GENEROUS).await.unwrap();
        set(&server, "maxmemory", "1");
        assert!(locker.keyed_semaphore("a", 1).renew(holder, GENEROUS).await.unwrap());
        assert_eq!(admin.inspect(&key).await.unwrap().unwrap().used, Some(1));
        assert!(match holder {
            "released" => locker.keyed_semaphore("a", 1).release(holder).await.unwrap(),
            "evicted" => admin.evict(&key).await.unwrap(),
            _ => admin.delete(&key).await.unwrap(),
        });
        assert!(admin.inspect(&key).await.unwrap().is_none());
    }
    assert_eq!(server.ask::<Vec<String>>("KEYS", &["*"]), [LAST_FENCE]);
}

#[tokio::test]
async fn a_permission_that_is_taken_away_is_named() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let _: String = server.ask("ACL", &["SETUSER", "default", "-set"]);
    let error = refused(&locker).await;
    assert_eq!((error.kind(), error.is_temporary(), error.is_certain()), (ErrorKind::Misused, false, true));
    assert!(error.to_string().contains("ACL"), "{error}");
}

/// Calls return `Conflict`.
#[tokio::test]
async fn key_of_another_type_is_left_alone() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).build().await.unwrap();
    let _: i64 = server.ask("RPUSH", &["lock:refused", "precious"]);
    let error = refused(&locker).await;
    assert_eq!((error.kind(), error.key()), (ErrorKind::Conflict, Some("lock:refused")));
    assert!(!error.is_temporary() && error.to_string().contains("left as it is"), "{error}");
    let error = locker.lock("refused").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(server.ask::<Vec<String>>("LRANGE", &["lock:refused", "0", "-1"]), ["precious"]);
    let _: i64 = server.ask("RPUSH", &["{lock:queue}:q", "precious"]);
    let error = locker.lock("queue").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test]
async fn foreign_fence_record_blocks_no_release() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let admin = locker.admin();
    for end in ["released", "evicted"] {
        let guard = hold(&locker, "a").await;
        let next = tokio::spawn(locker.lock("a").timeout(GENEROUS).acquire());
        until("the next waiter in the queue", async || waiting(&server, "lock:a") == 1).await;
        let _: String = server.ask("SET", &[LAST_FENCE, "no fence"]);
        match end {
            "released" => guard.release().await.unwrap(),
            _ => assert!(admin.evict(&admin.key("lock", "a")).await.unwrap()),
        }
        in_time("the next", next).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Before anything is sent.
#[tokio::test]
async fn prefix_with_braces_is_refused() {
    for prefix in ["{shop}:", "}"] {
        let url = format!("redis://127.0.0.1:{}", free_port());
        let error = builder(&url).prefix(prefix).build().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused);
        assert!(error.to_string().contains("braces"), "{error}");
    }
}

#[tokio::test]
async fn address_of_a_new_master_is_followed() {
    let (Some(old), Some(new)) = (RedisServer::start(), RedisServer::start()) else { return };
    let proxy = Proxy::to(old.port());
    let locker = connect(&proxy.url()).await;
    locker.lock("a").acquire().await.unwrap().release().await.unwrap();
    proxy.lead_to(new.port());
    let _: String = old.ask("REPLICAOF", &["127.0.0.1", &new.port().to_string()]);
    let guard = in_time("the new master", locker.lock("a").timeout(GENEROUS).acquire()).await.unwrap();
    assert_eq!(holder(&new, "lock:a").as_deref(), Some(guard.id()));
    guard.release().await.unwrap();
}

/// A wrong password refuses the connection over which a release would go.
#[tokio::test]
async fn release_is_made_once_the_login_works() {
    let Some(server) = RedisServer::start() else { return };
    let set = |password: &str| -> String {
        server.ask("ACL", &["SETUSER", "shop", "on", "resetpass", password, "~*", "&*", "+@all"])
    };
    set(">secret");
    let url = server.url().replace("redis://", "redis://shop:secret@");
    let locker = builder(&url).lease(Duration::from_secs(600)).build().await.unwrap();
    let (released, dropped) = (hold(&locker, "a").await, hold(&locker, "b").await);
    set(">other");
    let _: i64 = server.ask("CLIENT", &["KILL", "USER", "shop"]);
    until("the refusal", async || {
        locker
            .lock("c")
            .timeout(Duration::ZERO)
            .acquire()
            .await
            .is_err_and(|e| e.kind() == ErrorKind::Misused)
    })
    .await;
    assert_eq!(released.release().await.unwrap_err().kind(), ErrorKind::Misused);
    drop(dropped);
    set(">secret");
    for key in ["lock:a", "lock:b"] {
        until("the release", async || holder(&server, key).is_none()).await;
    }
}

/// A script that fails has changed nothing. The hold is released when the cause is gone.
#[tokio::test]
async fn a_release_that_is_refused_leaves_the_hold() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(GENEROUS * 2).build().await.unwrap();
    for helper in ["{lock:a}:q", "{lock:a}:w"] {
        let guard = hold(&locker, "a").await;
        // As if somebody waited.
        let held = format!("{} {} +", guard.id(), guard.fence());
        let _: String = server.ask("SET", &["lock:a", &held, "KEEPTTL"]);
        let _: i64 = server.ask("RPUSH", &["{lock:a}:q", "precious"]);
        if helper.ends_with('w') {
            let _: i64 = server.ask("DEL", &["{lock:a}:q"]);
            let _: i64 = server.ask("ZADD", &["{lock:a}:q", "1", "0123456789abcdef0123456789abcdef"]);
            let _: i64 = server.ask("RPUSH", &["{lock:a}:w", "precious"]);
        }
        let id = guard.id().to_owned();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(crate::support::holder(&server, "lock:a"), Some(id));
        let _: i64 = server.ask("DEL", &["lock:a", "{lock:a}:q", "{lock:a}:w"]);
    }
}
