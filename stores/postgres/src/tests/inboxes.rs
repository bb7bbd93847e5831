//! The inboxes of processes: each has its own, and strangers neither hear nor reach it.

use super::*;
use crate::{errors, session::Session};
use locker_harness::{Fault, Proxy};
use std::{
    process::{Child, Stdio},
    sync::atomic::AtomicUsize,
};

/// Draws these numbers, one after the other, and then the last one again and again.
fn draw(numbers: &'static [Inbox]) -> Draw {
    let drawn = AtomicUsize::new(0);
    Box::new(move || numbers[drawn.fetch_add(1, Ordering::Relaxed).min(numbers.len() - 1)])
}

async fn party_drawing(url: &str, lazy: bool, numbers: &'static [Inbox]) -> Party<Postgres> {
    let opening = Opening { lazy, ..Opening::default() };
    let store = open_with(draw(numbers), GENEROUS, url, &opening).await.unwrap();
    in_time("the connection", store.driver().server.opened()).await.unwrap();
    Party::new(store)
}

fn message(to: &Party<Postgres>, text: &str) -> Vec<Message> {
    vec![Message { to: to.backend.inbox(), text: text.to_owned() }]
}

/// Returns what is heard, by the channel.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

async fn stranger(server: &PostgresServer) -> (Session, Heard) {
    server.psql("CREATE ROLE stranger LOGIN");
    let target =
        url::read(&server.url().replace("locker@", "stranger@"), &Opening::default()).expect("a URL");
    let heard = Heard::default();
    let notes = Arc::clone(&heard);
    let notified =
        Box::new(move |channel: &str, text: &str| lock(&notes).push((channel.into(), text.into())));
    let session =
        Session::open(&target, &target.config, &Arc::default(), session::Use::Own(Some(notified))).await;
    (session.expect("a connection of the stranger"), heard)
}

/// Its names of channels are those of all inboxes in `pg_locks`, without the secret.
const GUESSES: &str = "
    SELECT 'locker_' || unnest(ARRAY[lpad(to_hex(n), 8, '0'), md5(n::text), left(encode(sha256(n::text::bytea), 'hex'), 32)])
    FROM (SELECT (((objid::bigint << 32 >> 32)::bit(32)::int::bigint + 2147483648)) AS n
          FROM pg_locks WHERE locktype = 'advisory' AND classid = 7465) inboxes";

/// A role that may connect, and has no right on the tables, listened to a process and sent it what it had not asked
/// for.
#[tokio::test(flavor = "multi_thread")]
async fn stranger_neither_hears_nor_reaches_a_process() {
    let Some(server) = PostgresServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    let (stranger, heard) = stranger(&server).await;
    let denied = stranger.query_once("SELECT secret FROM locker_meta", &[]).await.unwrap_err();
    assert!(errors::is_not_permitted(&denied), "{denied:?}");
    let guesses: Vec<String> =
        stranger.query_once(GUESSES, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(guesses.len(), 6, "{guesses:?}");
    for channel in guesses.iter().chain([&"control".to_owned()]) {
        stranger.run(&format!("LISTEN {channel}; NOTIFY {channel}, 'forged'")).await.unwrap();
    }
    // Messages come in the order of their commits.
    assert_eq!(one.backend.send(message(&other, "true")).await.unwrap(), [0_u32; 0]);
    until("the true message", async || !other.texts().is_empty()).await;
    assert_eq!(other.texts(), ["true"]);
    stranger.run("NOTIFY control, 'last'").await.unwrap();
    until("the last message", async || lock(&heard).iter().any(|(_, text)| text == "last")).await;
    let others: Vec<_> =
        lock(&heard).iter().filter(|(_, text)| !["forged", "last"].contains(&&**text)).cloned().collect();
    assert_eq!(others, []);
}

/// Statements are seen by administrators, in logs, and by the tools that read them.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_shows_a_channel() {
    let Some(server) = PostgresServer::with(&["fsync=off", "log_statement=all"]) else { return };
    let (one, other) = pair(&server.url()).await;
    assert_eq!(one.backend.send(message(&other, "true")).await.unwrap(), [0_u32; 0]);
    until("a message", async || !other.texts().is_empty()).await;
    let log = std::fs::read_to_string(server.directory().join("server.log")).unwrap();
    assert!(log.contains("LISTEN"), "no statement is logged");
    for party in [&one, &other] {
        let channel = lock(&party.backend.driver().channel).clone();
        assert!(channel.len() == 39 && !log.contains(&channel), "{channel} in\n{log}");
    }
}

/// Of two processes with one inbox, each took back what the other was granted.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_no_inbox() {
    let Some(server) = shared_server() else { return };
    for lazy in [false, true] {
        let (url, _) = in_new_schema(&server);
        let one = party_drawing(&url, lazy, &[0x1234_5678]).await;
        let other = party_drawing(&url, lazy, &[0x1234_5678, 0x1234_5678, 0x8765_4320]).await;
        let inboxes = [0x1234_5678, 0x8765_4320].map(|inbox| inbox + Inbox::from(lazy));
        assert_eq!([one.backend.inbox(), other.backend.inbox()], inboxes);
        contract::messages_are_heard(&one, &other).await;
        contract::messages_are_heard(&other, &one).await;
        if !lazy {
            contract::gone_inboxes_are_reported(&one, other).await;
        }
    }
}

/// Returns the process at the server that has the inbox.
fn owner(server: &PostgresServer, party: &Party<Postgres>) -> Option<String> {
    let owners = format!(
        "SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'
         AND l.classid = 7465 AND l.granted AND a.application_name = 'locker'
         AND (l.objid::bigint << 32 >> 32)::bit(32)::int::bigint + 2147483648 = {}",
        party.backend.inbox()
    );
    let owner = block_in_place(|| server.psql(&owners));
    (!owner.is_empty()).then_some(owner)
}

/// Ends the listening connection, and returns the process at the server that it had.
pub(super) fn end_listening(server: &PostgresServer, party: &Party<Postgres>) -> String {
    let former = owner(server, party).expect("a process with an inbox has a connection");
    block_in_place(|| server.psql(&format!("SELECT pg_terminate_backend({former})")));
    former
}

/// The waiters of a process with a slow network were passed over for as long as its probe took.
#[tokio::test(flavor = "multi_thread")]
async fn late_probe_makes_no_inbox_gone() {
    let Some(server) = PostgresServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let url = proxy.url().replace("redis://", "postgres://locker@") + "/locker";
    let late = party(&format!("{url}?listen=127.0.0.1:{}", server.port())).await;
    let other = party(&server.url()).await;
    proxy.set(Fault::HoldRequests);
    let former = end_listening(&server, &late);
    until("another connection with the inbox", async || {
        owner(&server, &late).is_some_and(|new| new != former)
    })
    .await;
    until("a message", async || {
        assert_eq!(other.backend.send(message(&late, "x")).await.unwrap(), [0_u32; 0]);
        late.texts().contains(&"x".into())
    })
    .await;
    let gaps = late.gaps();
    until("polls", async || late.gaps() > gaps + 2).await;
    assert!(owner(&server, &late).is_some_and(|new| new != former));
    proxy.set(Fault::None);
    contract::faults::hear_again(&late, &other).await;
}

/// A session that waits for the lock of an inbox, and has it when the connection of the process has ended: as a former
/// connection of the process that the server has not given up yet.
fn lingering(server: &PostgresServer, inbox: Inbox) -> Child {
    let mut psql = server.psql_command();
    psql.arg("-c").arg(format!(
        "SELECT pg_advisory_lock(7465, ({inbox}::bigint - 2147483648)::int); SELECT pg_sleep(600)"
    ));
    psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn process_goes_on_beside_its_former_connection() {
    let Some(server) = PostgresServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    let mut former = lingering(&server, one.backend.inbox());
    let waits = "SELECT count(*) FROM pg_locks WHERE classid = 7465 AND NOT granted";
    until("the session", async || block_in_place(|| server.psql(waits)) == "1").await;
    end_listening(&server, &one);
    contract::faults::hear_again(&other, &one).await;
    assert_eq!(owner(&server, &one), None);
    assert_eq!(other.backend.send(message(&one, "x")).await.unwrap(), [0_u32; 0]);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    block_in_place(|| server.psql(end));
    former.wait().unwrap();
    until("the inbox", async || owner(&server, &one).is_some()).await;
}

/// Tables that were made anew, or restored from a dump, have another secret: processes with the one before were deaf.
#[tokio::test(flavor = "multi_thread")]
async fn processes_hear_after_a_change_of_the_secret() {
    let Some(server) = PostgresServer::start() else { return };
    let (one, other) = pair(&server.url()).await;
    server.psql("UPDATE locker_meta SET secret = gen_random_uuid()");
    contract::faults::hear_again(&one, &other).await;
    contract::faults::hear_again(&other, &one).await;
}
