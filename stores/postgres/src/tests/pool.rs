//! A pool of connections between the store and the server.

use super::*;
use locker_harness::PgBouncer;

#[tokio::test(flavor = "multi_thread")]
async fn store_behind_a_pool_polls() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pool) = PgBouncer::start(&server, 3) else { return };
    let (one, other) = pair(&format!("{}?poll=20ms", pool.url())).await;
    contract::values_are_kept(&one, &other).await;
    contract::one_writer_of_each_version_wins(&one, &other).await;
    contract::late_copies_do_nothing(&one, &other).await;
    contract::large_values_are_kept(&one, &other).await;
    contract::pages_are_in_the_order_of_bytes(&one, &other).await;
    contract::clocks_agree(&one, &other);
    let gaps = other.gaps();
    until("two further gaps", async || other.gaps() > gaps + 1).await;
    // Nobody can know whether a process that polls is gone.
    let message = Message { to: other.backend.inbox(), text: "x".into() };
    assert_eq!(one.backend.send(vec![message.clone()]).await.unwrap(), [0_u32; 0]);
    let settings = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(server.psql(settings), "0", "a lock that belongs to a connection of the pool");
}

/// The setting of one commit is not left behind for others.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_the_pool_are_given_back_as_they_were() {
    let Some(server) = shared_server() else { return };
    let Some(pool) = PgBouncer::start(&server, 1) else { return };
    let party = party(&format!("{}?listen=127.0.0.1:{}", pool.url(), server.port())).await;
    let key = fresh("pool");
    let version = party.write(write(&key, 0, b"x")).await;
    party.write(Write { durable: false, ..write(&key, version, b"y") }).await;
    let psql = std::process::Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-d", &pool.url(), "-c"])
        .arg("SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&psql.stdout).trim(), "on|0");
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_connection_hears_messages() {
    let Some(server) = shared_server() else { return };
    let Some(pool) = PgBouncer::start(&server, 3) else { return };
    let (one, other) = pair(&format!("{}?listen=127.0.0.1:{}", pool.url(), server.port())).await;
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

/// Each poll wakes the waiters, which does not put off their next attempt.
#[tokio::test(flavor = "multi_thread")]
async fn polls_do_not_put_off_attempts() {
    let Some(server) = shared_server() else { return };
    let Some(pool) = PgBouncer::start(&server, 3) else { return };
    let locker =
        locker_runtime::Locker::builder().url(format!("{}?poll=20ms", pool.url())).build().await.unwrap();
    let key = fresh("attempts");
    let name = key.as_str();
    let _held = locker.lock(name).acquire().await.unwrap();
    let request =
        locker.lock(name).max_retry(3).retry_delay(Duration::from_millis(200)).timeout(Duration::MAX);
    let error = in_time("the last attempt", request.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetriesExhausted, "{error:?}");
}
