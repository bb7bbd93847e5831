//! Each process has an inbox that no other one has.

use super::*;
use crate::ops::Kind;
use locker_cas::Draw;
use std::sync::atomic::{AtomicUsize, Ordering};

const INBOX: &str = "/locker/inbox/12345678";

fn draw(numbers: &'static [Inbox]) -> Draw {
    let drawn = AtomicUsize::new(0);
    Box::new(move || numbers[drawn.fetch_add(1, Ordering::Relaxed).min(numbers.len() - 1)])
}

async fn party_drawing(url: &str, numbers: &'static [Inbox]) -> Party<Zookeeper> {
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    let opened = in_time("a store", Zookeeper::open_drawing(draw(numbers), url, &opening)).await;
    Party::new(opened.unwrap())
}

#[tokio::test]
async fn two_processes_share_no_inbox() {
    let Some(server) = ZookeeperServer::start() else { return };
    let one = party_drawing(&server.url(), &[0x1234_5678]).await;
    let other = party_drawing(&server.url(), &[0x1234_5678, 0x1234_5678, 0x8765_4321]).await;
    assert_eq!([one.backend.inbox(), other.backend.inbox()], [0x1234_5678, 0x8765_4321]);
    contract::messages_are_heard(&one, &other).await;
    contract::messages_are_heard(&other, &one).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

/// The session of a process was over for so long that another one has drawn its number.
#[tokio::test]
async fn inbox_of_another_process_is_not_taken() {
    let Some(mut server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let one = party_drawing(&format!("zk://127.0.0.1:{}", proxy.port()), &[0x1234_5678]).await;
    let other = party(&server.url()).await;
    let mark = data(&other.backend, INBOX).await;
    proxy.set(Fault::Reset);
    let foreign = [Op::Delete(INBOX.into(), ANY), Op::create(INBOX, b"foreign", Kind::Kept)];
    link(&other.backend).await.multi(foreign.to_vec()).await.unwrap();
    proxy.set(Fault::None);
    let error = one.backend.exchange(contract::comparison(&contract::fresh("taken"), 0)).await.unwrap_err();
    assert!(error.message().contains("another process has the inbox"), "{error}");
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    delete(&other.backend, INBOX).await;
    hears(&other, &one, "again").await;
    assert_eq!(data(&other.backend, INBOX).await, mark);
    assert_eq!(one.gaps(), 1);
    server.kill();
}
