//! How long values, inboxes and leases live.

use super::*;
use std::time::Instant;

fn leases(server: &EtcdServer) -> usize {
    let answer = server.ask("kv/lease/leases", "{}").expect("an answer of the gateway");
    answer.matches(r#""ID""#).count()
}

#[tokio::test]
async fn values_stay_while_they_matter_and_are_removed_later() {
    let Some(server) = EtcdServer::start() else { return };
    let one = party(&server.url()).await;
    let forever = contract::fresh("forever");
    one.write(Write { lasts: Duration::MAX, ..contract::write(&forever, 0, b"x") }).await;
    let mut watched = Vec::new();
    // The values of one class share a lease, of which ever less is left.
    for millis in [0, 1, 100, 900, 3_000, 100, 4_200, 900, 2_500, 6_900, 3_000, 100] {
        let (key, lasts) = (contract::fresh("short"), Duration::from_millis(millis));
        one.write(Write { lasts, ..contract::write(&key, 0, b"x") }).await;
        watched.push((Instant::now(), lasts, key));
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    for (written, lasts, key) in watched {
        until("the removal", async || one.read(&key).await.0 == 0).await;
        // Not sooner than it may have been noticed.
        let lived = written.elapsed();
        assert!(lived >= lasts, "{lasts:?}: removed after {lived:?}");
        assert!(lived < 2 * lasts + Duration::from_secs(25), "{lasts:?}: removed after {lived:?}");
    }
    assert_ne!(one.read(&forever).await.0, 0);
}

/// The last moment at which a lease is used for another value.
#[tokio::test]
async fn no_value_is_removed_early() {
    let Some(server) = EtcdServer::start() else { return };
    let one = &party(&server.url()).await;
    let lasts = Duration::from_millis(1_500);
    let check = async |number: u64| {
        tokio::time::sleep(Duration::from_millis(number * 90)).await;
        let key = contract::fresh("early");
        one.write(Write { lasts, ..contract::write(&key, 0, b"x") }).await;
        let written = Instant::now();
        while written.elapsed() < lasts {
            let (version, _) = one.read(&key).await;
            assert!(version != 0 || written.elapsed() >= lasts, "removed after {:?}", written.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    futures_util::future::join_all((0..200).map(check)).await;
}

#[tokio::test]
async fn many_writes_share_few_leases() {
    let Some(server) = EtcdServer::start() else { return };
    let one = &party(&server.url()).await;
    let write = async |number: u64| {
        let lasts = Duration::from_millis(9_000 + number % 500);
        one.write(Write { lasts, ..contract::write(&contract::fresh("shared"), 0, b"x") }).await;
    };
    futures_util::future::join_all((0..300).map(write)).await;
    // One for the values, one for the session and one for the clock.
    assert_eq!(leases(&server), 3);
}

#[tokio::test]
async fn leases_that_were_revoked_are_replaced() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("revoked");
    let send = |text| vec![message(other.backend.inbox(), text)];
    let version = one.write(Write { messages: send("a"), ..contract::write(&key, 0, b"x") }).await;
    let answer = server.ask("kv/lease/leases", "{}").unwrap();
    let ids = answer.split(r#""ID":""#).skip(1).map(|rest| rest.split('"').next().unwrap());
    for id in ids {
        server.ask("kv/lease/revoke", &format!(r#"{{"ID":"{id}"}}"#)).unwrap();
    }
    assert_eq!(one.read(&key).await, (0, None), "removed with its lease");
    let next = one.write(Write { messages: send("b"), ..contract::write(&key, 0, b"y") }).await;
    assert!(next > version);
    // Others took both processes for gone until they are back, and may have sent them nothing.
    until("the gaps", async || one.gaps() == 1 && other.gaps() == 1).await;
    hears(&one, &other, "c").await;
}

#[tokio::test]
async fn nothing_but_values_is_left_in_the_end() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    hears(&one, &other, "x").await;
    let key = contract::fresh("left");
    one.write(contract::write(&key, 0, b"x")).await;
    assert_eq!(
        ["inbox/", "mail/", "key/", "base", "clock"].map(|kind| count(&server, &format!("locker/{kind}"))),
        [2, 1, 1, 1, 1]
    );
    drop((one, other));
    until("the end", async || count(&server, "locker/") == 3).await;
    until("the end of the leases", async || leases(&server) == 2).await;
    assert_eq!(count(&server, "locker/key/"), 1);
}

#[tokio::test]
async fn fences_rise_above_those_of_removed_values() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, key) = (party(&server.url()).await, contract::fresh("fence"));
    let first = one.backend.fence_floor();
    let version = one.write(contract::write(&key, 0, b"x")).await;
    // As many grants as one write may make, with this one and with the next.
    let mut highest = first + (1 << 16) - 1;
    one.write(contract::write(&key, version, b"y")).await;
    highest += (1 << 16) - 1;
    let name = base64(&format!("locker/key/{key}"));
    server.ask("kv/deleterange", &format!(r#"{{"key":"{name}"}}"#)).unwrap();
    assert_eq!(one.read(&key).await, (0, None));
    assert!(one.backend.fence_floor() > highest, "{} {highest}", one.backend.fence_floor());
    let other = party(&server.url()).await;
    assert!(other.backend.fence_floor() >= one.backend.fence_floor());
    let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    assert!(u128::from(first) > wall - 60_000_000, "{first}");
}
