//! What Redis itself refuses is certain: waited out within the caller's patience, or told.

use crate::support::{builder, connect, hold, holder, in_time, until};
use locker::{Error, ErrorKind, Locker};
use locker_harness::{RedisServer, free_port};
use std::time::Duration;

/// One try.
async fn refused(locker: &Locker) -> Error {
    in_time("an answer", locker.lock("refused").try_acquire()).await.expect_err("an error")
}

/// While it lasts it is `Unavailable`, names `code`, and holds nothing; a patient caller gets through after it.
async fn passes(server: &RedisServer, locker: &Locker, code: &str, mend: impl FnOnce()) {
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
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let _: String = server.ask("CONFIG", &["SET", name, value]);
}

#[tokio::test]
async fn a_replica_refuses_until_it_is_master_again() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let port = free_port().to_string();
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", &port]);
    passes(&server, &locker, "READONLY", || {
        let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
    })
    .await;
}

#[tokio::test]
async fn a_replica_without_its_master_refuses() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    set(&server, "replica-serve-stale-data", "no");
    let port = free_port().to_string();
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", &port]);
    passes(&server, &locker, "MASTERDOWN", || {
        let _: String = server.ask("REPLICAOF", &["NO", "ONE"]);
    })
    .await;
}

#[tokio::test]
async fn too_few_replicas_refuse() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    set(&server, "min-replicas-to-write", "1");
    passes(&server, &locker, "NOREPLICAS", || set(&server, "min-replicas-to-write", "0")).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    std::fs::create_dir(server.file("dump.rdb")).unwrap();
    set(&server, "save", "3600 1");
    let _: String = server.ask("BGSAVE", &[]);
    until("the save to fail", || {
        server.ask::<String>("INFO", &["persistence"]).contains("rdb_last_bgsave_status:err")
    })
    .await;
    passes(&server, &locker, "MISCONF", || set(&server, "save", "")).await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_refuses() {
    let Some(server) = RedisServer::with(&["--lua-time-limit", "20"]) else { return };
    let locker = connect(&server.url()).await;
    let mut busy = server.connection();
    let script = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut busy).unwrap_err()
    });
    until("the script to be running", || {
        redis::cmd("GET").arg("x").query::<Option<String>>(&mut server.connection()).is_err()
    })
    .await;
    passes(&server, &locker, "BUSY", || {
        let _: String = server.ask("SCRIPT", &["KILL"]);
    })
    .await;
    script.join().unwrap();
}

#[tokio::test]
async fn at_maxmemory_taking_fails_and_keeping_and_ending_work() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = locker.lock("a").lease(Duration::from_secs(4)).acquire().await.unwrap();
    // Another URL of the same database: another connection.
    let other = connect(&format!("{}/0", server.url())).await;
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { hold(&other, "a").await }
    });
    let impatient = tokio::spawn({
        let other = other.clone();
        async move { other.lock("a").acquire().await.map(drop) }
    });
    until("both in line", || crate::support::waiting(&server, "lock:a") == 2).await;
    set(&server, "maxmemory", "1");
    assert_eq!(server.ask::<i64>("PEXPIRE", &["lock:a", "2500"]), 1);
    until("a renewal", || server.ask::<i64>("PTTL", &["lock:a"]) > 2_500).await;
    impatient.abort();
    until("the cancelled waiter to be gone", || crate::support::waiting(&server, "lock:a") == 1).await;
    guard.release().await.unwrap();
    let next = in_time("the hand-over", waiter).await.unwrap();
    next.release().await.unwrap();
    passes(&server, &locker, "OOM", || set(&server, "maxmemory", "0")).await;
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

#[tokio::test]
async fn a_key_of_another_type_is_reported_and_left_alone() {
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
async fn a_prefix_with_braces_is_refused() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).prefix("{shop}:").build().await;
    let error = match locker {
        Ok(locker) => refused(&locker).await,
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.to_string().contains("braces"), "{error}");
}
