//! Members that are killed, stopped or cut off.

use super::*;
use futures_util::future::join_all;
use locker_harness::EtcdCluster;
use std::time::Instant;

#[tokio::test]
async fn restart_of_the_server_loses_nothing() {
    let Some(mut server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("restart");
    let version = one.write(contract::write(&key, 0, b"x")).await;
    for text in ["a", "b"] {
        server.restart();
        until("the message to be sent", async || {
            one.backend
                .send(vec![message(other.backend.inbox(), text)])
                .await
                .is_ok_and(|gone| gone.is_empty())
        })
        .await;
        until("the message", async || other.texts().contains(&text.to_owned())).await;
        assert_eq!(one.read(&key).await, (version, Some(b"x".to_vec())));
    }
    assert_eq!((one.gaps(), other.gaps()), (0, 0));
}

/// Stores are opened while a leader is elected. The host of the last one refuses connections, which says nothing of the
/// others.
#[tokio::test]
async fn opening_waits_for_an_election() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    cluster.kill(cluster.leader());
    let (url, opening) = (cluster.url(), Opening::default());
    for opened in join_all((0..12).map(|_| Etcd::open(&url, &opening))).await {
        drop(opened.unwrap());
    }
}

#[tokio::test]
async fn cluster_serves_without_its_leader() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let (one, other) = (impatient(&cluster.url()).await, impatient(&cluster.url()).await);
    let key = contract::fresh("leader");
    let mut version = write_in_spite_of_errors(&one, &key, b"0").await;
    for round in 0..4 {
        let leader = cluster.leader();
        let is_killed = round % 2 == 0;
        if is_killed {
            cluster.kill(leader);
        } else {
            cluster.stop(leader);
        }
        let (text, started) = (format!("round {round}"), Instant::now());
        let next = write_in_spite_of_errors(&one, &key, text.as_bytes()).await;
        assert!(next > version);
        version = next;
        assert_eq!(read_in_spite_of_errors(&other, &key).await, (version, Some(text.clone().into_bytes())));
        hears(&one, &other, &text).await;
        hears(&other, &one, &text).await;
        assert!(started.elapsed() < Duration::from_secs(8), "round {round}: {:?}", started.elapsed());
        if is_killed {
            cluster.restart(leader);
        } else {
            cluster.cont(leader);
        }
        until("all members", async || {
            (0..3).all(|member| {
                cluster.ask(member, "kv/range", r#"{"key":"YQ=="}"#).is_some_and(|it| it.contains("revision"))
            })
        })
        .await;
    }
}

/// A member without the others says so. No call waits for it.
#[tokio::test]
async fn cluster_without_a_majority_is_unavailable() {
    let Some(cluster) = EtcdCluster::start(3) else { return };
    let one = impatient(&cluster.url()).await;
    let key = contract::fresh("minority");
    let version = write_in_spite_of_errors(&one, &key, b"x").await;
    let leader = cluster.leader();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for member in others {
        cluster.stop(member);
    }
    for _ in 0..5 {
        let started = Instant::now();
        let error = in_time("an error", one.backend.exchange(contract::write(&key, version, b"y")))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());
    }
    for member in others {
        cluster.cont(member);
    }
    write_in_spite_of_errors(&one, &key, b"z").await;
}

/// The address of a host that takes no packets, and one behind which the cluster is.
#[tokio::test]
async fn black_hole_among_the_members_costs_one_limit() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", port_of(&proxy), server.port());
    let (one, other) = (impatient(&url).await, impatient(&url).await);
    let key = contract::fresh("hole");
    write_in_spite_of_errors(&one, &key, b"x").await;
    proxy.set(Fault::HoldRequests);
    let started = Instant::now();
    write_in_spite_of_errors(&one, &key, b"y").await;
    hears(&one, &other, "a").await;
    hears(&other, &one, "a").await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    // From now on no call tries it.
    let tried = proxy.accepted();
    for number in 0..50_u32 {
        write_in_spite_of_errors(&one, &key, &number.to_be_bytes()).await;
    }
    assert!(proxy.accepted() <= tried + 1, "{tried}, then {}", proxy.accepted());
}

fn port_of(proxy: &Proxy) -> u16 {
    proxy.url().rsplit_once(':').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn messages_of_an_outage_are_heard_after_it() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let other = impatient(&format!("etcd://127.0.0.1:{}", port_of(&proxy))).await;
    let one = party(&server.url()).await;
    proxy.set(Fault::Reset);
    for text in ["a", "b"] {
        assert_eq!(one.backend.send(vec![message(other.backend.inbox(), text)]).await.unwrap(), [0_u32; 0]);
    }
    proxy.set(Fault::None);
    until("the messages", async || other.texts() == ["a", "b"]).await;
    assert_eq!(other.gaps(), 0);
}

#[tokio::test]
async fn compaction_during_an_outage_is_a_gap() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let other = impatient(&format!("etcd://127.0.0.1:{}", port_of(&proxy))).await;
    let (one, key) = (party(&server.url()).await, contract::fresh("compacted"));
    proxy.set(Fault::Reset);
    let messages = vec![message(other.backend.inbox(), "lost")];
    one.write(Write { messages, ..contract::write(&key, 0, b"x") }).await;
    let version = write_in_spite_of_errors(&one, &key, b"y").await;
    let answer =
        server.ask("kv/compaction", &format!(r#"{{"revision":"{version}","physical":true}}"#)).unwrap();
    assert!(answer.contains("header"), "{answer}");
    assert_eq!(other.gaps(), 0);
    proxy.set(Fault::None);
    until("the gap", async || other.gaps() == 1).await;
    hears(&one, &other, "later").await;
    assert!(!other.texts().contains(&"lost".to_owned()), "{:?}", other.texts());
    assert_eq!(other.gaps(), 1);
}

/// The lease of a process ends while it is cut off. Others then skip it, and it learns of that.
#[tokio::test]
async fn long_outage_ends_the_inbox_for_its_time() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let other = impatient(&format!("etcd://127.0.0.1:{}", port_of(&proxy))).await;
    let (one, inbox) = (party(&server.url()).await, other.backend.inbox());
    proxy.set(Fault::Reset);
    until("the end of the inbox", async || {
        one.backend.send(vec![message(inbox, "x")]).await.unwrap() == [inbox]
    })
    .await;
    proxy.set(Fault::None);
    until("the gap", async || other.gaps() == 1).await;
    assert_eq!(other.backend.inbox(), inbox);
    hears(&one, &other, "back").await;
}

/// A write whose answer is lost is uncertain, and was carried out. One that was not sent is certain.
#[tokio::test]
async fn lost_answers_are_uncertain_and_unsent_writes_certain() {
    let Some(mut server) = EtcdServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let one = impatient(&format!("etcd://127.0.0.1:{}", port_of(&proxy))).await;
    let (other, key) = (party(&server.url()).await, contract::fresh("lost"));
    let version = write_in_spite_of_errors(&one, &key, b"x").await;
    proxy.set(Fault::DropReplies);
    let error =
        in_time("an error", one.backend.exchange(contract::write(&key, version, b"y"))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
    until("the write", async || other.read(&key).await.1 == Some(b"y".to_vec())).await;
    let (version, _) = other.read(&key).await;

    proxy.set(Fault::None);
    write_in_spite_of_errors(&one, &key, b"z").await;
    let third = impatient(&server.url()).await;
    server.kill();
    until("a certain error", async || {
        let write = contract::write(&key, version, b"-");
        in_time("an error", third.backend.exchange(write)).await.unwrap_err().is_certain()
    })
    .await;
    server.restart();
    let version = write_in_spite_of_errors(&one, &key, b"last").await;
    assert_eq!(other.read(&key).await, (version, Some(b"last".to_vec())));
}

#[tokio::test]
async fn full_database_is_unavailable_and_explained() {
    let Some(server) = EtcdServer::with(&["--quota-backend-bytes", "4000000"]) else { return };
    let one = party(&server.url()).await;
    let error = loop {
        let write = contract::write(&contract::fresh("full"), 0, &vec![7; 500_000]);
        match in_time("a write", one.backend.exchange(write)).await {
            Ok(Outcome::Matched { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("etcdctl alarm disarm"), "{error}");
    let (key, small) = (contract::fresh("full"), b"x");
    let error = in_time("an error", one.backend.exchange(contract::write(&key, 0, small))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    assert_eq!(one.read(&key).await, (0, None));
}
