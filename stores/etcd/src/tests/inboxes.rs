//! Each process has an inbox that no other one has.

use super::*;
use locker_cas::Draw;
use std::sync::atomic::{AtomicUsize, Ordering};

const INBOX: &str = "locker/inbox/12345678";

fn draw(numbers: &'static [Inbox]) -> Draw {
    let drawn = AtomicUsize::new(0);
    Box::new(move || numbers[drawn.fetch_add(1, Ordering::Relaxed).min(numbers.len() - 1)])
}

async fn party_drawing(url: &str, numbers: &'static [Inbox]) -> Party<Etcd> {
    let opening = Opening::default();
    Party::new(in_time("a store", Etcd::open_drawing(draw(numbers), url, &opening)).await.unwrap())
}

#[tokio::test]
async fn two_processes_share_no_inbox() {
    let Some(server) = EtcdServer::start() else { return };
    let one = party_drawing(&server.url(), &[0x1234_5678]).await;
    let other = party_drawing(&server.url(), &[0x1234_5678, 0x1234_5678, 0x8765_4321]).await;
    assert_eq!([one.backend.inbox(), other.backend.inbox()], [0x1234_5678, 0x8765_4321]);
    contract::messages_are_heard(&one, &other).await;
    contract::messages_are_heard(&other, &one).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

/// The lease of a process was over for so long that another one has drawn its number.
#[tokio::test]
async fn inbox_of_another_process_is_not_taken() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party_drawing(&server.url(), &[0x1234_5678]).await, party(&server.url()).await);
    let lease: u64 = Seen::of(&server, INBOX).word("lease").unwrap().parse().unwrap();
    let foreign = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(INBOX), base64("foreign"));
    server.ask("kv/put", &foreign).expect("a write");
    server.ask("kv/lease/revoke", &format!(r#"{{"ID":"{lease}"}}"#)).expect("the end of the lease");
    // What the process sends and reads does not depend on its inbox.
    let key = contract::fresh("other");
    let version = in_time("a write", one.write(contract::write(&key, 0, b"x"))).await;
    assert_eq!(other.read(&key).await, (version, Some(b"x".to_vec())));
    delete(&server, INBOX);
    hears(&other, &one, "again").await;
    assert_eq!(Seen::of(&server, INBOX).word("value").map(|mark| mark == base64("foreign")), Some(false));
}
