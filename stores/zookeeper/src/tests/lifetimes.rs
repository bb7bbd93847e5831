//! How long values, inboxes and messages live.

use super::*;
use crate::ops::Kind;
use locker_cas::ticker::Ticking;
use std::{collections::HashSet, time::Instant};

const MINUTES: Duration = Duration::from_secs(300);

/// A party whose nodes of values are made anew from this data version on.
async fn renewing(url: &str, renew_at: i32) -> Party<Zookeeper> {
    let mut store = open(url).await.unwrap();
    let exchange = &store.exchange;
    let (client, keys, clock) = (exchange.client.clone(), exchange.keys.clone(), exchange.clock.clone());
    let mut other =
        crate::exchange::Exchange::new(client, keys, clock, exchange.shared.clone(), Duration::ZERO);
    other.renew_at = renew_at;
    store.exchange = other.into();
    Party::new(store)
}

#[tokio::test]
async fn values_are_removed_a_minute_after_they_matter() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let [short, forever, taken, renewed] = ["short", "forever", "taken", "renewed"].map(contract::fresh);
    let write = |key: &Key, expected, lasts| Write { lasts, ..contract::write(key, expected, b"x") };
    let second = Duration::from_secs(1);
    one.write(write(&short, 0, second)).await;
    one.write(write(&forever, 0, Duration::MAX)).await;
    let version = one.write(write(&taken, 0, second)).await;
    other.write(write(&taken, version, second)).await;
    let version = one.write(write(&renewed, 0, second)).await;
    one.write(write(&renewed, version, Duration::from_secs(600))).await;
    let exchange = &one.backend.exchange;
    exchange.remove_due(Timestamp::now() + Duration::from_secs(60)).await;
    assert_ne!(one.read(&short).await.0, 0, "removed early");
    exchange.remove_due(Timestamp::now() + MINUTES).await;
    assert_eq!(other.read(&short).await, (0, None));
    for key in [&forever, &taken, &renewed] {
        assert_ne!(one.read(key).await.0, 0, "{key}");
    }
    other.backend.exchange.remove_due(Timestamp::now() + MINUTES).await;
    assert_eq!(one.read(&taken).await, (0, None));
}

/// Processes add to numbers while others remove the values all the time: only as many additions are lost as removals
/// took away.
#[tokio::test]
async fn removals_and_writes_do_not_mix() {
    let Some(server) = ZookeeperServer::start() else { return };
    let parties = [party(&server.url()).await, party(&server.url()).await, party(&server.url()).await];
    let key = &contract::fresh("raced");
    let removed = std::sync::atomic::AtomicU64::new(0);
    let add = async |party: &Party<Zookeeper>| {
        let (mut version, mut value) = party.read(key).await;
        for _ in 0..150 {
            loop {
                let number =
                    value.as_deref().map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()));
                let next = (number + 1).to_be_bytes();
                match party.exchange(contract::write(key, version, &next)).await {
                    Outcome::Matched { version: new, .. } => {
                        (version, value) = (new, Some(next.to_vec()));
                        break;
                    }
                    Outcome::Differs { version: present, value: found } => {
                        (version, value) = (present, found);
                    }
                    ticked @ Outcome::Ticked(_) => panic!("{ticked:?}"),
                }
            }
        }
    };
    let remove = async {
        let exchange = &parties[0].backend.exchange;
        let place = exchange.keys.place(key.as_str()).unwrap();
        for _ in 0..60 {
            let (version, value) = parties[0].read(key).await;
            let Some(value) = value else { continue };
            let taken = exchange.remove(&place.bucket, &[(place.value.clone(), version)]).await.unwrap();
            let number = u64::from_be_bytes(value.try_into().unwrap());
            removed.fetch_add(number * taken as u64, std::sync::atomic::Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::join!(add(&parties[1]), add(&parties[2]), remove);
    let rest = parties[0].read(key).await.1.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()));
    assert_eq!(rest + removed.into_inner(), 300);
}

/// What a process knows of a value does not fit one that was made since, though its node has the same data version.
#[tokio::test]
async fn late_writes_of_a_former_life_do_nothing() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("life");
    let absent = other.exchange(contract::comparison(&key, 0)).await;
    assert_eq!(absent, Outcome::Matched { version: 0, gone: Vec::new() });
    let first = other.write(contract::write(&key, 0, b"first")).await;
    let exchange = &one.backend.exchange;
    let place = exchange.keys.place(key.as_str()).unwrap();
    assert_eq!(exchange.remove(&place.bucket, &[(place.value, first)]).await.unwrap(), 1);
    let second = one.write(contract::write(&key, 0, b"second")).await;
    assert!(second > first);
    for late in [contract::write(&key, first, b"late"), contract::comparison(&key, first)] {
        let outcome = other.exchange(late).await;
        assert_eq!(outcome, Outcome::Differs { version: second, value: Some(b"second".to_vec()) });
    }
}

/// Somebody frees a lock by hand, and another process takes it. The node has the data version of the former one.
#[tokio::test]
async fn value_deleted_by_hand_is_not_confused() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("by hand");
    let first = one.write(contract::write(&key, 0, b"first")).await;
    delete(&other.backend, &other.backend.exchange.keys.place(key.as_str()).unwrap().value).await;
    let second = other.write(contract::write(&key, 0, b"second")).await;
    for late in [contract::write(&key, first, b"late"), contract::comparison(&key, first)] {
        let outcome = one.exchange(late).await;
        assert_eq!(outcome, Outcome::Differs { version: second, value: Some(b"second".to_vec()) });
    }
}

/// A removal arrives when another process has made the node anew, with the data version of the former one.
#[tokio::test]
async fn late_removal_does_nothing() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let key = contract::fresh("late removal");
    let first = one.write(contract::write(&key, 0, b"first")).await;
    let (exchange, by) = (&one.backend.exchange, Timestamp::now() + GENEROUS);
    let place = exchange.keys.place(key.as_str()).unwrap();
    let values = [(place.value.clone(), first)];
    let late = exchange.removal(by, &place.bucket, &values).await.unwrap();
    assert_eq!(late.len(), 2);
    assert_eq!(other.backend.exchange.remove(&place.bucket, &values).await.unwrap(), 1);
    let second = other.write(contract::write(&key, 0, b"second")).await;
    let done = link(&one.backend).await.multi(late).await.unwrap();
    assert!(matches!(done, crate::ops::Done::Nothing(0, _)), "{done:?}");
    assert_eq!(one.read(&key).await, (second, Some(b"second".to_vec())));
    assert_eq!(exchange.remove(&place.bucket, &values).await.unwrap(), 0, "it is another one");
}

/// Each data version comes once, and -1 never.
#[tokio::test]
async fn nodes_with_many_writes_are_made_anew() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (renewing(&server.url(), 3).await, renewing(&server.url(), 3).await);
    let (key, neighbour) = (contract::fresh("worn"), contract::fresh("neighbour"));
    let kept = other.write(contract::write(&neighbour, 0, b"x")).await;
    let mut version = 0;
    for number in 0..8_u8 {
        // After it, a whole round of data versions.
        let known = other.write(contract::write(&key, version, b"known")).await;
        version = known;
        for _ in 0..3 {
            let next = one.write(contract::write(&key, version, &[number])).await;
            assert!(next > version);
            version = next;
        }
        let late = other.exchange(contract::write(&key, known, b"late")).await;
        assert_eq!(late, Outcome::Differs { version, value: Some(vec![number]) });
    }
    let path = one.backend.exchange.keys.place(key.as_str()).unwrap().value;
    let stat = link(&one.backend).await.exists(&path).await.unwrap().unwrap();
    assert!(stat.version <= 3, "{stat:?}");
    assert_eq!(other.read(&neighbour).await.0, kept);
}

#[tokio::test]
async fn fences_rise_above_those_of_removed_values() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, key) = (party(&server.url()).await, contract::fresh("fence"));
    assert_eq!(one.read(&key).await, (0, None));
    let first = one.backend.fence_floor();
    let version = one.write(contract::write(&key, 0, b"x")).await;
    // As many grants as one write may make, with this one and with the next.
    let mut highest = first + (1 << 16) - 1;
    let version = one.write(contract::write(&key, version, b"y")).await;
    highest += (1 << 16) - 1;
    let other = party(&server.url()).await;
    let place = other.backend.exchange.keys.place(key.as_str()).unwrap();
    let removed = other.backend.exchange.remove(&place.bucket, &[(place.value, version)]).await;
    assert_eq!(removed.unwrap(), 1);
    assert_eq!(one.read(&key).await, (0, None));
    assert!(one.backend.fence_floor() > highest, "{} {highest}", one.backend.fence_floor());
    let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    assert!(u128::from(first) > wall - 60_000_000, "{first}");
}

/// Moves the clock of the store on, as many processes do that come.
async fn move_clock(observer: &Zookeeper, by: Duration) {
    let path = format!("/locker/clock/{}", data(observer, "/locker/clock").await.unwrap());
    let shown = data(observer, &path).await.unwrap();
    let (time, gaps) = shown.split_once(' ').unwrap();
    let later = Timestamp::from_micros(time.parse().unwrap()) + by;
    let text = format!("{} {gaps}", later.as_micros());
    link(observer).await.carry_out(&Op::set(&path, text.as_bytes(), ANY)).await.unwrap();
    until("the clock", async || observer.exchange.clock.clock().time().is_some_and(|time| time.now >= later))
        .await;
}

/// Values of a lock that is held and of one that was released, by processes that have ended: paths of the values.
async fn leave_values(url: &str) -> [crate::keys::Place; 2] {
    let locker = process(url).await;
    locker.keyed_lock("held").acquire("ann", Duration::from_secs(3600), Duration::ZERO).await.unwrap();
    locker.lock("released").acquire().await.unwrap().release().await.unwrap();
    let observer = party(url).await.backend;
    let names = observer.exchange.keys.clone();
    let mut places = ["held", "released"].map(|name| names.place(&format!("lock:{name}")).unwrap());
    for place in &mut places {
        assert!(link(&observer).await.exists(&place.value).await.unwrap().is_some(), "{place:?}");
    }
    places
}

async fn is_there(observer: &Zookeeper, place: &crate::keys::Place) -> bool {
    link(observer).await.exists(&place.value).await.unwrap().is_some()
}

/// Values whose process has died, and messages to such a process.
#[tokio::test]
async fn sweeps_remove_what_nobody_removes() {
    let Some(server) = ZookeeperServer::start() else { return };
    let [held, released] = leave_values(&server.url()).await;
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let link = link(&one.backend).await;
    for path in ["/locker/mail/00000007", "/locker/mail/00000007/m1", "/locker/mail/00000007/m2"] {
        link.carry_out(&Op::create(path, b"", Kind::Kept)).await.unwrap();
    }
    // Another bucket was deleted by hand.
    let (mut gone, exchange) = (HashSet::new(), &one.backend.exchange);
    let is_free = |number: &u32| ![held.number, released.number].contains(&(*number as usize));
    let deleted = (0..BUCKETS).find(is_free).unwrap();
    delete(&one.backend, &exchange.keys.bucket(deleted)).await;
    for _ in 0..2 {
        exchange.sweep(&mut gone).await.unwrap_err();
    }
    until("the end of the processes", async || count(&one.backend, "/locker/mail").await == 2).await;
    assert!(is_there(&one.backend, &released).await, "not yet");
    move_clock(&one.backend, MINUTES).await;
    let mut second = HashSet::new();
    other.backend.exchange.sweep(&mut second).await.unwrap();
    assert!(is_there(&one.backend, &released).await, "one process sweeps");
    exchange.sweep(&mut gone).await.unwrap_err();
    assert!(!is_there(&one.backend, &released).await);
    assert!(is_there(&one.backend, &held).await, "for an hour");
    // The next process sweeps when this one has ended.
    drop(one);
    until("the end of the sweeper", async || data(&other.backend, "/locker/sweeper").await.is_none()).await;
    other.backend.exchange.sweep(&mut second).await.unwrap_err();
    assert!(data(&other.backend, "/locker/sweeper").await.is_some());
    hears(&other, &other, "living inboxes are kept").await;
}

/// No process lives long enough to sweep.
#[tokio::test]
async fn short_visits_remove_what_is_over() {
    let Some(server) = ZookeeperServer::start() else { return };
    let [held, released] = leave_values(&server.url()).await;
    let observer = party(&server.url()).await.backend;
    let (link, exchange) = (link(&observer).await, &observer.exchange);
    let (value, _) = link.get(&released.value).await.unwrap().expect("the released lock");
    let copy = |number| Op::create(&format!("{}/copy", exchange.keys.bucket(number)), &value, Kind::Kept);
    link.multi((0..BUCKETS).map(copy).collect()).await.unwrap();
    assert_eq!(exchange.glean(&released.bucket).await.unwrap(), 0, "not yet");
    let before = count_values(&observer).await;
    move_clock(&observer, MINUTES).await;
    let visitor = party(&server.url()).await;
    until("a removal by the visitor", async || count_values(&observer).await < before).await;
    visitor.backend.exchange.glean(&released.bucket).await.unwrap();
    visitor.backend.exchange.glean(&held.bucket).await.unwrap();
    assert!(!is_there(&observer, &released).await);
    assert!(is_there(&observer, &held).await, "for an hour");
}

#[tokio::test]
async fn nothing_but_values_is_left_in_the_end() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let observer = party(&format!("{}/observer", server.url())).await.backend;
    hears(&one, &other, "x").await;
    one.write(contract::write(&contract::fresh("left"), 0, b"x")).await;
    let ended = Instant::now();
    drop((one, other));
    until("the end", async || {
        count(&observer, "/locker/inbox").await == 0 && count(&observer, "/locker/mail").await == 0
    })
    .await;
    assert!(ended.elapsed() < Duration::from_secs(5), "{:?}", ended.elapsed());
    let mut names = link(&observer).await.children("/locker").await.unwrap();
    names.sort_unstable();
    assert_eq!(names, ["base", "clock", "gauge", "inbox", "key", "mail"]);
}

/// Removes a node with all that is in it.
async fn delete_all(observer: &Zookeeper, path: &str) {
    let (link, mut paths, mut next) = (link(observer).await, vec![path.to_owned()], 0);
    while next < paths.len() {
        let names = link.children(&paths[next]).await.unwrap();
        paths.extend(names.into_iter().map(|name| format!("{}/{name}", paths[next])).collect::<Vec<_>>());
        next += 1;
    }
    let ops = paths.iter().rev().map(|path| Op::Delete(path.as_str().into(), ANY)).collect();
    assert!(matches!(link.multi(ops).await.unwrap(), crate::ops::Done::All(_)));
}

/// Somebody removes everything while processes are at work.
#[tokio::test]
async fn nodes_that_were_removed_are_made_anew() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let observer = party(&format!("{}/observer", server.url())).await.backend;
    let key = contract::fresh("removed");
    one.write(contract::write(&key, 0, b"x")).await;
    let before = one.backend.epoch();
    delete_all(&observer, "/locker").await;
    until("both processes", async || {
        let is_new = |party: &Party<Zookeeper>| party.backend.epoch() != before;
        is_new(&one) && is_new(&other)
    })
    .await;
    assert_eq!(read_in_spite_of_errors(&one, &key).await, (0, None));
    write_in_spite_of_errors(&one, &key, b"y").await;
    hears(&one, &other, "again").await;
    assert_eq!((one.gaps(), other.gaps()), (1, 1));
}

/// Somebody removes single nodes of the store.
#[tokio::test]
async fn single_nodes_are_made_anew() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let observer = party(&format!("{}/observer", server.url())).await.backend;
    let key = contract::fresh("single");
    let version = one.write(contract::write(&key, 0, b"x")).await;
    let clock = format!("/locker/clock/{}", data(&observer, "/locker/clock").await.unwrap());
    let mail = one.backend.exchange.keys.mail(one.backend.inbox());
    until("the end of the messages", async || count(&observer, &mail).await == 0).await;
    for path in [&*clock, "/locker/clock", &mail] {
        delete(&observer, path).await;
    }
    until("the clock and the mail", async || {
        count(&observer, "/locker/clock").await == 1
            && link(&observer).await.exists(&mail).await.unwrap().is_some()
    })
    .await;
    hears(&other, &one, "again").await;
    hears(&one, &other, "again").await;
    assert_eq!(read_in_spite_of_errors(&one, &key).await, (version, Some(b"x".to_vec())));
    let place = one.backend.exchange.keys.place(key.as_str()).unwrap();
    for path in [&*place.value, &*place.bucket] {
        delete(&observer, path).await;
    }
    // A bucket of this name would count from 0 again.
    let error = other.backend.exchange(contract::write(&key, 0, b"y")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true), "{error}");
}

/// Fences of all processes count from the new number.
#[tokio::test]
async fn base_that_was_deleted_is_made_anew_for_all() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    delete(&other.backend, "/locker/base").await;
    until("a number", async || data(&other.backend, "/locker/base").await.is_some()).await;
    let higher = one.backend.fence_floor() + 1_000_000_000_000;
    link(&other.backend)
        .await
        .carry_out(&Op::set("/locker/base", higher.to_string().as_bytes(), ANY))
        .await
        .unwrap();
    until("the higher number", async || {
        [&one, &other].iter().all(|party| party.backend.fence_floor() > higher)
    })
    .await;
}

/// Somebody frees all locks by hand. The nodes that are made anew have the data versions of the former ones.
#[tokio::test]
async fn values_that_were_all_deleted_are_not_confused() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, other) = (party(&server.url()).await, party(&server.url()).await);
    let observer = party(&format!("{}/observer", server.url())).await.backend;
    for round in 0..3 {
        let key = contract::fresh("all");
        let first = write_in_spite_of_errors(&one, &key, b"first").await;
        delete_all(&observer, "/locker/key").await;
        let second = write_in_spite_of_errors(&other, &key, b"second").await;
        assert!(second > first);
        let late = one.backend.exchange(contract::write(&key, first, b"late")).await;
        assert!(!matches!(late, Ok(Outcome::Matched { .. })), "{round}: {late:?}");
        assert_eq!(read_in_spite_of_errors(&other, &key).await, (second, Some(b"second".to_vec())));
        assert_eq!(read_in_spite_of_errors(&one, &key).await, (second, Some(b"second".to_vec())));
    }
    assert_eq!((one.gaps(), other.gaps()), (0, 0));
}

/// Values are not given up because of a node that another program has written.
#[tokio::test]
async fn foreign_nodes_are_a_conflict() {
    let Some(server) = ZookeeperServer::start() else { return };
    let observer = party(&format!("{}/observer", server.url())).await.backend;
    drop(party(&server.url()).await);
    for path in ["/locker/key", "/locker/base"] {
        let before = data(&observer, path).await.unwrap();
        link(&observer).await.carry_out(&Op::set(path, b"many", ANY)).await.unwrap();
        let error = open(&server.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains(path), "{error}");
        link(&observer).await.carry_out(&Op::set(path, before.as_bytes(), ANY)).await.unwrap();
    }
    party(&server.url()).await;
}
