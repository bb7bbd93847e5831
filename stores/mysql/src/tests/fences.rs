//! The procedures for transactions of users.

use super::*;
use locker_runtime::Locker;

/// Returns the answer of a client to statements in a database, or its error.
fn ask(server: &MysqlServer, database: &str, sql: &str) -> std::result::Result<String, String> {
    block_in_place(|| server.try_sql(&format!("USE {database}; {sql}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_fence_is_refused() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    drop(party(&url).await);
    for fence in [5, 5, 7] {
        ask(&server, &database, &format!("BEGIN; CALL locker_fence('job', {fence}); COMMIT")).unwrap();
    }
    let stale = ask(&server, &database, "BEGIN; CALL locker_fence('job', 6); COMMIT").unwrap_err();
    assert!(stale.contains("31001") && stale.contains("LK001"), "{stale}");
    ask(&server, &database, "CALL locker_fence('other', 1)").unwrap();
    // A transaction that is rolled back has let no fence through.
    ask(&server, &database, "BEGIN; CALL locker_fence('other', 9); ROLLBACK; CALL locker_fence('other', 2)")
        .unwrap();
}

/// At REPEATABLE READ a transaction sees the rows of its start: a later holder has committed since.
#[tokio::test(flavor = "multi_thread")]
async fn stale_fence_is_refused_behind_an_old_snapshot() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    drop(party(&url).await);
    ask(&server, &database, "CALL locker_fence('job', 5); CREATE TABLE effects (x int)").unwrap();
    let mut client = server.client(&database);
    let mut client =
        client.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let say = |input: &mut std::process::ChildStdin, sql: &str| {
        std::io::Write::write_all(input, sql.as_bytes()).unwrap();
    };
    say(
        &mut input,
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN; SELECT * FROM locker_fences; INSERT INTO effects VALUES (1);\n",
    );
    let uncommitted = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; SELECT COUNT(*) FROM effects";
    until("the transaction", async || ask(&server, &database, uncommitted).unwrap() == "1").await;
    ask(&server, &database, "CALL locker_fence('job', 6)").unwrap();
    say(&mut input, "CALL locker_fence('job', 5); COMMIT;\n");
    drop(input);
    let output = block_in_place(|| client.wait_with_output()).unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("LK001"));
    assert_eq!(ask(&server, &database, "SELECT COUNT(*) FROM effects").unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_is_true_while_the_lock_is_held() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let locker = Locker::builder().url(&url).lease(Duration::from_secs(60)).build().await.unwrap();
    let guard = locker.lock("job").acquire().await.unwrap();
    let held = |fence: u64| ask(&server, &database, &format!("CALL locker_held('lock:job', {fence})"));
    held(guard.fence()).unwrap();
    let refused = held(guard.fence() + 1).unwrap_err();
    assert!(refused.contains("31002") && refused.contains("LK002"), "{refused}");
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(held(fence).unwrap_err().contains("LK002"));
}

/// Nobody gets the lock before the transaction has ended that was told that it is held.
#[tokio::test(flavor = "multi_thread")]
async fn next_holder_waits_for_the_commit() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let locker = Locker::builder().url(&url).lease(Duration::from_secs(60)).build().await.unwrap();
    let guard = locker.lock("job").acquire().await.unwrap();
    let mut client = server.client(&database);
    let mut client = client.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let begin = format!(
        "CREATE TABLE done (x int); BEGIN; CALL locker_held('lock:job', {}); INSERT INTO done VALUES (1);
         SELECT GET_LOCK('{database}',0);\n",
        guard.fence()
    );
    std::io::Write::write_all(&mut input, begin.as_bytes()).unwrap();
    let is_locked = format!("SELECT IS_USED_LOCK('{database}') IS NOT NULL");
    until("the transaction", async || ask(&server, &database, &is_locked).unwrap() == "1").await;
    let releasing = tokio::spawn(guard.release());
    let next = locker.lock("job").timeout(Duration::from_millis(300)).acquire().await;
    assert!(next.is_err(), "granted before the commit");
    client.kill().unwrap();
    client.wait().unwrap();
    drop(releasing.await);
    drop(locker.lock("job").acquire().await.unwrap());
}
