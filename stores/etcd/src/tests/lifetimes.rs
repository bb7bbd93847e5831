//! How long values, inboxes and leases live.

use super::*;
use locker_cas::CasStore;
use locker_core::{id::Id, primitives::HoldKind, store::Store};
use locker_laws::process;
use std::time::Instant;

fn leases(server: &EtcdServer) -> usize {
    let answer = server.ask("kv/lease/leases", "{}").expect("an answer of the gateway");
    answer.matches(r#""ID""#).count()
}

/// Returns a number in the answer to a question about a lease.
fn ask_lease(server: &EtcdServer, path: &str, body: &str, word: &str) -> Option<i64> {
    let answer = server.ask(path, body).expect("an answer of the gateway");
    answer.split_once(&format!(r#""{word}":""#))?.1.split('"').next()?.parse().ok()
}

/// Returns the seconds that are left of the lease of a key, or `None` if it has none.
fn left(server: &EtcdServer, key: &str) -> Option<i64> {
    let lease = Seen::of(server, key).word("lease")?.to_owned();
    ask_lease(server, "lease/timetolive", &format!(r#"{{"ID":"{lease}"}}"#), "TTL")
}

/// Puts a value under a lease of 20 s, as much as may be left of an old one. Returns the lease.
fn age(server: &EtcdServer, key: &str) -> i64 {
    let lease = ask_lease(server, "lease/grant", r#"{"TTL":"20"}"#, "ID").unwrap();
    let put = format!(r#"{{"key":"{}","lease":"{lease}","ignore_value":true}}"#, base64(key));
    server.ask("kv/put", &put).expect("a write of the gateway");
    lease
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

/// The clock may have stood still for so long that little is left of the lease of the value, though the ends in it are
/// later than what is promised now.
#[tokio::test]
async fn promised_hold_does_not_end_with_an_old_lease() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, two) = (process(&server.url(), 1).await, process(&server.url(), 2).await);
    let cancel = HoldKind::Lock.cancel(Id::random(), true);
    let store = CasStore::new(open(&server.url()).await.unwrap(), &Opening::default()).unwrap();
    store.call(&Key::new("lock:refused"), &cancel).await.unwrap();
    let minute = Duration::from_secs(60);
    one.keyed_semaphore("held", 2).acquire("ann", minute, Duration::ZERO).await.unwrap();
    one.keyed_lock("held").acquire("ann", minute, Duration::ZERO).await.unwrap();
    let keys = ["lock:refused", "semaphore:held", "lock:held"].map(|key| format!("locker/key/{key}"));
    let leases = keys.clone().map(|key| age(&server, &key));
    let lease = Duration::from_secs(30);
    let guards = [
        two.lock("refused").lease(lease).acquire().await.unwrap(),
        two.semaphore("held", 2).lease(lease).acquire().await.unwrap(),
    ];
    assert!(two.keyed_lock("held").renew("ann", lease).await.unwrap());
    for old in leases {
        server.ask("lease/revoke", &format!(r#"{{"ID":"{old}"}}"#)).expect("the end of the old lease");
    }
    let removed: Vec<_> = keys.iter().filter(|key| Seen::of(&server, key).word("value").is_none()).collect();
    assert_eq!(removed, [""; 0], "removed while they were held");
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
}

#[tokio::test]
async fn released_value_is_removed_soon() {
    let Some(server) = EtcdServer::start() else { return };
    let one = process(&server.url(), 1).await;
    for (name, expires) in [("never", Duration::MAX), ("year", Duration::from_secs(365 * 24 * 3600))] {
        one.keyed_semaphore(name, 1).acquire("ann", expires, Duration::ZERO).await.unwrap();
        assert!(one.keyed_semaphore(name, 1).release("ann").await.unwrap());
        let left = left(&server, &format!("locker/key/semaphore:{name}"));
        assert!(left.is_some_and(|left| left < 300), "{name}: {left:?} s left");
    }
}
