//! Servers and networks that fail.

use super::*;
use contract::faults::{hear_again, write_again, write_through};
use locker_harness::{Fault, Proxy};
use std::{
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
};

fn through(proxy: &Proxy) -> String {
    format!("mysql://locker@127.0.0.1:{}/locker", proxy.port())
}

/// Kills all connections but that of the caller.
fn kill_all(server: &MysqlServer) {
    let connections = server
        .sql("SELECT id FROM information_schema.processlist WHERE user = 'locker' AND id <> CONNECTION_ID()");
    for id in connections.lines() {
        // It may have ended by itself.
        drop(server.try_sql(&format!("KILL {id}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_are_opened_again() {
    let Some(server) = MysqlServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    let keys = ["a", "b", "c"].map(fresh);
    let is_over = AtomicBool::new(false);
    let kill = async {
        for _ in 0..10 {
            block_in_place(|| kill_all(&server));
            hear_again(&one, &other).await;
        }
        is_over.store(true, Ordering::Release);
    };
    let writes = keys.each_ref().map(|key| write_through(&one, key, &is_over));
    tokio::join!(kill, join_all(writes));
    until("gaps", async || one.gaps() > 0 && other.gaps() > 0).await;
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_killed_and_started_again_is_used_again() {
    let Some(mut server) = MysqlServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    for _ in 0..3 {
        let keys = ["a", "b", "c", "d"].map(fresh);
        let is_over = AtomicBool::new(false);
        let restart = async {
            hear_again(&one, &other).await;
            let (gaps, other_gaps) = (one.gaps(), other.gaps());
            block_in_place(|| server.restart());
            hear_again(&one, &other).await;
            until("gaps", async || one.gaps() > gaps && other.gaps() > other_gaps).await;
            is_over.store(true, Ordering::Release);
        };
        let writes = keys.each_ref().map(|key| write_through(&one, key, &is_over));
        tokio::join!(restart, join_all(writes));
    }
    contract::all(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn network_that_loses_answers_leaves_the_outcome_unknown() {
    let Some(server) = shared_server() else { return };
    let proxy = Proxy::to(server.port());
    let party = hasty(&format!("{}?lanes=1", through(&proxy))).await;
    let direct = super::party(&server.url()).await;
    let to = Message { to: direct.backend.inbox(), text: "x".into() };
    for messages in [Vec::new(), vec![to]] {
        for fault in [Fault::DropReplies, Fault::HoldRequests, Fault::ExecuteAndReset, Fault::Reset] {
            // A connection may end late by the fault before. Then nothing is sent, which is certain.
            while !loses(&party, &direct, &proxy, &messages, &fault).await {}
        }
    }
    contract::values_are_kept(&party, &direct).await;
}

/// Writes while the network has a fault. Returns whether the outcome was that of the fault.
async fn loses(
    party: &Party<Mysql>,
    direct: &Party<Mysql>,
    proxy: &Proxy,
    messages: &[Message],
    fault: &Fault,
) -> bool {
    let key = fresh("network");
    let version = write_again(party, &key).await;
    proxy.set(fault.clone());
    let lost = Write { messages: messages.to_vec(), ..write(&key, version, b"y") };
    let outcome = in_time("an answer", party.backend.exchange(lost)).await;
    let is_done = async || direct.read(&key).await.0 != version;
    let is_seen = match outcome {
        // Another connection was reset.
        Ok(outcome) => {
            assert!(*fault == Fault::ExecuteAndReset && is_done().await, "{fault:?}: {outcome:?}");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            let is_done = is_done().await;
            assert!(!(is_done && error.is_certain()), "{fault:?}: {error:?}");
            match fault {
                Fault::DropReplies | Fault::ExecuteAndReset => is_done,
                Fault::HoldRequests => !error.is_certain() && !is_done,
                _ => true,
            }
        }
    };
    proxy.set(Fault::None);
    write_again(party, &key).await;
    hear_again(direct, party).await;
    is_seen
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_made_again() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let party = party(&url).await;
    let key = fresh("dropped");
    let first = party.write(write(&key, 0, b"x")).await;
    block_in_place(|| server.sql(&format!("DROP DATABASE {database}")));
    // Until a connection is opened again, it is a table that is missing.
    let error = party.backend.exchange(write(&key, first, b"y")).await.unwrap_err();
    assert!(error.is_certain(), "{error:?}");
    block_in_place(|| server.sql(&format!("CREATE DATABASE {database}")));
    // A connection that opened in between found no database: calls are `Misused` until the next connection.
    until("the tables", async || {
        let opened = party.backend.exchange(Write::look(locker_core::key::Key::new("any"))).await;
        !opened.is_err_and(|error| error.kind() == ErrorKind::Misused)
    })
    .await;
    assert!(write_again(&party, &key).await > first);
}

/// A host whose server is stopped, for example.
#[tokio::test(flavor = "multi_thread")]
async fn host_that_accepts_and_never_answers_is_passed_over() {
    let Some(server) = shared_server() else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (address.port(), silent)).unwrap();
    for hosts in [[silent.0, server.port()], [server.port(), silent.0]] {
        let hosts = hosts.map(|port| format!("127.0.0.1:{port}")).join(",");
        let (one, other) = pair(&format!("mysql://locker@{hosts}/locker")).await;
        contract::values_are_kept(&one, &other).await;
        hear_again(&one, &other).await;
    }
}

/// A transaction of a user that has locked a row delays that key, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn row_lock_of_a_user_delays_one_key() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let party = party(&format!("{url}?lanes=1")).await;
    let (locked, free) = (fresh("locked"), fresh("free"));
    let version = party.write(write(&locked, 0, b"x")).await;
    let mut client = server.client(&database);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    // A statement that sleeps would stop the whole server when it is killed.
    let select = format!(
        "BEGIN; SELECT version FROM locker_keys WHERE `key`='{locked}' FOR UPDATE; SELECT GET_LOCK('{database}',0);\n"
    );
    std::io::Write::write_all(&mut input, select.as_bytes()).unwrap();
    let is_locked = format!("SELECT IS_USED_LOCK('{database}') IS NOT NULL");
    until("the lock", async || block_in_place(|| server.sql(&is_locked)) == "1").await;
    let outcome = party.exchange(write(&locked, version, b"y")).await;
    assert_eq!(outcome, Outcome::Differs { version, value: Some(b"x".to_vec()) });
    // Together with it, too.
    let (waiting, other) = (write(&locked, version, b"y"), write(&free, 0, b"x"));
    let (lost, written) = tokio::join!(party.exchange(waiting), party.exchange(other));
    assert!(matches!(lost, Outcome::Differs { .. }) && matches!(written, Outcome::Matched { .. }));
    client.kill().unwrap();
    client.wait().unwrap();
    party.write(write(&locked, version, b"y")).await;
}

/// A store that is opened without waiting reports the outage with each call, and works once the server is there.
#[tokio::test(flavor = "multi_thread")]
async fn store_may_be_opened_before_its_server() {
    let Some(mut server) = MysqlServer::start() else { return };
    server.kill_nine();
    let opening = Opening { lazy: true, ..Opening::default() };
    let party = Party::new(open(&server.url(), &opening).await.unwrap());
    let key = fresh("lazy");
    let error = in_time("an error", party.backend.exchange(comparison(&key, 0))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error:?}");
    block_in_place(|| server.start_again());
    until("the store", async || party.backend.exchange(comparison(&key, 0)).await.is_ok()).await;
    party.write(write(&key, 0, b"x")).await;
}

/// A firewall that loses its state leaves all connections silent. The listener notices it, or a call.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced_at_once() {
    let Some(server) = shared_server() else { return };
    let proxy = Proxy::to(server.port());
    let (_, database) = in_new_database(&server);
    let url = format!("mysql://locker@127.0.0.1:{}/{database}", proxy.port());
    let party = patient(&url, contract::faults::SILENCE).await;
    contract::faults::silent_connections_are_replaced(&party, || proxy.set_for_open(Fault::DropReplies))
        .await;
}

/// The library tells an error with the answer after the one that it belongs to: a commit that failed counted as done.
#[tokio::test(flavor = "multi_thread")]
async fn statement_that_fails_is_not_among_those_that_were_done() {
    let Some(server) = shared_server() else { return };
    let target = url::read(&server.url(), &Opening::default()).unwrap();
    let losses = tokio::sync::watch::channel(0);
    let session = session::Session::open(&target, session::Use::Lane(GENEROUS), losses.1);
    let session = session.await.unwrap();
    for (statements, expected) in [
        (&["BLABLA", "DO 1"][..], 0),
        (&["DO 1", "BLABLA", "DO 1"], 1),
        (&["BEGIN", "SELECT 1 FROM DUAL WHERE 0", "BLABLA", "COMMIT"], 2),
        (&["SELECT 1", "SELECT 1 UNION SELECT 2", "BLABLA"], 2),
        (&["DO 1", "SELECT 1", "COMMIT"], 3),
    ] {
        let statements: Vec<String> = statements.iter().map(ToString::to_string).collect();
        let answers = session.run(&statements).await;
        assert_eq!(answers.done.len(), expected, "{statements:?}");
        assert_eq!(answers.error.is_none(), expected == statements.len(), "{statements:?}");
        session.run(&["ROLLBACK".into()]).await;
    }
}

/// What an administrator has set for all connections.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_server_do_not_matter() {
    let settings = ["--sql-mode=ANSI,NO_BACKSLASH_ESCAPES", "--completion-type=CHAIN", "--autocommit=0"];
    let Some(server) = MysqlServer::with(&settings) else { return };
    block_in_place(|| server.sql("SET GLOBAL sql_select_limit=1; SET GLOBAL innodb_lock_wait_timeout=50"));
    block_in_place(|| server.sql("ALTER DATABASE locker CHARACTER SET utf16"));
    let (one, other) = pair(&server.url()).await;
    assert_eq!(other.backend.epoch().quiet, None);
    contract::all(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_table_is_made_again() {
    let Some(server) = shared_server() else { return };
    for table in ["boot", "mail"] {
        let (url, database) = in_new_database(&server);
        let party = party(&url).await;
        block_in_place(|| server.sql(&format!("DROP TABLE {database}.locker_{table}")));
        write_again(&party, &fresh(table)).await;
        until("messages", async || {
            let message = Message { to: party.backend.inbox(), text: "again".into() };
            let _ = party.backend.send(vec![message]).await;
            party.texts().contains(&"again".to_owned())
        })
        .await;
    }
}
