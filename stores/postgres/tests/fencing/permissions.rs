//! The permissions that a caller's role needs, as `docs/how-to/fence-a-write.md` names them.

use crate::support::{Database, MINUTE, fresh_name, lock, refused};
use locker::postgres::Fencing;

const PAGE: &str = include_str!("../../../../docs/how-to/fence-a-write.md");

/// Returns the block of SQL on the page that contains a text, for a role of this test.
fn block(text: &str, role: &str) -> String {
    let mut blocks = PAGE.split("\n```").filter_map(|block| block.strip_prefix("sql\n"));
    let found = blocks.find(|block| block.contains(text)).expect("the block of the page");
    assert!(found.contains("shop"), "{found}");
    found.replace("shop", role)
}

/// Returns the refusal of both statements, or `Ok`, by a role that has run `block` as the owner of the tables.
async fn both_after(text: Option<&str>) -> Option<[Result<(), String>; 3]> {
    let database = Database::own().await?;
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, MINUTE).await;
    database.server.psql("CREATE ROLE caller");
    if let Some(text) = text {
        database.server.psql(&block(text, "caller"));
    }
    caller.run("SET ROLE caller").await.unwrap();
    let results = [
        caller.check(guard.fence_sql()).await,
        caller.check(guard.held_sql()).await,
        caller.run("UPDATE locker_keys SET fence = 0").await,
    ];
    guard.release().await.unwrap();
    Some(results)
}

#[tokio::test]
async fn caller_needs_the_permissions_of_the_page() {
    let denied = refused("42501");
    let Some(without) = both_after(None).await else { return };
    assert_eq!(without, [denied.clone(), denied.clone(), denied.clone()]);
    for block in ["ON locker_fences TO", "SECURITY DEFINER"] {
        let with = both_after(Some(block)).await.unwrap();
        assert_eq!(with, [Ok(()), Ok(()), denied.clone()], "{block}");
    }
}

/// Old fences are those of holders from a month ago: a fence is a time in microseconds, or a little more.
#[tokio::test]
async fn fences_can_be_removed_as_the_page_says() {
    let Some(database) = Database::own().await else { return };
    let (caller, name) = (database.client().await, fresh_name());
    let guard = lock(&database.locker, &name, MINUTE).await;
    let old = fresh_name();
    caller.fence(&old, 1_700_000_000_000_000).await.unwrap();
    caller.check(guard.fence_sql()).await.unwrap();
    let delete = PAGE.split("\n```").find(|block| block.contains("DELETE FROM locker_fences")).unwrap();
    database.server.psql(delete.strip_prefix("sql\n").unwrap());
    let rows = "SELECT count(*) FROM locker_fences WHERE name IN ($1, $2)";
    let left: i64 = caller.query_one(rows, &[&old, &guard.key()]).await.unwrap().get(0);
    assert_eq!(left, 1);
    assert_eq!(caller.check(guard.fence_sql()).await, Ok(()));
    guard.release().await.unwrap();
}
