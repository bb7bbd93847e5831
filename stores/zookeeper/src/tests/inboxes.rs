//! Each process has an inbox that no other one has.

use super::*;
use crate::ops::Kind;
use futures_util::future::join_all;
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

/// More come than one transaction deletes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_deleted_as_quickly_as_they_come() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let (inbox, mail) = (other.backend.inbox(), one.backend.exchange.keys.mail(other.backend.inbox()));
    let send = async || {
        for _ in 0..100 {
            one.backend.send(vec![message(inbox, "x")]).await.unwrap();
        }
    };
    join_all((0..100).map(|_| send())).await;
    until("all heard", async || other.texts().len() >= 10_000).await;
    let heard = std::time::Instant::now();
    until("the end of the messages", async || count(&one.backend, &mail).await == 0).await;
    assert!(heard.elapsed() < Duration::from_secs(5), "{:?}", heard.elapsed());
}

#[tokio::test]
async fn lost_answer_to_a_deletion_stops_no_deletions() {
    let Some(server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let one = party(&server.url()).await;
    let other = impatient(&format!("zk://127.0.0.1:{}", proxy.port())).await;
    let (inbox, mail) = (other.backend.inbox(), one.backend.exchange.keys.mail(other.backend.inbox()));
    let send = async |number: u32| {
        assert_eq!(one.backend.send(vec![message(inbox, &number.to_string())]).await.unwrap(), [0_u32; 0]);
    };
    join_all((0..300).map(send)).await;
    until("all heard", async || other.texts().len() >= 300).await;
    proxy.set(Fault::DropReplies);
    // The rest may have to wait for its answer.
    until("a deletion", async || count(&one.backend, &mail).await < 300).await;
    // The connection has ended: the answer is lost.
    until("the loss", async || other.backend.exchange.client.trouble().is_some()).await;
    proxy.set(Fault::None);
    hears(&one, &other, "again").await;
    join_all((300..400).map(send)).await;
    let started = std::time::Instant::now();
    until("the end of the messages", async || count(&one.backend, &mail).await == 0).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// They do not fit into one transaction.
#[tokio::test]
async fn end_removes_many_messages() {
    let Some(server) = ZookeeperServer::start() else { return };
    // An end takes no longer than a call.
    let mut opening = Opening::default();
    opening.network.command_timeout = GENEROUS;
    let one = Party::new(patiently(&server.url(), &opening).await);
    let observer = party(&server.url()).await.backend;
    let (link, mail) = (link(&observer).await, one.backend.exchange.keys.mail(one.backend.inbox()));
    let ops: Vec<_> = (0..1_000).map(|_| Op::create(&format!("{mail}/m"), b"x", Kind::Numbered)).collect();
    let created: Vec<_> = (0..30).map(|_| link.multi(ops.clone())).collect();
    // They come faster than they are heard.
    join_all(created).await;
    drop(one);
    until("the end", async || {
        count(&observer, "/locker/inbox").await == 1 && count(&observer, "/locker/mail").await == 1
    })
    .await;
}
