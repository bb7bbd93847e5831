//! Transactions of others on the tables of the store.

use super::*;
use std::{
    io::Write as _,
    process::{Child, Stdio},
};

/// A transaction that stays open.
struct Open(Child);

impl Open {
    /// Begins a transaction and waits until its statements are carried out.
    fn begin(server: &PostgresServer, statements: &str) -> Self {
        let mut psql = server.psql_command();
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.as_mut().unwrap();
        writeln!(input, "BEGIN; {statements}; SELECT 'done';").unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "done" {
            line.clear();
            assert_ne!(std::io::BufRead::read_line(&mut output, &mut line).unwrap(), 0, "{statements}");
        }
        Self(child)
    }

    fn commit(mut self) {
        writeln!(self.0.stdin.take().unwrap(), "COMMIT;").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

fn held(fence: u64, seconds: u64) -> Holder {
    Holder { fence, until: Timestamp::now() + Duration::from_secs(seconds) }
}

#[tokio::test]
async fn effects_are_in_the_order_of_fences() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    drop(party(&url).await);
    let fence =
        |name: &str, fence: u64| server.try_psql(&format!("SELECT {schema}.locker_fence('{name}', {fence})"));
    for (number, is_stale) in [(5, false), (5, false), (4, true), (9, false), (8, true), (9, false)] {
        match fence("a b", number) {
            Err(error) if is_stale => assert!(error.contains("LK001"), "{error}"),
            result => assert_eq!(result.is_ok(), !is_stale, "{number}: {result:?}"),
        }
    }
    assert!(fence("other", 1).is_ok());
}

#[tokio::test]
async fn held_asks_for_a_hold_in_force() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let party = party(&url).await;
    let key = fresh("held");
    let check = |fence: u64| {
        let result = server.try_psql(&format!("SELECT {schema}.locker_held('{key}', {fence})"));
        result.map_err(|error| assert!(error.contains("LK002"), "{error}")).is_ok()
    };
    assert!(!check(7));
    let version = party.write(Write { holder: Some(held(7, 60)), ..write(&key, 0, b"x") }).await;
    assert!(check(7));
    assert!(!check(6) && !check(8));
    let version = party.write(Write { holder: None, ..write(&key, version, b"free") }).await;
    assert!(!check(7), "released");
    let version = party.write(Write { holder: Some(held(8, 60)), ..write(&key, version, b"x") }).await;
    assert!(check(8));
    party.write(Write { holder: Some(held(8, 0)), ..write(&key, version, b"over") }).await;
    until("the end of the lease", async || !check(8)).await;
}

/// Until the transaction ends, nobody else gets the lock, and the connections do not wait for it.
#[tokio::test]
async fn shared_row_is_a_lost_write() {
    let Some(server) = shared_server() else { return };
    let (url, schema) = in_new_schema(&server);
    let party = party(&format!("{url}&lanes=1")).await;
    let (key, other) = (fresh("shared"), fresh("other"));
    let version = party.write(Write { holder: Some(held(7, 60)), ..write(&key, 0, b"x") }).await;
    let mut other_version = party.write(write(&other, 0, b"x")).await;
    let open = Open::begin(&server, &format!("SELECT {schema}.locker_held('{key}', 7)"));
    let lost = Outcome::Differs { version, value: Some(b"x".to_vec()) };
    for durable in [true, false] {
        let attempt = || party.exchange(Write { durable, ..write(&key, version, b"next") });
        assert_eq!(attempt().await, lost);
        // In a batch.
        let (attempt, next) = tokio::join!(attempt(), party.exchange(write(&other, other_version, b"y")));
        assert_eq!(attempt, lost);
        let Outcome::Matched { version, .. } = next else { panic!("{next:?}") };
        other_version = version;
    }
    // The removal passes the row by.
    sweep::remove(party.backend.driver()).await.unwrap();
    assert_eq!(party.read(&key).await.0, version);
    open.commit();
    assert!(matches!(party.exchange(write(&key, version, b"next")).await, Outcome::Matched { .. }));
}

/// Durable writes wait for the disk, others do not, and no write waits long for a row: alone and in a batch, for new
/// and for known keys, whatever the server's own setting is.
#[tokio::test]
async fn writes_have_their_settings() {
    let Some(server) = PostgresServer::with(&["fsync=off", "synchronous_commit=off"]) else { return };
    let party = party(&format!("{}?lanes=1", server.url())).await;
    server.psql(
        "CREATE TABLE seen (settings text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (current_setting('synchronous_commit') || current_setting('lock_timeout'));
             RETURN NEW; END $$;
         CREATE TRIGGER see BEFORE INSERT OR UPDATE ON locker_keys FOR EACH ROW EXECUTE FUNCTION see()",
    );
    for (durable, settings) in [(true, "on50ms"), (false, "off50ms")] {
        for count in [1, 20] {
            let keys: Vec<_> = (0..count).map(|_| fresh("settings")).collect();
            let mut versions = vec![0; count];
            let message = || Message { to: party.backend.inbox(), text: "x".into() };
            for messages in [Vec::new(), Vec::new(), vec![message()]] {
                let writes = keys.iter().zip(&versions).map(|(key, version)| {
                    party.write(Write { durable, messages: messages.clone(), ..write(key, *version, b"x") })
                });
                versions = futures_util::future::join_all(writes).await;
                let seen = server.psql(
                    "WITH old AS (DELETE FROM seen RETURNING settings) SELECT DISTINCT settings FROM old",
                );
                assert_eq!(seen, settings, "{durable} {count} {}", messages.len());
            }
        }
    }
}

/// A pool of the server's own connections: no two statements wait for each other.
#[tokio::test]
async fn batches_in_different_order_do_not_deadlock() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_schema(&server);
    let (one, other) = pair(&format!("{url}&lanes=1")).await;
    let keys: Vec<_> = (0..40).map(|_| fresh("order")).collect();
    for _ in 0..5 {
        let write_all = async |party: &Party<Postgres>, keys: Vec<&Key>| {
            futures_util::future::join_all(keys.into_iter().map(async |key| {
                let mut version = 0;
                loop {
                    match party.exchange(write(key, version, b"x")).await {
                        Outcome::Matched { .. } => break,
                        Outcome::Differs { version: present, .. } => version = present,
                        ticked @ Outcome::Ticked(_) => panic!("{ticked:?}"),
                    }
                }
            }))
            .await
        };
        tokio::join!(write_all(&one, keys.iter().collect()), write_all(&other, keys.iter().rev().collect()));
    }
    let deadlocks = server.psql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'locker'");
    assert_eq!(deadlocks, "0");
}
