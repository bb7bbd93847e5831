//! Servers that are killed, stopped or cut off.

use super::*;
use futures_util::future::join_all;
use locker_core::error::Error;
use locker_harness::ZookeeperCluster;
use std::time::Instant;

async fn through(proxy: &Proxy) -> Party<Zookeeper> {
    impatient(&format!("zk://127.0.0.1:{}", proxy.port())).await
}

/// Writes a value, with as many copies as it takes, and returns its version.
async fn uncertain(party: &Party<Zookeeper>, write: Write) {
    let error = in_time("an error", party.backend.exchange(write)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false), "{error}");
}

#[tokio::test]
async fn restart_of_the_server_loses_nothing() {
    let Some(mut server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("restart");
    let version = one.write(contract::write(&key, 0, b"x")).await;
    for text in ["a", "b"] {
        server.restart();
        hears(&one, &other, text).await;
        assert_eq!(read_in_spite_of_errors(&one, &key).await, (version, Some(b"x".to_vec())));
    }
    assert_eq!((one.gaps(), other.gaps()), (0, 0));
}

#[tokio::test]
async fn ensemble_serves_without_its_leader() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
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
        assert!(started.elapsed() < Duration::from_secs(12), "round {round}: {:?}", started.elapsed());
        if is_killed {
            cluster.restart(leader);
        } else {
            cluster.cont(leader);
        }
        cluster.settle();
    }
}

/// A server without the others ends its connections, or says nothing if it was stopped. No call waits for that.
/// Stores are opened while a leader is elected. The host of the last one refuses connections, which says nothing of the
/// ensemble.
#[tokio::test]
async fn opening_waits_for_an_election() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
    cluster.kill(cluster.leader());
    let (url, opening) = (cluster.url(), Opening::default());
    let opened = join_all((0..12).map(|_| Zookeeper::open(&url, &opening))).await;
    for opened in opened {
        drop(opened.unwrap());
    }
}

/// Hosts that take connections and say nothing, as servers that elect, beside one without a server.
#[tokio::test]
async fn host_without_a_server_does_not_decide_for_others() {
    let mut hosts = vec![format!("127.0.0.1:{}", free_port())];
    for _ in 0..2 {
        let electing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        hosts.push(electing.local_addr().unwrap().to_string());
        tokio::spawn(async move { while electing.accept().await.is_ok() {} });
    }
    let opening = Opening { timeout: Duration::from_secs(1), ..Opening::default() };
    let url = format!("zk://{}", hosts.join(","));
    let open = async || {
        let started = Instant::now();
        (Zookeeper::open(&url, &opening).await.unwrap_err(), started.elapsed())
    };
    for (error, took) in join_all((0..24).map(|_| open())).await {
        assert!(took >= opening.timeout, "it gave up after {took:?}: {error}");
        assert!(error.message().contains("lost the other servers"), "{error}");
    }
    let started = Instant::now();
    let nobody = format!("zk://127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let error = Zookeeper::open(&nobody, &Opening::default()).await.unwrap_err();
    assert!(error.message().contains("Connection refused"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[tokio::test]
async fn ensemble_without_a_majority_is_unavailable() {
    let Some(cluster) = ZookeeperCluster::start(3) else { return };
    let one = impatient(&cluster.url()).await;
    let key = contract::fresh("minority");
    let version = write_in_spite_of_errors(&one, &key, b"x").await;
    let leader = cluster.leader();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for member in others {
        cluster.stop(member);
    }
    for number in 0..8 {
        let started = Instant::now();
        // A leader that has not yet noticed must not answer either.
        let write = if number % 2 == 0 {
            contract::write(&key, version, b"y")
        } else {
            contract::comparison(&key, -1)
        };
        let error = in_time("an error", one.backend.exchange(write)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());
    }
    for member in others {
        cluster.cont(member);
    }
    write_in_spite_of_errors(&one, &key, b"z").await;
}

/// The address of a host that takes no packets, and one where the server is.
#[tokio::test]
async fn black_hole_among_the_servers_is_left() {
    let Some(server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let url = format!("zk://127.0.0.1:{},127.0.0.1:{}", proxy.port(), server.port());
    let (one, other) = (impatient(&url).await, impatient(&url).await);
    let key = contract::fresh("hole");
    write_in_spite_of_errors(&one, &key, b"x").await;
    proxy.set(Fault::HoldRequests);
    let started = Instant::now();
    write_in_spite_of_errors(&one, &key, b"y").await;
    hears(&one, &other, "a").await;
    hears(&other, &one, "a").await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    let tried = proxy.accepted();
    for number in 0..50_u32 {
        write_in_spite_of_errors(&one, &key, &number.to_be_bytes()).await;
    }
    assert_eq!(proxy.accepted(), tried, "nobody tries it again");
}

#[tokio::test]
async fn messages_of_an_outage_are_heard_after_it() {
    let Some(server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (one, other) = (party(&server.url()).await, through(&proxy).await);
    let mut expected = Vec::new();
    let send = async |text: &String| {
        assert_eq!(one.backend.send(vec![message(other.backend.inbox(), text)]).await.unwrap(), [0_u32; 0]);
    };
    for round in 0..5 {
        proxy.set(Fault::Reset);
        // After it, the watch has been set again.
        for (number, during) in [(0, true), (1, true), (2, false), (3, false)] {
            let text = format!("{round} {number}");
            send(&text).await;
            expected.push(text);
            if during && number == 1 {
                proxy.set(Fault::None);
            }
            if !during || number == 1 {
                until("the messages", async || other.texts().len() == expected.len()).await;
            }
        }
    }
    assert_eq!(other.texts(), expected);
    assert_eq!(other.gaps(), 0);
}

/// The session of a process ends while it is cut off. Others then skip it, and it learns of that.
#[tokio::test]
async fn long_outage_ends_the_inbox_for_its_time() {
    let Some(server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (one, other) = (party(&server.url()).await, through(&proxy).await);
    let inbox = other.backend.inbox();
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
    let Some(mut server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let one = through(&proxy).await;
    let (other, key) = (party(&server.url()).await, contract::fresh("lost"));
    let version = write_in_spite_of_errors(&one, &key, b"x").await;
    proxy.set(Fault::DropReplies);
    uncertain(&one, contract::write(&key, version, b"y")).await;
    until("the write", async || other.read(&key).await.1 == Some(b"y".to_vec())).await;

    proxy.set(Fault::None);
    // The connection may be reset by the answer to a tick, before the server has read the write.
    until("a write whose connection is reset", async || {
        let version = write_in_spite_of_errors(&one, &key, b"z").await;
        proxy.set(Fault::ExecuteAndReset);
        let written = one.backend.exchange(contract::write(&key, version, b"w")).await;
        proxy.set(Fault::None);
        let is_there = other.read(&key).await.1 == Some(b"w".to_vec());
        let is_certain = written.as_ref().is_err_and(Error::is_certain);
        assert!(!(is_there && is_certain), "{written:?}");
        is_there && written.is_err()
    })
    .await;
    let (version, _) = other.read(&key).await;

    let third = impatient(&server.url()).await;
    server.kill();
    until("a certain error", async || {
        let write = contract::write(&key, version, b"-");
        in_time("an error", third.backend.exchange(write)).await.unwrap_err().is_certain()
    })
    .await;
    server.restart();
    let version = write_in_spite_of_errors(&one, &key, b"last").await;
    assert_eq!(read_in_spite_of_errors(&other, &key).await, (version, Some(b"last".to_vec())));
}

/// Requests arrive long after their callers have given up: when another process has written, or removed and written.
#[tokio::test]
async fn late_writes_do_nothing_after_other_writes() {
    let Some(server) = ZookeeperServer::start() else { return };
    let proxy = Proxy::to(server.port());
    // It does not leave the server before the requests have arrived.
    let one = party(&format!("zk://127.0.0.1:{}", proxy.port())).await;
    let other = party(&server.url()).await;
    let [update, insert, again, alone] = ["update", "insert", "again", "alone"].map(contract::fresh);
    let version = write_in_spite_of_errors(&one, &update, b"x").await;
    let former = write_in_spite_of_errors(&one, &again, b"x").await;
    let left = write_in_spite_of_errors(&one, &alone, b"x").await;
    assert_eq!(read_in_spite_of_errors(&one, &insert).await.0, 0);
    // One connection, so all are held back together.
    proxy.set(Fault::HoldRequests);
    for (key, expected) in [(&update, version), (&insert, 0), (&again, former), (&alone, left)] {
        let write = one.backend.exchange(contract::write(key, expected, b"late"));
        let cut = tokio::time::timeout(Duration::from_millis(150), write).await;
        assert!(cut.is_err() || cut.is_ok_and(|result| result.is_err()), "{key}");
    }
    let remove = async |key: &Key, version| {
        let exchange = &other.backend.exchange;
        let place = exchange.keys.place(key.as_str()).unwrap();
        assert_eq!(exchange.remove(&place.bucket, &[(place.value, version)]).await.unwrap(), 1);
    };
    other.write(contract::write(&update, version, b"new")).await;
    let made = other.write(contract::write(&insert, 0, b"new")).await;
    remove(&insert, made).await;
    remove(&again, former).await;
    // Its node has the data version that the held request names.
    other.write(contract::write(&again, 0, b"new")).await;
    proxy.set(Fault::None);
    until("the held requests", async || other.read(&alone).await.1 == Some(b"late".to_vec())).await;
    for (key, value) in [(&update, Some(&b"new"[..])), (&insert, None), (&again, Some(b"new"))] {
        assert_eq!(other.read(key).await.1.as_deref(), value, "{key}");
        assert_eq!(read_in_spite_of_errors(&one, key).await.1.as_deref(), value, "{key}");
    }
}

/// The server of a process is stopped with a write that it has not passed on. The session ends meanwhile.
#[tokio::test]
async fn write_at_a_stopped_server_dies_with_its_session() {
    let Some(cluster) = ZookeeperCluster::start(3) else { return };
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    let at = |member| format!("zk://127.0.0.1:{}", cluster.port(member));
    let (one, other) = (impatient(&at(follower)).await, party(&at(leader)).await);
    let (key, inbox) = (contract::fresh("stopped"), one.backend.inbox());
    let version = write_in_spite_of_errors(&one, &key, b"x").await;
    cluster.stop(follower);
    uncertain(&one, contract::write(&key, version, b"late")).await;
    until("the end of the session", async || {
        other.backend.send(vec![message(inbox, "x")]).await.unwrap() == [inbox]
    })
    .await;
    cluster.cont(follower);
    cluster.settle();
    until("the gap", async || one.gaps() == 1).await;
    assert_eq!(other.read(&key).await, (version, Some(b"x".to_vec())));
    assert_eq!(read_in_spite_of_errors(&one, &key).await, (version, Some(b"x".to_vec())));
}

/// A follower that lags behind shows no former value, and no former absence.
#[tokio::test]
async fn looks_at_a_follower_are_fresh() {
    let Some(cluster) = ZookeeperCluster::start(3) else { return };
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    let at = |member| format!("zk://127.0.0.1:{}", cluster.port(member));
    let (one, other) = (party(&at(leader)).await, party(&at(follower)).await);
    for number in 0..40_u32 {
        let (key, value) = (contract::fresh("fresh"), number.to_be_bytes());
        assert_eq!(other.read(&key).await, (0, None));
        // Both the transaction and the request wait for it.
        cluster.stop(follower);
        let version = one.write(contract::write(&key, 0, &value)).await;
        let look = async { other.read(&key).await };
        let goes_on = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cluster.cont(follower);
        };
        let (seen, ()) = tokio::join!(look, goes_on);
        assert_eq!(seen, (version, Some(value.to_vec())), "{number}");
    }
}

/// Such a server ends the connection and says nothing.
#[tokio::test]
async fn full_server_is_explained() {
    let Some(server) = ZookeeperServer::with("maxClientCnxns=1\n") else { return };
    let one = party(&server.url()).await;
    let opening = Opening { timeout: Duration::from_secs(3), ..Opening::default() };
    let error = in_time("the error", Zookeeper::open(&server.url(), &opening)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.message().contains("maxClientCnxns"), "{error}");
    drop(one);
    impatient(&server.url()).await;
}
