//! Stores that cannot be opened.

use super::*;

async fn refused(url: &str) -> Error {
    let opened = in_time("an answer", open(url, &Opening::default())).await;
    let error = opened.err().unwrap_or_else(|| panic!("{url}"));
    let text = format!("{error} {error:?}");
    assert!(!text.contains("sekret"), "{text}");
    error
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let Some(server) = shared_server() else { return };
    server.psql("CREATE ROLE guest LOGIN PASSWORD 'sekret'; CREATE SCHEMA closed");
    let url = format!("postgres://guest:sekret@127.0.0.1:{}", server.port());
    for (url, kind, text) in [
        (format!("{url}/nowhere"), ErrorKind::Misused, "3D000"),
        (format!("{}/locker", url.replace("guest", "nobody")), ErrorKind::Misused, "28000"),
        (
            format!("{url}/locker?schema=closed"),
            ErrorKind::Misused,
            "CREATE SCHEMA locker AUTHORIZATION \"guest\"",
        ),
        (
            format!("{url}/locker?schema=fresh"),
            ErrorKind::Misused,
            "CREATE SCHEMA locker AUTHORIZATION \"guest\"",
        ),
        ("postgres://guest:sekret@127.0.0.1:1/locker".into(), ErrorKind::Unavailable, "127.0.0.1:1/locker"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
        assert!(error.message().contains(text), "{url}: {error:?}");
    }
    server.psql("CREATE SCHEMA locker AUTHORIZATION guest");
    let party = party(&format!("{url}/locker?schema=locker")).await;
    assert!(!format!("{:?}", party.backend).contains("sekret"));
    party.write(write(&fresh("guest"), 0, b"x")).await;
}

/// A name that the database could not store failed the other calls of its batch.
#[tokio::test]
async fn database_of_another_encoding_is_refused() {
    let Some(server) = shared_server() else { return };
    server.psql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'");
    let url = server.url().replace(&format!("{}/locker", server.port()), &format!("{}/latin", server.port()));
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Misused, "{error:?}");
    for part in ["latin", "LATIN1", "CREATE DATABASE", "UTF8"] {
        assert!(error.message().contains(part), "{part}: {error:?}");
    }
}

/// The tables of a former build have no secret.
#[tokio::test]
async fn tables_of_another_format_are_refused() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    server.psql(&format!("CREATE SCHEMA {schema}; {}", schema_sql(&schema)));
    server.psql(&format!("UPDATE {schema}.locker_meta SET format = 3"));
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("format 3"), "{error:?}");
    server.psql(&format!(
        "ALTER TABLE {schema}.locker_meta DROP COLUMN secret; UPDATE {schema}.locker_meta SET format = 1"
    ));
    // Nothing is made in them, whatever they lack.
    server.psql(&format!("DROP TABLE {schema}.locker_boot"));
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("format 1"), "{error:?}");
    let boot = format!("SELECT to_regclass('{schema}.locker_boot') IS NULL");
    assert_eq!(server.psql(&boot), "t");
    // What an administrator does who wants to mend it.
    server.psql(&schema_sql(&schema));
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Conflict && error.message().contains("format 1"), "{error:?}");
    let advice = error.message().split('`').nth(1).expect("what to do");
    server.psql(advice);
    party(&url).await.write(write(&fresh("anew"), 0, b"x")).await;
}

#[tokio::test]
async fn server_without_free_connections_is_named() {
    let settings =
        ["fsync=off", "max_connections=8", "superuser_reserved_connections=0", "max_wal_senders=0"];
    let Some(server) = PostgresServer::with(&settings) else { return };
    let party = party(&server.url()).await;
    party.write(write(&fresh("first"), 0, b"x")).await;
    until("too many connections", async || match open(&server.url(), &Opening::default()).await {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            error.message().contains("53300") && error.message().contains("lanes")
        }
    })
    .await;
    party.write(write(&fresh("last"), 0, b"x")).await;
}

/// A store that is opened without waiting reports the outage with each call, and works once the server is there.
#[tokio::test(flavor = "multi_thread")]
async fn store_may_be_opened_before_its_server() {
    let Some(mut server) = PostgresServer::start() else { return };
    server.stop_immediately();
    let opening = Opening { lazy: true, ..Opening::default() };
    let party = Party::new(open(&server.url(), &opening).await.unwrap());
    let key = fresh("lazy");
    let error = in_time("an error", party.backend.exchange(comparison(&key, 0))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error:?}");
    block_in_place(|| server.start_again());
    until("the store", async || party.backend.exchange(comparison(&key, 0)).await.is_ok()).await;
    party.write(write(&key, 0, b"x")).await;
}
