//! Crashes and failovers, which may lose what was answered.

use super::*;
use contract::faults::{hear_again, write_again};
use locker_runtime::Locker;

const LEASE: Duration = Duration::from_secs(2);

async fn locker(url: &str, timeout: u64) -> Locker {
    // With different options the lockers share no store.
    let builder = Locker::builder().url(url).lease(LEASE);
    builder.command_timeout(Duration::from_millis(timeout)).build().await.unwrap()
}

/// Whether nothing is granted for a while.
fn is_quiet(party: &Party<Mysql>) -> bool {
    party.backend.epoch().quiet.is_some()
}

/// Waits until the process knows of a quiet time.
async fn until_quiet(party: &Party<Mysql>) {
    until("a quiet time", async || {
        write_again(party, &fresh("after")).await;
        is_quiet(party)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_of_a_durable_server_needs_no_quiet_time() {
    let Some(mut server) = MysqlServer::start() else { return };
    let (one, key) = (party(&server.url()).await, fresh("kept"));
    let version = one.write(write(&key, 0, b"x")).await;
    let epoch = one.backend.epoch().id;
    block_in_place(|| server.restart());
    until("another epoch", async || {
        write_again(&one, &fresh("after")).await;
        one.backend.epoch().id != epoch
    })
    .await;
    assert!(!is_quiet(&one));
    assert_eq!(one.read(&key).await, (version, Some(b"x".to_vec())));
}

/// A process that found the tables without their row took that for a loss.
#[tokio::test(flavor = "multi_thread")]
async fn first_processes_find_no_loss() {
    let Some(server) = shared_server() else { return };
    for _ in 0..5 {
        let (url, database) = in_new_database(&server);
        let sql = |statements: &str| block_in_place(|| server.sql(&format!("USE {database}; {statements}")));
        let parties = join_all((0..6).map(|_| party(&url))).await;
        assert!(!parties.iter().any(is_quiet));
        assert_eq!(sql("SELECT COUNT(*), MAX(quiet_until) FROM locker_meta"), "1\t0");
    }
}

/// What the row said of losses is gone with it. Processes that are there must learn of it, too.
#[tokio::test(flavor = "multi_thread")]
async fn lost_row_of_the_store_is_a_loss() {
    let Some(server) = &shared_server() else { return };
    let lose = async |how: &str| {
        let (url, database) = in_new_database(server);
        let one = party(&url).await;
        one.write(write(&fresh("kept"), 0, b"x")).await;
        assert!(!is_quiet(&one));
        block_in_place(|| server.sql(&format!("USE {database}; {how}")));
        for party in [party(&url).await, one] {
            until_quiet(&party).await;
        }
    };
    let ways = [
        "DELETE FROM locker_meta",
        "DELETE FROM locker_meta; DELETE FROM locker_boot",
        "DROP TABLE locker_meta",
        "DROP TABLE locker_meta, locker_boot",
    ];
    join_all(ways.map(lose)).await;
}

/// The setting is not in the server's file. The crash loses the first grants, but not that the tables were made.
#[tokio::test(flavor = "multi_thread")]
async fn lossy_first_grants_need_a_quiet_time() {
    let Some(mut server) = MysqlServer::start() else { return };
    for has_tables in [false, true] {
        if has_tables {
            block_in_place(|| server.sql("UPDATE locker_meta SET quick=0, quiet_until=0"));
        }
        block_in_place(|| server.sql("SET GLOBAL innodb_flush_log_at_trx_commit=0"));
        let one = party(&server.url()).await;
        write_again(&one, &fresh("first")).await;
        assert!(!is_quiet(&one));
        block_in_place(|| server.restart());
        until_quiet(&one).await;
    }
}

/// A process that waits for the disk was killed. The next process that opens the store, or that grants for as long,
/// waits in its place.
#[tokio::test(flavor = "multi_thread")]
async fn row_that_is_not_on_the_disk_is_waited_for() {
    let Some(server) = MysqlServer::with(&["--innodb-flush-log-at-trx-commit=0"]) else { return };
    let one = party(&server.url()).await;
    let is_written = async || block_in_place(|| server.sql("SELECT quick FROM locker_meta")) == "1";
    // It has raised the longest hold.
    block_in_place(|| server.sql("UPDATE locker_meta SET quick=2, longest=66000000"));
    // With a value comes what the row says.
    let key = fresh("short");
    let version = one.write(write(&key, 0, b"x")).await;
    assert_eq!(one.read(&key).await.0, version);
    one.write(Write { holds: Duration::from_secs(60), ..write(&fresh("long"), 0, b"x") }).await;
    assert!(is_written().await);
    block_in_place(|| server.sql("UPDATE locker_meta SET quick=2"));
    drop(party(&server.url()).await);
    assert!(is_written().await);
}

/// A replica that was promoted before it had all of its primary gets what that says of quiet times afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn row_of_another_server_has_no_epoch() {
    let Some(server) = shared_server() else { return };
    for (name, is_loss) in [("another", true), ("new", false)] {
        let (url, database) = in_new_database(&server);
        let sql = |statements: &str| block_in_place(|| server.sql(&format!("USE {database}; {statements}")));
        let one = party(&url).await;
        let epoch = one.backend.epoch().id;
        sql(&format!("UPDATE locker_meta SET server='{name}', quiet_until=0"));
        until("another epoch", async || {
            write_again(&one, &fresh("after")).await;
            one.backend.epoch().id != epoch
        })
        .await;
        assert_eq!(is_quiet(&one), is_loss, "{name}");
        assert_eq!(sql("SELECT COUNT(*) FROM locker_meta m JOIN locker_boot b ON b.server=m.server"), "1");
    }
}

/// A longer hold than all before needs the row that says so.
#[tokio::test(flavor = "multi_thread")]
async fn longer_hold_needs_the_row() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let (party, key) = (party(&url).await, fresh("long"));
    let version = party.write(write(&key, 0, b"x")).await;
    let epoch = Some(party.backend.epoch().id);
    block_in_place(|| server.sql(&format!("DELETE FROM {database}.locker_meta")));
    let long = Write { holds: Duration::from_secs(60), epoch, ..write(&key, version, b"y") };
    let outcome = in_time("an answer", party.backend.exchange(long)).await;
    assert!(!matches!(outcome, Ok(Outcome::Matched { .. })), "{outcome:?}");
}

/// The clock of the server was a day ahead when the quiet time began.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_time_far_ahead_is_cut() {
    let Some(mut server) = MysqlServer::start() else { return };
    drop(party(&server.url()).await);
    block_in_place(|| {
        server.sql(&format!("UPDATE locker_meta SET quiet_until={}+86400000000", sql::NOW));
        server.restart();
    });
    assert!(is_quiet(&party(&server.url()).await));
    let left = format!("SELECT quiet_until-{} < 13000000 FROM locker_meta", sql::NOW);
    assert_eq!(block_in_place(|| server.sql(&left)), "1");
}

/// On a slow disk.
#[tokio::test(flavor = "multi_thread")]
async fn making_of_the_tables_is_waited_for() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    // Another process makes them, and has got to the last.
    drop(party(&url).await);
    block_in_place(|| server.sql(&format!("DROP TABLE {database}.locker_meta")));
    let script = schema_sql();
    let make = script.split(";\n").find(|sql| sql.contains("locker_meta (")).unwrap();
    let mut maker = block_in_place(|| {
        server.client(&database).args(["-e", &format!("{make} FROM DUAL WHERE SLEEP(3)=0")]).spawn().unwrap()
    });
    let is_making = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db='{database}' AND info LIKE 'CREATE%'"
    );
    until("the table", async || block_in_place(|| server.sql(&is_making)) == "1").await;
    assert!(!is_quiet(&party(&url).await));
    assert!(block_in_place(|| maker.wait().unwrap().success()));
}

/// The row of the epoch of a lossy server: without it, writes may have been lost.
#[tokio::test(flavor = "multi_thread")]
async fn lost_epoch_of_a_lossy_server_is_a_loss() {
    let Some(server) = MysqlServer::with(&["--innodb-flush-log-at-trx-commit=0"]) else { return };
    assert!(!is_quiet(&party(&server.url()).await), "new tables have lost nothing");
    block_in_place(|| server.sql("DROP TABLE locker_boot"));
    assert!(is_quiet(&party(&server.url()).await));
}

/// What was made in an epoch is not written in another one.
#[tokio::test(flavor = "multi_thread")]
async fn write_of_an_earlier_epoch_does_nothing() {
    let Some(mut server) = MysqlServer::start() else { return };
    let (one, key) = (party(&server.url()).await, fresh("kept"));
    let version = one.write(write(&key, 0, b"x")).await;
    let epoch = one.backend.epoch().id;
    block_in_place(|| server.restart());
    write_again(&one, &fresh("after")).await;
    for (key, expected) in [(&key, version), (&fresh("new"), 0)] {
        let late = Write { epoch: Some(epoch), ..write(key, expected, b"y") };
        let outcome = one.exchange(late).await;
        assert!(matches!(outcome, Outcome::Differs { version, .. } if version == expected), "{outcome:?}");
    }
}

/// The first grant was lost in the crash. Its holder relies on it until its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn crash_that_loses_grants_gives_a_lock_to_one() {
    let Some(mut server) = MysqlServer::with(&["--innodb-flush-log-at-trx-commit=0"]) else { return };
    let (one, other) = (locker(&server.url(), 1000).await, locker(&server.url(), 1001).await);
    one.lock("other").acquire().await.unwrap().release().await.unwrap();
    let disk = block_in_place(|| server.save_disk());
    let held = one.lock("job").acquire().await.unwrap();
    block_in_place(|| server.crash_to(disk));
    let next = loop {
        match other.lock("job").timeout(Duration::from_secs(30)).acquire().await {
            Ok(next) => break next,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    };
    assert!(!held.is_held(), "two holders");
    next.release().await.unwrap();
}

/// A server that is told not to wait for the disk while a store is open.
#[tokio::test(flavor = "multi_thread")]
async fn relaxed_durability_is_noticed() {
    let Some(mut server) = MysqlServer::start() else { return };
    let one = party(&server.url()).await;
    one.write(write(&fresh("first"), 0, b"x")).await;
    block_in_place(|| server.sql("SET GLOBAL innodb_flush_log_at_trx_commit=2"));
    until("the mark", async || {
        one.write(write(&fresh("more"), 0, b"x")).await;
        block_in_place(|| server.sql("SELECT quick FROM locker_meta")) == "1"
    })
    .await;
    // Whatever is set afterwards.
    block_in_place(|| server.restart());
    until_quiet(&one).await;
}

/// The URL names both servers: the store uses the one that takes writes.
#[tokio::test(flavor = "multi_thread")]
async fn promoted_replica_begins_with_a_quiet_time() {
    let settings =
        |id: &str| ["--log-bin=b", "--binlog-format=ROW"].map(String::from).into_iter().chain([id.into()]);
    let start = |id: &str| {
        let settings: Vec<String> = settings(id).collect();
        MysqlServer::with(&settings.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let Some(mut primary) = start("--server-id=1") else { return };
    let Some(replica) = start("--server-id=2") else { return };
    if !primary.is_mariadb() {
        return;
    }
    block_in_place(|| replicate(&primary, &replica));
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", replica.port(), primary.port());
    let (one, other) = pair(&format!("mysql://locker@{hosts}/locker")).await;
    let key = fresh("promoted");
    let first = one.write(write(&key, 0, b"x")).await;
    assert!(!is_quiet(&one));
    let copied = format!("SELECT version FROM locker_keys WHERE `key`='{key}'");
    until("the copy", async || block_in_place(|| replica.try_sql(&copied)) == Ok(first.to_string())).await;
    // A replica that was started anew has no row of the table in memory, and must not stop at its removal.
    block_in_place(|| {
        primary.kill_nine();
        replica.sql("STOP SLAVE; SET GLOBAL read_only=0");
    });
    assert!(write_again(&one, &key).await > first);
    until("a quiet time", async || is_quiet(&one) && is_quiet(&other)).await;
    hear_again(&one, &other).await;
    contract::values_are_kept(&one, &other).await;
}

/// A replica that was started anew has lost the table in memory. What the next primary does to it must not stop it.
#[tokio::test(flavor = "multi_thread")]
async fn replication_goes_on_after_the_start_of_a_replica() {
    let start = |id: &str| MysqlServer::with(&["--log-bin=b", "--binlog-format=ROW", id]);
    let Some(primary) = start("--server-id=1") else { return };
    let Some(mut replica) = start("--server-id=2") else { return };
    if !primary.is_mariadb() {
        return;
    }
    block_in_place(|| replicate(&primary, &replica));
    let one = party(&primary.url()).await;
    let key = fresh("replicated");
    let copied = format!("SELECT version FROM locker_keys WHERE `key`='{key}'");
    let version = one.write(write(&key, 0, b"x")).await;
    until("the copy", async || block_in_place(|| replica.try_sql(&copied)) == Ok(version.to_string())).await;
    block_in_place(|| {
        replica.restart();
        replica.sql("SET GLOBAL read_only=1; START SLAVE");
        // As if this server had just been promoted.
        primary.sql("SET sql_log_bin=0; UPDATE locker_boot SET server='another'");
    });
    let version = write_again(&one, &key).await;
    until("the copy", async || block_in_place(|| replica.try_sql(&copied)) == Ok(version.to_string())).await;
    // A switch back to it would go on in its epoch.
    assert_eq!(block_in_place(|| primary.sql("SELECT COUNT(*) FROM locker_boot")), "1");
    // A table in memory that is first read without the binary log is emptied without it: the replica keeps the row.
    block_in_place(|| primary.sql("SET sql_log_bin=0; TRUNCATE TABLE locker_boot"));
    let version = write_again(&one, &key).await;
    until("the copy", async || block_in_place(|| replica.try_sql(&copied)) == Ok(version.to_string())).await;
    let errors = block_in_place(|| replica.sql("SHOW SLAVE STATUS"));
    assert!(!errors.contains("Error_code"), "{errors}");
}

fn replicate(primary: &MysqlServer, replica: &MysqlServer) {
    primary.sql("CREATE USER copy; GRANT REPLICATION SLAVE ON *.* TO copy");
    replica.sql(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='copy', MASTER_USE_GTID=slave_pos; \
         SET GLOBAL gtid_slave_pos='{}'; SET GLOBAL read_only=1; START SLAVE",
        primary.port(),
        primary.sql("SELECT @@gtid_binlog_pos")
    ));
}

/// A hold that is longer than all before counts for the quiet time, also if its grant is lost.
#[tokio::test(flavor = "multi_thread")]
async fn longest_hold_is_on_the_disk_before_its_grant() {
    let Some(mut server) = MysqlServer::with(&["--innodb-flush-log-at-trx-commit=0"]) else { return };
    let (one, key) = (party(&server.url()).await, fresh("long"));
    one.write(Write { holds: Duration::from_secs(600), ..write(&key, 0, b"x") }).await;
    let disk = block_in_place(|| server.save_disk());
    block_in_place(|| server.crash_to(disk));
    until_quiet(&one).await;
    let quiet = one.backend.epoch().quiet.unwrap();
    assert!(quiet > Duration::from_secs(500), "{quiet:?}");
}
