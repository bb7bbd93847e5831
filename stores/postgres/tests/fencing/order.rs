//! Effects take place in the order of fences.

use crate::{
    page,
    support::{Database, MINUTE, STALE, code, fresh_name, lock, refused},
};
use locker::{Locker, postgres::Fencing};
use std::{process::Stdio, time::Duration};

const BRIEF: Duration = Duration::from_millis(200);

#[tokio::test]
async fn lower_fence_after_a_higher_one_is_refused() {
    let Some(database) = Database::open().await else { return };
    let (caller, name, other) = (database.client().await, fresh_name(), fresh_name());
    assert_eq!(caller.fence(&name, 5).await, Ok(()));
    assert_eq!(caller.fence(&name, 5).await, Ok(()), "several transactions of one holder");
    assert_eq!(caller.fence(&name, 4).await, refused(STALE));
    assert_eq!(caller.fence(&name, 7).await, Ok(()));
    assert_eq!(caller.fence(&name, 5).await, refused(STALE));
    assert_eq!(caller.fence(&other, 4).await, Ok(()), "another lock");
    assert_eq!(caller.fence(&other, i64::MAX).await, Ok(()));
    assert_eq!(caller.fence(&other, i64::MAX - 1).await, refused(STALE));
}

#[tokio::test]
async fn rolled_back_fence_is_not_recorded() {
    let Some(database) = Database::open().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    caller.run("BEGIN").await.unwrap();
    caller.fence(&name, 9).await.unwrap();
    caller.run("ROLLBACK").await.unwrap();
    assert_eq!(caller.fence(&name, 8).await, Ok(()));
}

/// A holder that stalls beyond its lease wakes up after another holder has written.
#[tokio::test]
async fn late_holder_of_any_store_is_refused() {
    let Some(database) = Database::open().await else { return };
    let mut caller = database.client().await;
    for locker in [Locker::memory(), database.locker.clone()] {
        let name = fresh_name();
        let first = lock(&locker, &name, BRIEF).await;
        first.lost().await;
        let second = lock(&locker, &name, MINUTE).await;
        assert!(first.fence_sql().2 < second.fence_sql().2);

        caller.run("BEGIN").await.unwrap();
        caller.check(second.fence_sql()).await.unwrap();
        caller.write(&name, second.fence_sql().2).await.unwrap();
        caller.run("COMMIT").await.unwrap();

        caller.run("BEGIN").await.unwrap();
        assert_eq!(caller.check(first.fence_sql()).await, refused(STALE));
        assert_eq!(
            caller.write(&name, first.fence_sql().2).await,
            refused("25P02"),
            "the rest is refused, too"
        );
        caller.run("ROLLBACK").await.unwrap();
        assert_eq!(database.effects(&name), second.fence().to_string());
        second.release().await.unwrap();
        caller = database.client().await;
    }
}

#[tokio::test]
async fn statements_have_the_key_and_the_fence() {
    let locker = Locker::memory();
    let guard = locker.lock("statements").acquire().await.unwrap();
    let fence = i64::try_from(guard.fence()).unwrap();
    assert_eq!(guard.fence_sql(), ("SELECT locker_fence($1, $2)", guard.key(), fence));
    assert_eq!(guard.held_sql(), ("SELECT locker_held($1, $2)", guard.key(), fence));
}

/// A later transaction waits for an earlier one that has recorded its fence, and sees its writes.
#[tokio::test]
async fn later_holder_waits_for_the_earlier_one() {
    let Some(database) = Database::open().await else { return };
    let (earlier, later, observer) =
        (database.client().await, database.client().await, database.client().await);
    let name = fresh_name();
    earlier.run("BEGIN").await.unwrap();
    earlier.fence(&name, 1).await.unwrap();
    earlier.write(&name, 1).await.unwrap();

    later.run("BEGIN").await.unwrap();
    let (fenced, ()) = tokio::join!(later.fence(&name, 2), async {
        database.blocked(&observer, later.pid).await;
        earlier.run("COMMIT").await.unwrap();
    });
    assert_eq!(fenced, Ok(()));
    let seen = later.query("SELECT fence FROM effects WHERE name = $1", &[&name]).await.unwrap();
    assert_eq!(seen.len(), 1, "reads after the statement see the earlier holder's writes");
    later.write(&name, 2).await.unwrap();
    later.run("COMMIT").await.unwrap();
    assert_eq!(database.effects(&name), "1,2");
    assert_eq!(earlier.fence(&name, 1).await, refused(STALE));
}

/// `psql` reports the SQLSTATE and ends with an error.
#[tokio::test]
async fn psql_reports_a_stale_fence() {
    let Some(database) = Database::open().await else { return };
    let name = fresh_name();
    let transfer = |fence: i64| {
        database.server.try_psql(&format!(
            "BEGIN; SELECT locker_fence('{name}', {fence}); INSERT INTO effects VALUES ('{name}', {fence}); COMMIT"
        ))
    };
    transfer(2).unwrap();
    let error = transfer(1).unwrap_err();
    assert!(error.contains("LK001") && error.contains("a later holder has written"), "{error}");
    let held = database.server.try_psql(&format!("SELECT locker_held('{name}', 2)")).unwrap_err();
    assert!(held.contains("LK002") && held.contains("is not held with fence 2"), "{held}");
    assert_eq!(database.effects(&name), "2");
}

/// The holder dies between its checks and the commit.
#[tokio::test]
async fn killed_transaction_leaves_nothing() {
    let Some(database) = Database::open().await else { return };
    let name = fresh_name();
    let guard = lock(&database.locker, &name, MINUTE).await;
    let (_, key, fence) = guard.held_sql();
    let mut psql = database.server.psql_command().stdin(Stdio::piped()).spawn().unwrap();
    let statements = format!(
        "BEGIN; SELECT locker_fence('{key}', {fence}); INSERT INTO effects VALUES ('{name}', {fence}); \
         SELECT locker_held('{key}', {fence}); SET application_name = '{name}';\n"
    );
    std::io::Write::write_all(psql.stdin.as_mut().unwrap(), statements.as_bytes()).unwrap();
    let observer = database.client().await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let open = async || observer.query_one(count, &[&name]).await.unwrap().get::<_, i64>(0);
    locker_harness::until("the last statement before the commit", async || open().await == 1).await;
    psql.kill().unwrap();
    psql.wait().unwrap();
    locker_harness::until("the end of the connection", async || open().await == 0).await;
    assert_eq!(database.effects(&name), "");
    let later = observer.fence(&name, fence - 1).await;
    assert_eq!(later, Ok(()), "the fence of the dead holder was not recorded");
    guard.release().await.unwrap();
    assert_eq!(code(observer.execute("SELECT 1", &[]).await), Ok(()));
}

#[tokio::test]
async fn program_of_the_page_transfers() {
    let page = include_str!("../../../../docs/how-to/fence-a-write.md");
    assert!(
        page.contains(include_str!("page.rs")),
        "docs/how-to/fence-a-write.md does not show stores/postgres/tests/fencing/page.rs as it is"
    );
    let Some(database) = Database::own().await else { return };
    database.server.psql(
        "CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL);
         INSERT INTO accounts VALUES ('alice', 100), ('bob', 0)",
    );
    let (mut client, connection) =
        tokio_postgres::connect(&database.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    page::transfer(&database.locker, &mut client, 30).await.unwrap();
    assert_eq!(database.server.psql("SELECT balance FROM accounts ORDER BY id"), "70\n30");
}
