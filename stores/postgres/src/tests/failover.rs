//! Grants that a crash or a failover may have lost.

use super::*;
use locker_harness::GENEROUS;
use locker_runtime::{Locker, Quota};
use std::{process::Command, time::Instant};

const LEASE: Duration = Duration::from_secs(2);

/// Makes tables in which the longest hold is 3 s, so that quiet times are short.
fn make_tables(server: &PostgresServer) {
    server.psql(&schema_sql("public"));
    server.psql("UPDATE locker_meta SET longest = 3000000");
}

/// Lockers with different options share no store.
async fn locker(url: &str, timeout: u64) -> Locker {
    let builder = Locker::builder().url(url).lease(LEASE).timeout(GENEROUS);
    builder.command_timeout(Duration::from_millis(timeout)).build().await.unwrap()
}

fn both(standby: &PostgresServer, primary: &PostgresServer) -> String {
    format!("postgres://locker@127.0.0.1:{},127.0.0.1:{}/locker", standby.port(), primary.port())
}

fn number(server: &PostgresServer, sql: &str) -> u64 {
    block_in_place(|| server.psql(sql)).parse().unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn quiet_until(server: &PostgresServer) -> u64 {
    number(server, "SELECT quiet_until FROM locker_meta")
}

fn epoch_id(server: &PostgresServer) -> String {
    block_in_place(|| server.psql("SELECT id FROM locker_boot"))
}

/// Waits until the standby has all writes of the primary.
async fn in_step(primary: &PostgresServer, standby: &PostgresServer) {
    let end = block_in_place(|| primary.psql("SELECT pg_current_wal_flush_lsn()"));
    let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
    until("the copy", async || block_in_place(|| standby.psql(&has_all)) == "t").await;
}

/// Cuts the standby off, so that it misses what comes.
async fn cut(standby: &PostgresServer) {
    block_in_place(|| {
        standby.psql("ALTER SYSTEM SET primary_conninfo = ''");
        standby.psql("SELECT pg_reload_conf()");
    });
    let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
    until("the end of the replication", async || block_in_place(|| standby.psql(receivers)) == "0").await;
}

/// Asks without waiting until the store answers. Returns the error.
async fn refusal(locker: &Locker, name: &str) -> Error {
    let started = Instant::now();
    loop {
        let answer = in_time("an answer", locker.lock(name).try_acquire()).await;
        assert!(!matches!(answer, Ok(Some(_))), "granted");
        // The connections of a killed server end a moment later.
        let Err(error) = answer else { continue };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        if error.message().contains("nothing is granted for another") {
            assert!(
                error.is_certain() && error.retry_after().is_some_and(|after| after < 6 * LEASE),
                "{error:?}"
            );
            return error;
        }
        assert!(started.elapsed() < GENEROUS, "{error:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A fence is the time of its grant, as far as it was known: up to the spread of the clock too low.
fn granted_after(guard: &locker_runtime::Guard, time: u64) {
    const SPREAD: u64 = 500_000;
    assert!(guard.fence() + SPREAD >= time, "granted {} us too early", time - guard.fence());
}

/// The promoted server does not have the grant. Nobody gets the lock before it is over.
#[tokio::test(flavor = "multi_thread")]
async fn lagging_standby_that_is_promoted_grants_nothing_twice() {
    let Some(mut primary) = PostgresServer::start() else { return };
    make_tables(&primary);
    let standby = primary.standby();
    let url = both(&standby, &primary);
    let (one, other) = (locker(&url, 1000).await, locker(&url, 1001).await);
    // Both processes know that the lock is free.
    for locker in [&one, &other] {
        locker.lock("job").acquire().await.unwrap().release().await.unwrap();
    }
    in_step(&primary, &standby).await;
    cut(&standby).await;
    let held = one.lock("job").acquire().await.unwrap();
    assert_eq!(quiet_until(&primary), 0);
    let granted = Instant::now();
    block_in_place(|| {
        primary.kill_nine();
        standby.promote();
    });
    let grant = format!("SELECT count(*) FROM locker_keys WHERE fence = {}", held.fence());
    assert_eq!(number(&standby, &grant), 0, "the standby must lack the grant");
    let error = refusal(&other, "job").await;
    assert_eq!(error.key(), Some("lock:job"));
    let next = other.lock("job").acquire().await.unwrap();
    assert!(!held.is_held(), "two hold");
    assert!(granted.elapsed() > LEASE, "{:?}", granted.elapsed());
    assert!(next.fence() > held.fence());
    granted_after(&next, quiet_until(&standby));
    assert!(quiet_until(&standby) > held.fence() + 3_000_000);
    held.lost().await;
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
    assert_eq!(number(&standby, "SELECT longest FROM locker_meta"), 3_000_000);
}

/// The promoted server has the hold: it goes on. Its release grants nobody, and its waiter is served by itself later.
#[tokio::test(flavor = "multi_thread")]
async fn holders_go_on_after_a_failover_and_waiters_are_served_later() {
    let Some(mut primary) = PostgresServer::start() else { return };
    make_tables(&primary);
    let standby = primary.standby();
    let url = both(&standby, &primary);
    let (one, other) = (locker(&url, 1000).await, locker(&url, 1001).await);
    // Long enough for a failover on a slow machine.
    let held = one.lock("job").lease(4 * LEASE).acquire().await.unwrap();
    one.counter("count").add(1).await.unwrap();
    in_step(&primary, &standby).await;
    block_in_place(|| {
        primary.kill_nine();
        standby.promote();
    });
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { other.lock("job").acquire().await.unwrap() }
    });
    refusal(&other, "another job").await;
    let waiting = async || {
        one.admin()
            .inspect(&Key::new("lock:job"))
            .await
            .is_ok_and(|found| found.is_some_and(|found| found.waiting == 1))
    };
    until("the waiter's place", waiting).await;
    assert_eq!(one.counter("count").add(1).await.unwrap(), 2);
    let quota = Quota::gcra(1, Duration::from_secs(600));
    assert!(one.rate_limiter("limit", quota).try_acquire().await.unwrap().is_some());
    assert!(other.rate_limiter("limit", quota).try_acquire().await.unwrap().is_none());
    assert!(held.is_held());
    held.release().await.unwrap();
    let next = in_time("the waiter", waiter).await.unwrap();
    granted_after(&next, quiet_until(&standby));
    drop(other.lock("another job").acquire().await.unwrap());
}

/// Kills the server process of a connection, after which PostgreSQL starts all of them again.
async fn kill_a_backend(server: &PostgresServer, parties: &[&Party<Postgres>]) {
    let before = epoch_id(server);
    let pid = block_in_place(|| {
        server.psql("SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'locker'")
    });
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    until("another epoch", async || {
        let id = block_in_place(|| server.try_psql("SELECT id FROM locker_boot"));
        let id = id.ok().and_then(|id| id.parse::<i64>().ok());
        id.is_some_and(|id| {
            id.to_string() != before && parties.iter().all(|party| party.backend.epoch().id == id)
        })
    })
    .await;
}

/// Opens a store, writes, kills a server process, and returns how long nothing is granted then.
async fn quiet_after_a_crash(server: &PostgresServer, url: &str) -> Option<Duration> {
    let party = party(url).await;
    party.write(write(&fresh("crash"), 0, b"x")).await;
    kill_a_backend(server, &[&party]).await;
    let quiet = party.backend.epoch().quiet;
    until("a write", async || {
        let outcome = party.backend.exchange(write(&fresh("crash"), 0, b"x")).await;
        matches!(outcome, Ok(Outcome::Matched { .. }))
    })
    .await;
    quiet
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_is_quiet_only_if_writes_can_be_lost() {
    let Some(mut server) = PostgresServer::with(&["fsync=on"]) else { return };
    make_tables(&server);
    let url = server.url();
    assert_eq!(quiet_after_a_crash(&server, &url).await, None);
    let restarted = epoch_id(&server);
    block_in_place(|| server.restart());
    assert_eq!(party(&url).await.backend.epoch().quiet, None);
    assert_eq!(epoch_id(&server), restarted, "a clean restart loses nothing");

    assert_eq!(server.psql("SELECT quick FROM locker_meta"), "f");
    let quick = format!("{url}?durable=false");
    let quiet = quiet_after_a_crash(&server, &quick).await.expect("writes may have been lost");
    assert!(quiet > Duration::from_secs(1) && quiet <= Duration::from_secs(4), "{quiet:?}");
    assert_eq!(server.psql("SELECT quick FROM locker_meta"), "t");
    let restarted = epoch_id(&server);
    block_in_place(|| server.restart());
    party(&quick).await;
    assert_eq!(epoch_id(&server), restarted, "a clean restart loses nothing");
    // Some process may have written without waiting for the disk.
    assert!(quiet_after_a_crash(&server, &url).await.is_some());
}

/// What the row said of losses is gone with it. Processes that are there must learn of it, too.
#[tokio::test(flavor = "multi_thread")]
async fn lost_row_of_the_store_is_a_loss() {
    let Some(server) = &shared_server() else { return };
    let lose = async |tables: &[&str]| {
        let (url, schema) = in_new_schema(server);
        let one = party(&url).await;
        one.write(write(&fresh("kept"), 0, b"x")).await;
        let emptied = tables
            .iter()
            .map(|table| format!("DELETE FROM {schema}.locker_{table}"))
            .collect::<Vec<_>>()
            .join(";");
        assert_eq!(one.backend.epoch().quiet, None);
        block_in_place(|| server.psql(&emptied));
        for party in [party(&url).await, one] {
            until("a quiet time", async || {
                contract::faults::write_again(&party, &fresh("after")).await;
                party.backend.epoch().quiet.is_some()
            })
            .await;
        }
    };
    tokio::join!(
        lose(&["meta"]),
        lose(&["meta", "boot"]),
        lose(&["keys", "meta"]),
        lose(&["keys", "meta", "boot"])
    );
}

/// By a role with the rights that are granted, while a user's transaction holds a row.
#[tokio::test(flavor = "multi_thread")]
async fn lost_row_needs_no_other_rights_or_locks() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    block_in_place(|| {
        server.psql(&schema_sql("public"));
        server.psql(&format!("CREATE ROLE modest LOGIN; {}", grants_sql("public", "modest")));
    });
    let url = server.url().replace("locker@", "modest@");
    let one = party(&url).await;
    one.write(write(&fresh("held"), 0, b"x")).await;
    let sleeper = Sleeper::start(&server, "SELECT FROM locker_keys FOR SHARE").await;
    block_in_place(|| server.psql("DELETE FROM locker_meta"));
    for party in [party(&url).await, one] {
        until("a quiet time", async || {
            contract::faults::write_again(&party, &fresh("after")).await;
            party.backend.epoch().quiet.is_some()
        })
        .await;
    }
    sleeper.end(&server);
}

/// It was copied with the tables, or came with those of a publisher.
#[tokio::test(flavor = "multi_thread")]
async fn row_of_another_timeline_has_no_epoch() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let one = party(&url).await;
    block_in_place(|| {
        server.psql(&format!("UPDATE {schema}.locker_meta SET timeline = '1/00000007', quiet_until = 0"))
    });
    let other = party(&url).await;
    assert!(other.backend.epoch().quiet.is_some());
    until("the same epoch", async || {
        contract::faults::write_again(&one, &fresh("after")).await;
        one.backend.epoch().id == other.backend.epoch().id
    })
    .await;
    assert!(one.backend.epoch().quiet.is_some());
}

/// The clock of the server was a day ahead when the quiet time began.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_time_far_ahead_is_cut() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    drop(party(&url).await);
    block_in_place(|| {
        server.psql(&format!(
            "UPDATE {schema}.locker_meta SET quiet_until = {} + 86400000000; DELETE FROM {schema}.locker_boot",
            sql::NOW
        ))
    });
    assert!(party(&url).await.backend.epoch().quiet.is_some());
    let left = format!("SELECT quiet_until - {} < 13000000 FROM {schema}.locker_meta", sql::NOW);
    assert_eq!(block_in_place(|| server.psql(&left)), "t");
}

/// A longer hold than all before needs the row that says so, and does not wait for it long.
#[tokio::test(flavor = "multi_thread")]
async fn longer_hold_needs_the_row() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    let party = party(&server.url()).await;
    let key = fresh("long");
    let version = party.write(write(&key, 0, b"x")).await;
    let epoch = Some(party.backend.epoch().id);
    let long = || Write { holds: Duration::from_secs(60), epoch, ..write(&key, version, b"y") };
    let sleeper = Sleeper::start(&server, "UPDATE locker_meta SET swept = swept").await;
    let error = in_time("an error", party.backend.exchange(long())).await.unwrap_err();
    assert!(error.message().contains("lock timeout"), "{error:?}");
    sleeper.end(&server);
    block_in_place(|| server.psql("DELETE FROM locker_meta"));
    let outcome = in_time("an answer", party.backend.exchange(long())).await;
    assert!(!matches!(outcome, Ok(Outcome::Matched { .. })), "{outcome:?}");
}

/// A crash of the promoted server does not end its quiet time.
#[tokio::test(flavor = "multi_thread")]
async fn crash_in_a_quiet_time_does_not_end_it() {
    let Some(mut primary) = PostgresServer::start() else { return };
    primary.psql(&schema_sql("public"));
    let standby = primary.standby();
    let party = party(&both(&standby, &primary)).await;
    let first = party.backend.epoch();
    assert_eq!(first.quiet, None);
    in_step(&primary, &standby).await;
    block_in_place(|| {
        primary.kill_nine();
        standby.promote();
    });
    until("the epoch", async || party.backend.epoch().id != first.id).await;
    let (second, until) = (party.backend.epoch(), quiet_until(&standby));
    assert!(second.quiet.is_some());
    kill_a_backend(&standby, &[&party]).await;
    let third = party.backend.epoch();
    assert!(third.quiet.is_some() && third.id != second.id);
    assert_eq!(quiet_until(&standby), until);
}

/// The only commit of the grant was lost in the crash.
#[tokio::test(flavor = "multi_thread")]
async fn lost_grant_is_not_given_to_another_without_durable_writes() {
    let Some(mut server) = PostgresServer::with(&["fsync=on", "wal_writer_delay=10s"]) else { return };
    make_tables(&server);
    let url = format!("{}?durable=false", server.url());
    let (one, other) = (locker(&url, 1000).await, locker(&url, 1001).await);
    let held = one.lock("job").acquire().await.unwrap();
    block_in_place(|| {
        server.kill_nine();
        server.start_again();
    });
    let grant = format!("SELECT count(*) FROM locker_keys WHERE fence = {}", held.fence());
    assert_eq!(number(&server, &grant), 0, "the crash must lose the grant");
    refusal(&other, "job").await;
    let next = other.lock("job").acquire().await.unwrap();
    assert!(!held.is_held(), "two hold");
    granted_after(&next, quiet_until(&server));
    assert!(quiet_until(&server) > held.fence() + 3_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn longer_lease_is_recorded_before_it_is_granted() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let locker = Locker::connect(&url).await.unwrap();
    let longest = || number(&server, &format!("SELECT longest FROM {schema}.locker_meta"));
    drop(locker.lock("a").acquire().await.unwrap());
    drop(locker.semaphore("b", 2).acquire().await.unwrap());
    assert_eq!(longest(), 11_000_000, "the default lease is 10 s");
    let in_meta = format!(
        "CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'not now'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE OF longest ON {schema}.locker_meta
             FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"
    );
    block_in_place(|| server.psql(&in_meta));
    let minute = || locker.lock("long").lease(Duration::from_secs(60));
    let error = minute().try_acquire().await.unwrap_err();
    assert!(error.message().contains("not now") && error.is_certain(), "{error:?}");
    let keys = format!("SELECT count(*) FROM {schema}.locker_keys WHERE key = 'lock:long'");
    assert_eq!(number(&server, &keys), 0, "it is not granted");
    block_in_place(|| server.psql(&format!("DROP TRIGGER refuse ON {schema}.locker_meta")));
    drop(minute().acquire().await.unwrap());
    assert_eq!(longest(), 67_000_000);
    drop(minute().acquire().await.unwrap());
    drop(locker.semaphore("c", 1).lease(Duration::from_secs(50)).acquire().await.unwrap());
    assert_eq!(longest(), 67_000_000);
    drop(locker.lock("day").lease(Duration::from_secs(24 * 3600)).acquire().await.unwrap());
    assert_eq!(longest(), 3_600_000_000, "an hour is the most");
    drop(locker.lock("day").lease(Duration::from_secs(25 * 3600)).acquire().await.unwrap());
    assert_eq!(longest(), 3_600_000_000);
}

/// All statements that write name the epoch, also those for many keys.
#[tokio::test(flavor = "multi_thread")]
async fn writes_of_another_epoch_do_nothing() {
    let Some(server) = shared_server() else { return };
    for parameter in ["lanes=1", "lanes=1&durable=false"] {
        let (url, schema) = in_new_schema(&server);
        let party = party(&format!("{url}&{parameter}")).await;
        let keys: Vec<_> = (0..20).map(|at| fresh(&at.to_string())).collect();
        let mut versions = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            versions.push(if at % 2 == 0 { party.write(write(key, 0, b"x")).await } else { 0 });
        }
        let id = party.backend.epoch().id;
        let to_itself = vec![Message { to: party.backend.inbox(), text: "told".into() }];
        for (durable, messages) in
            [(true, vec![]), (false, vec![]), (true, to_itself.clone()), (false, to_itself)]
        {
            let late = |at: usize| Write {
                epoch: Some(id + 1),
                durable,
                messages: messages.clone(),
                ..write(&keys[at], versions[at], b"late")
            };
            let mut outcomes = vec![party.exchange(late(0)).await, party.exchange(late(1)).await];
            outcomes.extend(futures_util::future::join_all((2..20).map(|at| party.exchange(late(at)))).await);
            for (outcome, version) in outcomes.into_iter().zip(&versions) {
                let value = (*version != 0).then(|| b"x".to_vec());
                assert_eq!(outcome, Outcome::Differs { version: *version, value });
            }
        }
        assert_eq!(party.texts(), Vec::<String>::new());
        let rows = format!("SELECT count(*) FROM {schema}.locker_keys WHERE state = 'late'");
        assert_eq!(number(&server, &rows), 0);
        for (at, key) in keys.iter().enumerate() {
            party.write(Write { epoch: Some(id), ..write(key, versions[at], b"y") }).await;
        }
    }
}

/// An administrator may empty the table at any time. The row is made again, and nothing may have been lost.
#[tokio::test(flavor = "multi_thread")]
async fn missing_epoch_is_made_again() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let locker = Locker::connect(&url).await.unwrap();
    locker.lock("a").acquire().await.unwrap().release().await.unwrap();
    block_in_place(|| server.psql(&format!("DELETE FROM {schema}.locker_boot")));
    in_time("a grant", locker.lock("a").acquire()).await.unwrap().release().await.unwrap();
    // As after the restoration of a copy.
    block_in_place(|| {
        server.psql(&format!(
            "UPDATE {schema}.locker_meta SET timeline = NULL, longest = 1000000; DELETE FROM {schema}.locker_boot"
        ))
    });
    let error = in_time("an answer", locker.lock("a").try_acquire()).await.unwrap_err();
    assert!(error.message().contains("nothing is granted for another"), "{error:?}");
    drop(in_time("a grant", locker.lock("a").timeout(GENEROUS).acquire()).await.unwrap());
}
