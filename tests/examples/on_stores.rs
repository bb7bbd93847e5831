//! The examples on stores that processes share, two programs at once.

use crate::example;
use locker_harness::RedisServer;
use std::process::{Child, Stdio};

fn withdraw(store: &str) -> Child {
    example("withdraw").args(["--store", store]).stdout(Stdio::piped()).spawn().unwrap()
}

fn two_withdraw_at_once(store: &str) {
    for program in [withdraw(store), withdraw(store)] {
        let output = program.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.matches(": right").count() == 3, "{text}");
        assert!(text.contains("at once on one card: 0 pairs"), "{text}");
    }
}

#[test]
fn withdraw_runs_twice_at_once_on_redis() {
    let Some(server) = RedisServer::start() else { return };
    two_withdraw_at_once(&server.url());
}

#[cfg(feature = "postgres")]
#[test]
fn withdraw_runs_twice_at_once_on_postgres() {
    let Some(server) = locker_harness::PostgresServer::start() else { return };
    two_withdraw_at_once(&server.url());
}

#[cfg(feature = "etcd")]
#[test]
fn withdraw_runs_twice_at_once_on_etcd() {
    let Some(server) = locker_harness::EtcdServer::start() else { return };
    two_withdraw_at_once(&server.url());
}

#[cfg(feature = "zookeeper")]
#[test]
fn withdraw_runs_twice_at_once_on_zookeeper() {
    let Some(server) = locker_harness::ZookeeperServer::start() else { return };
    two_withdraw_at_once(&server.url());
}

#[cfg(feature = "mysql")]
#[test]
fn withdraw_runs_twice_at_once_on_mysql() {
    let Some(server) = locker_harness::MysqlServer::start() else { return };
    two_withdraw_at_once(&server.url());
}

#[cfg(feature = "files")]
#[test]
fn withdraw_runs_twice_at_once_in_files() {
    let directory = tempfile::tempdir().unwrap();
    two_withdraw_at_once(&format!("file://{}", directory.path().display()));
}

/// Names the feature that the command of the README lacks.
#[cfg(not(feature = "files"))]
#[test]
fn missing_store_names_its_feature() {
    let output = example("withdraw").args(["--store", "file:///tmp/x"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("enable the Cargo feature `files`"), "{text}");
}

#[test]
fn fenced_resource_refuses_a_late_holder() {
    let Some(server) = RedisServer::start() else { return };
    for store in ["memory://".to_owned(), server.url()] {
        let output = example("fenced_resource").args(["--store", &store]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("check says Err(Lost)") && text.contains("Err(TooLate)"), "{text}");
    }
}
