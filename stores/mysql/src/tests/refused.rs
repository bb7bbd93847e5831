//! Stores that cannot be opened.

use super::*;

async fn refused(url: &str) -> Error {
    let opened = in_time("an answer", open(url, &Opening::default())).await;
    let error = opened.err().unwrap_or_else(|| panic!("{url}"));
    let text = format!("{error} {error:?}");
    assert!(!text.contains("sekret"), "{text}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_to_do() {
    let Some(server) = shared_server() else { return };
    block_in_place(|| {
        server
            .sql("CREATE USER guest IDENTIFIED BY 'sekret'; CREATE DATABASE closed; CREATE DATABASE opened");
        server.sql("GRANT SELECT ON closed.* TO guest");
    });
    let url = format!("mysql://guest:sekret@127.0.0.1:{}", server.port());
    for (url, kind, text) in [
        (format!("{}/nowhere", server.url_of("").trim_end_matches('/')), ErrorKind::Misused, "1049"),
        (format!("{}/closed", url.replace("guest", "nobody")), ErrorKind::Misused, "127.0.0.1"),
        (format!("{url}/closed"), ErrorKind::Misused, "locker store sql"),
        ("mysql://guest:sekret@127.0.0.1:1/locker".into(), ErrorKind::Unavailable, "127.0.0.1:1/locker"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
        assert!(error.message().contains(text), "{url}: {error:?}");
    }
    block_in_place(|| server.sql("GRANT ALL ON opened.* TO guest"));
    let party = party(&format!("{url}/opened")).await;
    assert!(!format!("{:?}", party.backend).contains("sekret"));
    party.write(write(&fresh("guest"), 0, b"x")).await;
}

/// An administrator makes the tables, and the user of the store has the rights that are named, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn named_rights_are_enough() {
    let Some(server) = MysqlServer::start() else { return };
    let grants = grants_sql("modest");
    block_in_place(|| {
        let mut client = server.client("locker");
        let mut client = client.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let script = format!("CREATE USER modest;\n{}{grants}", schema_sql());
        std::io::Write::write_all(&mut client.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(client.wait().unwrap().success());
    });
    let url = server.url().replace("locker@", "modest@");
    let (one, other) = pair(&url).await;
    assert_eq!(one.backend.epoch().quiet, None, "nothing was ever granted");
    contract::all(&one, &other).await;
    sweep::remove(one.backend.driver()).await.unwrap();
    block_in_place(|| server.sql("UPDATE locker_boot SET server = 'another'"));
    contract::faults::write_again(&one, &fresh("after")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_format_are_refused() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    drop(party(&url).await);
    block_in_place(|| server.sql(&format!("UPDATE {database}.locker_meta SET format = 3")));
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("format 3"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_takes_no_writes_is_refused() {
    let Some(server) = MysqlServer::start() else { return };
    let party = party(&server.url()).await;
    block_in_place(|| server.sql("SET GLOBAL read_only = 1"));
    let error = refused(&server.url()).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("replica"), "{error:?}");
    // The user of the test has the right to write all the same.
    until("an error", async || party.backend.exchange(write(&fresh("late"), 0, b"x")).await.is_err()).await;
    block_in_place(|| server.sql("SET GLOBAL read_only = 0"));
    contract::faults::write_again(&party, &fresh("again")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_log_of_statements_is_refused() {
    let Some(server) = MysqlServer::with(&["--log-bin", "--server-id=1", "--binlog-format=STATEMENT"]) else {
        return;
    };
    let error = refused(&server.url()).await;
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("binlog_format=ROW"), "{error:?}");
}

/// Nothing is granted that relies on what is not on the disk for so long. That writes can be lost is said all the same.
#[tokio::test(flavor = "multi_thread")]
async fn lossy_server_that_writes_late_is_refused() {
    let Some(server) = MysqlServer::start() else { return };
    let one = party(&server.url()).await;
    block_in_place(|| {
        server.sql("SET GLOBAL innodb_flush_log_at_timeout=10; SET GLOBAL innodb_flush_log_at_trx_commit=2")
    });
    let is_late = |error: &Error| {
        assert!(error.kind() == ErrorKind::Misused && error.message().contains("sync_binlog=1"), "{error:?}");
    };
    is_late(&refused(&server.url()).await);
    assert_eq!(block_in_place(|| server.sql("SELECT quick FROM locker_meta")), "2");
    until("the process to know", async || {
        one.write(write(&fresh("short"), 0, b"x")).await;
        one.backend.driver().facts().unwrap().is_lossy
    })
    .await;
    let long = Write { holds: Duration::from_secs(60), ..write(&fresh("long"), 0, b"x") };
    is_late(&in_time("an answer", one.backend.exchange(long)).await.unwrap_err());
    block_in_place(|| server.sql("SET GLOBAL innodb_flush_log_at_timeout=1"));
    drop(party(&server.url()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_free_connections_is_named() {
    let Some(server) = MysqlServer::with(&["--max-connections=10"]) else { return };
    let url = server.url().replace("locker@", "few@");
    block_in_place(|| server.sql("CREATE USER few; GRANT ALL ON locker.* TO few"));
    let party = party(&url).await;
    party.write(write(&fresh("first"), 0, b"x")).await;
    let mut opened = Vec::new();
    until("too many connections", async || match open(&url, &Opening::default()).await {
        Ok(store) => {
            opened.push(store);
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            error.message().contains("1040") && error.message().contains("lanes")
        }
    })
    .await;
    party.write(write(&fresh("last"), 0, b"x")).await;
}

/// A server that puts another engine in the place of MEMORY would hide its crashes.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_other_engines_are_refused() {
    let Some(server) = MysqlServer::start() else { return };
    let (url, database) = in_new_database(&server);
    // A table of somebody else.
    block_in_place(|| server.sql(&format!("CREATE TABLE {database}.locker_rooms (x int) ENGINE=MyISAM")));
    drop(party(&url).await);
    block_in_place(|| server.sql(&format!("ALTER TABLE {database}.locker_boot ENGINE=InnoDB")));
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("locker_boot"), "{error:?}");
    if server.is_mariadb() {
        let (url, _) = in_new_database(&server);
        block_in_place(|| server.sql("SET GLOBAL enforce_storage_engine=InnoDB"));
        let error = refused(&url).await;
        assert!(error.kind() == ErrorKind::Misused && error.message().contains("MEMORY"), "{error:?}");
    }
}

/// An account with another plugin made the background thread panic.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_mariadb_with_ed25519_are_known() {
    let Some(server) = MysqlServer::start() else { return };
    if !server.is_mariadb() || block_in_place(|| server.try_sql("INSTALL SONAME 'auth_ed25519'")).is_err() {
        return;
    }
    block_in_place(|| {
        server.sql("CREATE USER modern IDENTIFIED VIA ed25519 USING PASSWORD('sekret'); GRANT ALL ON locker.* TO modern");
    });
    let party = party(&server.url().replace("locker@", "modern:sekret@")).await;
    party.write(write(&fresh("modern"), 0, b"x")).await;
    let error = refused(&server.url().replace("locker@", "modern:wrong@")).await;
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("1045"), "{error:?}");
}
