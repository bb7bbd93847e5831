//! `locker store`, and the stores that the help and the messages name.

use crate::{
    stores::{Store, on_each_store},
    support::{Server, binary},
};
use locker_harness::{MysqlServer, PostgresServer, SentinelSetup, ZookeeperCluster, eventually, free_port};
use std::{
    io::Write,
    process::{Output, Stdio},
    time::Duration,
};

on_each_store!(blocking: check_prints_times);

/// The schemes of the stores that processes share.
const SCHEMES: [&str; 6] = ["file:///", "redis://", "postgres://", "etcd://", "mysql://", "zk://"];

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = binary().args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn check_prints_times(store: &Store) {
    let output = store.program(&["store", "check"]).output().unwrap();
    let (text, log) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{log}");
    let lines: Vec<_> = text.lines().collect();
    let begin = ["store  ", "opened in  ", "round trip  ", "lock and release  "];
    assert!(
        lines.len() == 4 && lines.iter().zip(begin).all(|(line, begin)| line.starts_with(begin)),
        "{text}"
    );
    assert!(lines[1..].iter().all(|line| line.ends_with('s')), "{text}");
    let left = String::from_utf8(store.program(&["ls"]).output().unwrap().stdout).unwrap();
    assert_eq!(left.lines().count(), 1, "nothing is held: {left}");
}

#[test]
fn check_prints_times_on_mysql() {
    let Some(store) = Store::mysql() else { return };
    check_prints_times(&store);
}

#[test]
fn check_prints_times_on_zookeeper() {
    let Some(store) = Store::zookeeper() else { return };
    check_prints_times(&store);
}

/// Calls of a crontab come for moments only, in which time hardly moves on. A server that runs keeps it going, so that
/// no call leaves a session behind.
#[test]
fn server_lets_dead_holds_end_among_short_visits() {
    let Some(servers) = ZookeeperCluster::start(1) else { return };
    let _server = Server::start(&["--store", &servers.url()]);
    let program = |arguments: &[&str]| {
        let mut program = binary();
        program.env("LOCKER_URL", servers.url()).args(arguments);
        program
    };
    let mut holder = program(&["run", "cron", "--lease", "12s", "--", "sleep", "100"]);
    let mut holder = holder.spawn().unwrap();
    let visit = || {
        let code = program(&["run", "cron", "--timeout", "0s", "--", "true"]).status().unwrap().code();
        assert!(!servers.say(0, "dump").expect("the sessions").contains("/gauge/"));
        code
    };
    eventually("the hold", || (visit() == Some(75)).then_some(()));
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("its end", || {
        std::thread::sleep(Duration::from_millis(500));
        (visit() == Some(0)).then_some(())
    });
}

/// Its session would otherwise go on for 10 s, and its nodes for ever.
#[test]
fn program_ends_its_session() {
    let Some(server) = ZookeeperCluster::start(1) else { return };
    for command in [&["run", "a", "--", "true"][..], &["ls"], &["store", "check"]] {
        let ended = binary().env("LOCKER_URL", server.url()).args(command).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let sessions = server.say(0, "dump").expect("the sessions");
        assert!(!sessions.contains("/inbox/"), "{command:?}: {sessions}");
    }
}

/// A user that may make no tables works with those of an administrator.
#[test]
fn sql_makes_the_tables_for_a_user_of_mysql() {
    let Some(server) = MysqlServer::start() else { return };
    server.sql("CREATE USER 'till 7'");
    let url = server.url_of("locks").replace("//locker@", "//till%207@");
    let (code, _, log) = run(&["run", "a", "--store", &url, "--", "true"]);
    assert!(code == Some(64) && log.contains("1044"), "{log}");
    let (code, sql, log) =
        run(&["store", "sql", "--kind", "mysql", "--schema", "locks", "--grant-to", "till 7"]);
    assert_eq!(code, Some(0), "{log}");
    for _ in 0..2 {
        let mut client = server.client("locker");
        let mut client = client.stdin(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        assert!(client.wait().unwrap().success());
    }
    let (code, fence, log) = run(&["run", "a", "--store", &url, "--", "sh", "-c", "echo $LOCKER_FENCE"]);
    assert!(code == Some(0) && fence.trim().parse::<u64>().unwrap() > 0, "{log}");
}

#[test]
fn check_says_what_is_wrong() {
    for (store, code, named) in [
        ("memory://".to_owned(), 64, "one process"),
        ("nonsense://".to_owned(), 64, "postgres://"),
        (format!("redis://:sekret@127.0.0.1:{}", free_port()), 69, "127.0.0.1"),
        (format!("postgres://u:sekret@127.0.0.1:{}/db", free_port()), 69, "127.0.0.1"),
        (format!("etcd://u:sekret@127.0.0.1:{}", free_port()), 69, "127.0.0.1"),
        (format!("mysql://u:sekret@127.0.0.1:{}/db", free_port()), 69, "127.0.0.1"),
        (format!("zk://u:sekret@127.0.0.1:{}", free_port()), 69, "127.0.0.1"),
        ("file:///proc/locker".to_owned(), 69, "/proc/locker"),
    ] {
        let (ended, output, log) = run(&["store", "check", "--store", &store]);
        assert!(ended == Some(code) && output.is_empty() && log.contains(named), "{store}: {ended:?} {log}");
        assert!(!log.contains("sekret"), "{log}");
    }
}

/// A role that may make no tables works with those of an administrator.
#[test]
fn sql_makes_the_tables_for_a_role() {
    let Some(server) = PostgresServer::start() else { return };
    server.psql("CREATE ROLE \"till 7\" LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let url = server.url().replace("//locker@", "//till%207@") + "?schema=locks";
    let (code, _, log) = run(&["run", "a", "--store", &url, "--", "true"]);
    assert!(code == Some(64) && log.contains("permission denied"), "{log}");
    let (code, sql, log) = run(&["store", "sql", "--schema", "locks", "--grant-to", "till 7"]);
    assert_eq!(code, Some(0), "{log}");
    for _ in 0..2 {
        server.psql(&sql);
    }
    let (code, fence, log) = run(&["run", "a", "--store", &url, "--", "sh", "-c", "echo $LOCKER_FENCE"]);
    assert!(code == Some(0) && fence.trim().parse::<u64>().unwrap() > 0, "{log}");
    for (given, missing) in [
        ("EXECUTE ON FUNCTION locks.locker_timeline()", "permission denied for function locker_timeline"),
        ("INSERT ON locks.locker_boot", "permission denied to insert into table locker_boot"),
        ("DELETE ON locks.locker_boot", "permission denied to delete from table locker_boot"),
    ] {
        server.psql(&format!("REVOKE {given} FROM PUBLIC, \"till 7\""));
        let (code, _, log) = run(&["run", "a", "--store", &url, "--", "true"]);
        assert!(code == Some(64) && log.contains(missing), "{log}");
        server.psql(&sql);
        assert_eq!(run(&["run", "a", "--store", &url, "--", "true"]).0, Some(0), "{missing}");
    }
    let grants = "SELECT count(*) FROM information_schema.role_table_grants WHERE grantee = 'till 7'";
    assert_eq!(server.psql(grants), "15", "four permissions on each of three tables, three on the fourth");
}

#[test]
fn sql_without_options_makes_the_tables_of_the_owner() {
    let Some(server) = PostgresServer::start() else { return };
    let (code, sql, log) = run(&["store", "sql"]);
    assert!(code == Some(0) && !sql.contains("GRANT") && !sql.contains("CREATE SCHEMA"), "{log}");
    server.psql(&sql);
    assert_eq!(server.psql("SELECT format FROM public.locker_meta"), "2");
    assert_eq!(run(&["run", "a", "--store", &server.url(), "--", "true"]).0, Some(0));
}

#[test]
fn schemas_that_no_url_can_name_are_refused() {
    for schema in ["", "a\"b", "a b", "a;b", &"a".repeat(64)] {
        let (code, output, log) = run(&["store", "sql", "--schema", schema]);
        assert!(code == Some(64) && output.is_empty() && log.contains("--schema"), "{schema}: {log}");
    }
}

#[test]
fn help_and_messages_name_all_stores() {
    for command in ["serve", "run", "ls", "unlock"] {
        let (code, help, _) = run(&[command, "--help"]);
        assert_eq!(code, Some(0));
        assert!(SCHEMES.iter().all(|scheme| help.contains(scheme)), "{command}: {help}");
    }
    for arguments in [
        &["run", "a", "--", "true"][..],
        &["ls"],
        &["unlock", "a"],
        &["store", "check"],
        &["store", "check", "--store", "memory://"],
        &["store", "check", "--store", "http://127.0.0.1:5505"],
        &["store", "check", "--store", "nonsense://"],
        &["store", "check", "--store", "nonsense"],
    ] {
        let (code, _, log) = run(arguments);
        assert_eq!(code, Some(64), "{log}");
        assert!(SCHEMES.iter().all(|scheme| log.contains(scheme)), "{arguments:?}: {log}");
    }
}

/// The master is not told to stop without replicas, which the program warns of once.
#[test]
fn sentinels_are_a_store_of_the_program() {
    let Some(setup) = SentinelSetup::start() else { return };
    let check = run;
    let run = |arguments: &[&str]| binary().env("LOCKER_URL", setup.url()).args(arguments).output().unwrap();
    let listed = format!("{} ls", env!("CARGO_BIN_EXE_locker"));
    let output = run(&["run", "a", "--", "sh", "-c", &listed]);
    let (text, log) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(text.lines().any(|line| line.starts_with("lock ") && line.ends_with(" a")), "{text}");
    // The list is another process, with a locker of its own.
    assert_eq!(log.matches("min-replicas-to-write 0").count(), 2, "{log}");
    for server in setup.servers() {
        let _: String = server.ask("CONFIG", &["SET", "min-replicas-to-write", "1"]);
    }
    let output = run(&["store", "check"]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(!log.contains("min-replicas"), "{log}");
    for (replicas, code) in [(2, 0), (3, 69)] {
        let url = format!("{}?wait_replicas={replicas}&wait_timeout=400ms", setup.url());
        let (ended, _, log) = check(&["store", "check", "--store", &url]);
        assert_eq!(ended, Some(code), "{log}");
        let is_short = code != 0;
        assert_eq!(
            log.contains("wait_replicas is 3, but 2 replicas of the redis master answer"),
            is_short,
            "{log}"
        );
        assert_eq!(log.contains("2 of 3 replicas acknowledged it within 400ms"), is_short, "{log}");
    }
}
