//! Servers and networks that fail.

use super::*;
use futures_util::FutureExt;
use locker_cas::contract::faults::{hear_again, write_again, write_through};
use locker_harness::{Fault, Proxy, eventually};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_are_opened_again() {
    let Some(server) = PostgresServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    let keys = ["a", "b", "c"].map(fresh);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let kill = async {
        for _ in 0..10 {
            server.psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'locker'",
            );
            hear_again(&one, &other).await;
        }
        is_over.store(true, Ordering::Release);
    };
    let writes = keys.each_ref().map(|key| write_through(&one, key, &is_over));
    tokio::join!(kill, futures_util::future::join_all(writes));
    until("gaps", async || one.gaps() > 0 && other.gaps() > 0).await;
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_killed_and_started_again_is_used_again() {
    let Some(mut server) = PostgresServer::with(&["fsync=on"]) else { return };
    let (one, other) = pair(&server.url()).await;
    for stop in [PostgresServer::kill_nine, PostgresServer::stop_immediately, PostgresServer::restart] {
        let keys = ["a", "b", "c", "d"].map(fresh);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let restart = async {
            hear_again(&one, &other).await;
            let (gaps, other_gaps) = (one.gaps(), other.gaps());
            block_in_place(|| {
                stop(&mut server);
                if server.try_psql("SELECT 1").is_err() {
                    server.start_again();
                }
            });
            hear_again(&one, &other).await;
            until("gaps", async || one.gaps() > gaps && other.gaps() > other_gaps).await;
            is_over.store(true, Ordering::Release);
        };
        let writes = keys.each_ref().map(|key| write_through(&one, key, &is_over));
        tokio::join!(restart, futures_util::future::join_all(writes));
    }
    contract::all(&one, &other).await;
}

/// The transaction of a killed process is rolled back by all others, which start anew.
#[tokio::test(flavor = "multi_thread")]
async fn backend_that_is_killed_leaves_the_outcome_unknown() {
    let Some(server) = PostgresServer::start() else { return };
    let party = party(&server.url()).await;
    let key = fresh("killed");
    let version = party.write(write(&key, 0, b"x")).await;
    // Others must not take the row while the statement waits for it.
    server.psql("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
         CREATE TRIGGER wait BEFORE UPDATE ON locker_keys FOR EACH ROW EXECUTE FUNCTION wait()");
    let kill = async {
        let pid = eventually("the waiting statement", || {
            let pid = server.psql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
            pid.parse::<i32>().ok()
        });
        block_in_place(|| server.psql(&format!("SELECT pg_terminate_backend({pid})")))
    };
    let (outcome, _) = tokio::join!(party.backend.exchange(write(&key, version, b"y")), kill);
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error:?}");
    server.psql("DROP TRIGGER wait ON locker_keys");
    assert_eq!(party.read(&key).await, (version, Some(b"x".to_vec())));
    write_again(&party, &key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn network_that_loses_answers_leaves_the_outcome_unknown() {
    let Some(server) = shared_server() else { return };
    let proxy = Proxy::to(server.port());
    let url = format!("postgres://locker@{}/locker?lanes=1", proxy.url().trim_start_matches("redis://"));
    let party = hasty(&url).await;
    let direct = super::party(&server.url()).await;
    for fault in [Fault::DropReplies, Fault::HoldRequests, Fault::Reset] {
        let key = fresh("network");
        let version = party.write(write(&key, 0, b"x")).await;
        // The second update finds its statement prepared: it is one request.
        let version = party.write(write(&key, version, b"x")).await;
        proxy.set(fault.clone());
        let outcome = in_time("an answer", party.backend.exchange(write(&key, version, b"y"))).await;
        let error = outcome.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let is_done = async || direct.read(&key).await.0 != version;
        match fault {
            Fault::DropReplies => until("the write", is_done).await,
            Fault::HoldRequests => assert!(!is_done().await),
            _ => {}
        }
        assert!(!(is_done().await && error.is_certain()), "{fault:?}: {error:?}");
        proxy.set(Fault::None);
        write_again(&party, &key).await;
        hear_again(&direct, &party).await;
    }
    contract::values_are_kept(&party, &direct).await;
}

#[tokio::test]
async fn dropped_tables_are_made_again() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let party = party(&url).await;
    let key = fresh("dropped");
    let first = party.write(write(&key, 0, b"x")).await;
    server.psql(&format!("DROP SCHEMA {schema} CASCADE"));
    let error = party.backend.exchange(write(&key, first, b"y")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error:?}");
    assert!(write_again(&party, &key).await > first);
}

/// Each alone. The store looked for some of them only, and every write failed for ever.
#[tokio::test(flavor = "multi_thread")]
async fn single_table_is_made_again() {
    let Some(server) = &shared_server() else { return };
    let drop_one = async |what: &str| {
        let (url, schema) = in_new_schema(server);
        let party = party(&url).await;
        party.write(write(&fresh("before"), 0, b"x")).await;
        block_in_place(|| server.psql(&format!("DROP {}", what.replace("SCHEMA", &schema))));
        // The function is needed by the next epoch only.
        block_in_place(|| server.psql(&format!("DELETE FROM {schema}.locker_boot")));
        write_again(&party, &fresh("after")).await;
    };
    tokio::join!(
        drop_one("TABLE SCHEMA.locker_keys"),
        drop_one("TABLE SCHEMA.locker_meta"),
        drop_one("FUNCTION SCHEMA.locker_timeline()"),
    );
}

/// The URL names both servers: the store uses the one that may be written.
#[tokio::test(flavor = "multi_thread")]
async fn promoted_standby_is_used() {
    let Some(mut primary) = PostgresServer::start() else { return };
    let standby = primary.standby();
    let url = format!("postgres://locker@127.0.0.1:{},127.0.0.1:{}/locker", standby.port(), primary.port());
    let (one, other) = pair(&url).await;
    let key = fresh("promoted");
    let first = one.write(write(&key, 0, b"x")).await;
    until("the copy", async || {
        let copied = format!("SELECT version FROM locker_keys WHERE key = '{key}'");
        block_in_place(|| standby.try_psql(&copied)) == Ok(first.to_string())
    })
    .await;
    let error = open(&standby.url(), &Opening::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains("standby"), "{error:?}");
    block_in_place(|| {
        primary.kill_nine();
        standby.promote();
    });
    assert!(write_again(&one, &key).await > first);
    assert_eq!(in_time("a reading", other.backend.list(key.as_str(), None, 2)).await.unwrap().len(), 1);
    hear_again(&one, &other).await;
    contract::values_are_kept(&one, &other).await;
}

/// A host whose server is stopped, for example.
#[tokio::test(flavor = "multi_thread")]
async fn host_that_accepts_and_never_answers_is_passed_over() {
    let Some(server) = shared_server() else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (address.port(), silent)).unwrap();
    for hosts in [[silent.0, server.port()], [server.port(), silent.0]] {
        let hosts = hosts.map(|port| format!("127.0.0.1:{port}")).join(",");
        let (one, other) = pair(&format!("postgres://locker@{hosts}/locker")).await;
        contract::values_are_kept(&one, &other).await;
        hear_again(&one, &other).await;
    }
}

/// The first of two writes was lost in a crash: the second one has another version.
#[tokio::test(flavor = "multi_thread")]
async fn version_of_a_lost_write_is_not_used_again() {
    let Some(mut server) = PostgresServer::with(&["fsync=on", "wal_writer_delay=10s"]) else { return };
    let (one, other) = pair(&server.url()).await;
    let key = fresh("twice");
    let held = contract::write(&key, 0, b"held by one");
    let version = one.write(Write { durable: true, ..held }).await;
    let lost = one.write(Write { durable: false, ..contract::write(&key, version, b"free") }).await;
    block_in_place(|| {
        server.kill_nine();
        server.start_again();
    });
    hear_again(&one, &other).await;
    let (seen, _) = other.read(&key).await;
    other.write(Write { durable: true, ..contract::write(&key, seen, b"held by other") }).await;
    let late = Write { durable: true, ..contract::write(&key, lost, b"held by one again") };
    let outcome = in_time("an answer", one.backend.exchange(late)).await.unwrap();
    assert!(matches!(outcome, Outcome::Differs { .. }), "{outcome:?}");
}

/// The release of the first holder was lost in the crash. Its process still remembers that the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn crash_does_not_give_a_lock_to_two() {
    let Some(mut server) = PostgresServer::with(&["fsync=on", "wal_writer_delay=10s"]) else { return };
    let build = async |timeout: u64| {
        let locker = locker_runtime::Locker::builder().url(server.url()).lease(Duration::from_secs(2));
        locker.command_timeout(Duration::from_millis(timeout)).build().await.unwrap()
    };
    // With different options the lockers share no store.
    let (one, other) = (build(1000).await, build(1001).await);
    one.lock("job").acquire().await.unwrap().release().await.unwrap();
    block_in_place(|| {
        server.kill_nine();
        server.start_again();
    });
    let long = other.lock("job").lease(Duration::from_secs(60)).timeout(locker_harness::GENEROUS);
    let held = long.acquire().await.unwrap();
    let error = one.lock("job").timeout(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(held.check().is_ok());
}

/// A firewall that loses its state leaves all connections silent: each had to be found dead by a call of its own, and
/// holds ended meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced_at_once() {
    let Some(server) = shared_server() else { return };
    let proxy = Proxy::to(server.port());
    let url = proxy.url().replace("redis://", "postgres://locker@") + "/locker";
    let party = patient(&url, contract::faults::SILENCE).await;
    contract::faults::silent_connections_are_replaced(&party, || proxy.set_for_open(Fault::DropReplies))
        .await;
}

/// A statement that hangs keeps its connection. Only one connection of each lane is replaced meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_statements_do_not_use_up_the_connections() {
    let Some(server) = PostgresServer::start() else { return };
    let party = hasty(&server.url()).await;
    let version = party.write(contract::write(&fresh("x"), 0, b"x")).await;
    assert!(version > 0);
    let sleeper = Sleeper::start(&server, "LOCK TABLE locker_keys").await;
    let connections = || {
        let count = server.psql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'locker'");
        count.parse::<usize>().unwrap()
    };
    let (started, mut most) = (Instant::now(), 0);
    while started.elapsed() < 4 * ANSWER_LIMIT {
        let writes = (0..8).flat_map(|_| [true, false]).map(|durable| {
            let write = Write { durable, ..contract::write(&fresh("y"), 0, b"y") };
            // As the engine does.
            tokio::time::timeout(Duration::from_secs(1), party.backend.exchange(write))
        });
        let all = futures_util::future::join_all(writes).await;
        assert!(all.iter().all(|answer| !matches!(answer, Ok(Ok(_)))), "the table is locked");
        most = most.max(connections());
    }
    sleeper.end(&server);
    assert!(most <= 2 * 6, "{most} connections");
    party.write(contract::write(&fresh("z"), 0, b"z")).await;
}

/// The server does not notice that nobody waits for the answer of a statement that waits for a lock. The listening
/// connection is opened again every few seconds: after minutes there was none left for anybody.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_statements_end_at_the_server() {
    let Some(server) = PostgresServer::start() else { return };
    let party = party(&server.url()).await;
    let sleeper = Sleeper::start(&server, "LOCK TABLE locker_meta").await;
    let target = &party.backend.driver().target;
    let (text, own) = ("SELECT format, format FROM locker_meta", session::Use::Own(None));
    let waiting =
        format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = '{text}'");
    let waiting = async || block_in_place(|| server.psql(&waiting));
    let session = session::Session::open(target, &target.config, &Arc::default(), own).await.unwrap();
    let asked = tokio::spawn(async move { drop(session.run(text).await) });
    until("a statement that waits", async || waiting().await == "1").await;
    asked.abort();
    until("its end", async || waiting().await == "0").await;
    sleeper.end(&server);
}

/// While a table was locked, every call that was given up stayed in the queue with its value.
#[tokio::test(flavor = "multi_thread")]
async fn given_up_calls_leave_the_queue() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    let store = party(&format!("{}?lanes=1", server.url())).await;
    let mut psql = server.psql_command();
    psql.arg("-c").arg("BEGIN; LOCK TABLE locker_keys; SELECT pg_sleep(600)");
    let mut lock = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let count = |condition: &str| {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE {condition}");
        block_in_place(|| server.psql(&count))
    };
    until("the lock", async || count("wait_event = 'PgSleep'") == "1").await;
    let waiting = store.backend.exchange(write(&fresh("waiting"), 0, b"x"));
    let give_up = async {
        until("a lane that hangs", async || count("wait_event_type = 'Lock'") == "1").await;
        for at in 0..1_000 {
            let key = fresh(&at.to_string());
            let call = store.backend.exchange(write(&key, 0, &vec![7; 100_000]));
            assert!(call.now_or_never().is_none());
            let len = store.backend.queue().queued();
            assert!(len <= 2, "{len} calls after {at}");
        }
    };
    tokio::select! {
        answer = waiting => panic!("{answer:?}"),
        () = give_up => {}
    }
    lock.kill().unwrap();
    lock.wait().unwrap();
}
