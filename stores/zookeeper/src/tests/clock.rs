//! The clock that the processes move on, on real servers.

use super::*;
use locker_core::id::Id;
use locker_harness::ZookeeperCluster;
use locker_laws as processes;
use locker_runtime::{Guard, Quota};
use std::time::Instant;

/// Takes a lock, and leaves. A visit takes some milliseconds.
async fn visit(url: &str) -> bool {
    let visitor = process(url).await;
    let guard = visitor.lock("visited").timeout(Duration::ZERO).acquire().await;
    visitor.settled().await;
    match guard {
        Ok(guard) => guard.release().await.is_ok(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            false
        }
    }
}

async fn gauges(observer: &Zookeeper) -> usize {
    link(observer).await.children("/locker/gauge").await.unwrap().len()
}

async fn hold(locker: &Locker, name: &str, lease: Duration) -> Guard {
    in_time("a hold", locker.lock(name).lease(lease).renew(false).acquire()).await.unwrap()
}

/// Returns the path of the present clock, and what it shows.
async fn present(observer: &Zookeeper) -> Option<(String, String)> {
    let life = data(observer, "/locker/clock").await?;
    let path = format!("/locker/clock/{life}");
    let shown = data(observer, &path).await?;
    Some((path, shown))
}

async fn delete_clock(observer: &Zookeeper) -> String {
    let (path, _) = present(observer).await.unwrap();
    delete(observer, &path).await;
    path
}

/// A process that sees the key for the first time renews the hold, for less than was left of it at first.
#[tokio::test]
async fn renewal_elsewhere_lasts() {
    let Some(cluster) = ZookeeperCluster::start(3) else { return };
    let url = cluster.url();
    let [one, two, three] = [process(&url).await, process(&url).await, process(&url).await];
    let (six, four) = (Duration::from_secs(6), Duration::from_secs(4));
    one.keyed_lock("renewed").acquire("ann", six, Duration::ZERO).await.unwrap();
    assert!(two.keyed_lock("renewed").acquire("bob", six, Duration::ZERO).await.is_err());
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    let renewed = Instant::now();
    assert!(three.keyed_lock("renewed").renew("ann", four).await.unwrap());
    in_time("the end", two.keyed_lock("renewed").acquire("bob", six, GENEROUS)).await.unwrap();
    let waited = renewed.elapsed();
    assert!(waited >= Duration::from_millis(3_900), "it was renewed for 4 s, and ended after {waited:?}");
}

/// Each process that tries comes for a moment only, and leaves its time behind.
#[tokio::test]
async fn short_visits_do_not_keep_a_dead_holder() {
    let Some(server) = ZookeeperServer::start() else { return };
    let lease = Duration::from_secs(2);
    let dead = process(&server.url()).await;
    dead.keyed_lock("visited").acquire("dead", lease, Duration::ZERO).await.unwrap();
    drop(dead);
    in_time("the end of the hold", async {
        loop {
            let visitor = process(&server.url()).await;
            if let Ok(guard) = visitor.lock("visited").timeout(Duration::from_millis(200)).acquire().await {
                return drop(guard.release().await);
            }
            drop(visitor);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// Between two visits nobody is connected, for longer than all visits last. A session without a process measures that,
/// and no more: the hold does not end early.
#[tokio::test]
async fn rare_visits_do_not_keep_a_dead_holder() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (url, lease) = (server.url(), Duration::from_secs(5));
    let observer = party(&url).await.backend;
    until("a measure", async || visit(&url).await && gauges(&observer).await == 1).await;
    let (dead, held) = (process(&url).await, Instant::now());
    dead.keyed_lock("visited").acquire("dead", lease, Duration::ZERO).await.unwrap();
    drop(dead);
    let mut visits = 1;
    while !visit(&url).await {
        assert!(visits < 12, "visits of moments would need hundreds");
        tokio::time::sleep(Duration::from_secs(3)).await;
        visits += 1;
    }
    assert!(held.elapsed() >= lease, "{:?}", held.elapsed());
}

/// It knows by the latest ticks that another process is there, which goes on with the time.
#[tokio::test]
async fn visitor_beside_a_process_that_stays_measures_nothing() {
    let Some(server) = ZookeeperServer::start() else { return };
    let url = server.url();
    let observer = party(&url).await.backend;
    let _staying = tokio::spawn(use_often(process(&url).await));
    until("a tick of a process that stays", async || shown(&observer).await.len() == 2).await;
    for _ in 0..20 {
        assert!(visit(&url).await);
        assert_eq!(gauges(&observer).await, 0);
    }
}

/// Takes and releases a lock all the time.
async fn use_often(locker: Locker) {
    loop {
        locker.lock("often").acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the words that the clock shows.
async fn shown(observer: &Zookeeper) -> Vec<String> {
    let (_, text) = present(observer).await.unwrap();
    text.split(' ').map(str::to_owned).collect()
}

/// The measure is there after the process, and names the jump. The next process that stays makes nothing of it.
#[tokio::test]
async fn last_process_has_what_passes_measured() {
    let Some(server) = ZookeeperServer::start() else { return };
    let url = server.url();
    let observer = party(&url).await.backend;
    until("a measure", async || visit(&url).await && gauges(&observer).await == 1).await;
    let words = shown(&observer).await;
    let [time, _, _, jump, gauge] = &words[..] else { panic!("{words:?}") };
    let [time, jump] = [time, jump].map(|number| number.parse::<u64>().unwrap());
    assert!(jump > time && jump <= time + 10_000_000, "the session is shorter than 40 s: {words:?}");
    assert!(data(&observer, &format!("/locker/gauge/{gauge:0>16}")).await.is_some());
    let _staying = tokio::spawn(use_often(process(&url).await));
    until("a tick without a jump", async || shown(&observer).await.len() == 2).await;
}

/// A process asks whether a measure is over, and learns that only when others have stayed, held, and left.
#[tokio::test]
async fn late_answer_about_a_measure_ends_no_hold() {
    let Some(server) = ZookeeperServer::start() else { return };
    let url = server.url();
    let observer = party(&url).await.backend;
    until("a measure", async || visit(&url).await && gauges(&observer).await == 1).await;
    let proxy = Proxy::to(server.port());
    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(30);
    let late = patiently(&format!("zk://127.0.0.1:{}", proxy.port()), &opening).await;
    proxy.set(Fault::HoldRequests);
    let settles = tokio::spawn(async move { late.settle().await });
    let staying = process(&url).await;
    let user = tokio::spawn(use_often(staying.clone()));
    until("a tick that drops the jump", async || shown(&observer).await.len() == 2).await;
    until("the end of the measure", async || gauges(&observer).await == 0).await;
    let (held, lease) = (Instant::now(), Duration::from_secs(4));
    staying.keyed_lock("held").acquire("ann", lease, Duration::ZERO).await.unwrap();
    user.abort();
    drop((staying, user.await));
    until("the next jump", async || shown(&observer).await.len() == 5).await;
    proxy.set(Fault::None);
    in_time("an answer", settles).await.unwrap();
    let next = process(&url).await;
    let taken = next.keyed_lock("held").acquire("bob", lease, Duration::ZERO).await.is_ok();
    assert!(!taken || held.elapsed() >= lease, "{:?}", held.elapsed());
}

/// What a visitor counts as a gap, a process that stays has seen pass.
#[tokio::test]
async fn time_of_limits_does_not_gain_beside_visitors() {
    let Some(server) = ZookeeperServer::start() else { return };
    let url = server.url();
    let (started, observer) = (Instant::now(), party(&url).await.backend);
    let wall = async || -> Duration {
        let words = shown(&observer).await;
        words[..2].iter().map(|micros| Duration::from_micros(micros.parse().unwrap())).sum()
    };
    let first = wall().await;
    let _staying = tokio::spawn(use_often(process(&url).await));
    for _ in 0..15 {
        assert!(visit(&url).await);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let gained = wall().await.saturating_sub(first);
    assert!(gained <= started.elapsed() + Duration::from_secs(1), "{gained:?} in {:?}", started.elapsed());
}

/// The leader is killed and stopped while a hold runs. Its end is neither early nor late by more than the outage.
#[tokio::test]
async fn ends_outlive_changes_of_the_leader() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
    let (one, two) = (process(&cluster.url()).await, process(&cluster.url()).await);
    for (round, lease) in [Duration::from_secs(4), Duration::from_secs(6)].into_iter().enumerate() {
        let name = round.to_string();
        // A deadline counts from before the request, so the hold is no older than this.
        let guard = loop {
            let sent = Instant::now();
            if let Ok(Some(guard)) = one.lock(&name).lease(lease).renew(false).try_acquire().await {
                break (guard, sent);
            }
        };
        let waits = tokio::spawn({
            let (two, name) = (two.clone(), name.clone());
            async move { two.lock(&name).acquire().await }
        });
        let leader = cluster.leader();
        if round == 0 {
            cluster.kill(leader);
        } else {
            cluster.stop(leader);
        }
        let next = in_time("the next holder", waits).await.unwrap().unwrap();
        let lasted = guard.1.elapsed();
        assert!(guard.0.check().is_err(), "two guards say that they hold");
        assert!(lasted >= lease * 99 / 100, "ended after {lasted:?}");
        assert!(lasted < lease + Duration::from_secs(12), "ended after {lasted:?}");
        drop(next.release().await);
        if round == 0 {
            cluster.restart(leader);
        } else {
            cluster.cont(leader);
        }
        cluster.settle();
    }
}

/// A process that has just come, and holds a lock for a moment, does not hide the time before it.
#[tokio::test]
async fn short_hold_loses_no_time_without_processes() {
    let Some(server) = ZookeeperServer::start() else { return };
    let quota = Quota::token_bucket(1, Duration::from_secs(4));
    let name = Id::random().to_string();
    let first = process(&server.url()).await;
    assert!(first.rate_limiter(&name, quota).try_acquire().await.unwrap().is_some());
    first.settled().await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(7)).await;
    let visitor = process(&server.url()).await;
    visitor.lock("a").acquire().await.unwrap().release().await.unwrap();
    let taken = visitor.rate_limiter(&name, quota).try_acquire().await.unwrap();
    assert!(taken.is_some(), "7 s have passed, and 4 s fill it up");
}

#[tokio::test]
async fn clock_ticks_only_while_it_is_used() {
    let Some(server) = ZookeeperServer::start() else { return };
    let lockers = [process(&server.url()).await, process(&server.url()).await];
    let observer = party(&server.url()).await.backend;
    for locker in &lockers {
        hold(locker, "a", Duration::from_secs(60)).await.release().await.unwrap();
    }
    let (started, mut ticks, mut last) = (Instant::now(), 0, present(&observer).await);
    while started.elapsed() < Duration::from_secs(5) {
        let now = present(&observer).await;
        ticks += usize::from(now != last);
        last = now;
    }
    assert!((3..=12).contains(&ticks), "{ticks} ticks in 5 s of two processes");
    let mut since = Instant::now();
    until("three seconds without a tick", async || {
        let now = present(&observer).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(3)
    })
    .await;
}

/// By a process that knew it, and by one that has just come: it begins again at the latest time of all values.
#[tokio::test]
async fn deleted_clock_ends_no_hold() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (lease, observer) = (Duration::from_secs(4), party(&server.url()).await.backend);
    for is_known in [true, false] {
        let (one, before) = (process(&server.url()).await, process(&server.url()).await);
        let (name, sent) = (is_known.to_string(), Instant::now());
        let guard = hold(&one, &name, lease).await;
        let deleted = delete_clock(&observer).await;
        let two = if is_known { before } else { process(&server.url()).await };
        let next = in_time("the next holder", two.lock(&name).acquire()).await.unwrap();
        assert!(sent.elapsed() >= lease * 99 / 100, "ended after {:?}", sent.elapsed());
        assert!(guard.check().is_err(), "two guards say that they hold");
        let (made, _) = present(&observer).await.expect("it was made anew");
        assert_ne!(made, deleted);
        next.release().await.unwrap();
    }
}

/// Somebody deletes the clock again and again, while processes share a lock.
#[tokio::test]
async fn locks_survive_deletions_of_the_clock() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, two) = (process(&server.url()).await, process(&server.url()).await);
    let observer = party(&server.url()).await.backend;
    let (mut rounds, started) = (0, Instant::now());
    while started.elapsed() < Duration::from_secs(5) {
        if let Some((path, _)) = present(&observer).await {
            drop(link(&observer).await.carry_out(&Op::Delete(path.into(), ANY)).await);
        }
        let guard = hold(&one, "a", Duration::from_secs(60)).await;
        let other = two.lock("a").try_acquire().await;
        assert!(!matches!(other, Ok(Some(_))), "two hold it");
        drop(guard.release().await);
        rounds += 1;
    }
    assert!(rounds > 3, "{rounds}");
}

#[tokio::test]
async fn clock_that_is_no_time_is_a_conflict() {
    let Some(server) = ZookeeperServer::start() else { return };
    let observer = party(&server.url()).await.backend;
    let (path, _) = present(&observer).await.unwrap();
    link(&observer).await.carry_out(&Op::set(&path, b"noon", ANY)).await.unwrap();
    let error = open(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains(&path), "{error}");
}

/// Nobody is connected for longer than a limit needs to fill up again. The next process counts that time: the leader's
/// clock has measured it.
#[tokio::test]
async fn limits_fill_up_while_nobody_is_connected() {
    let Some(server) = ZookeeperServer::start() else { return };
    let quota = Quota::token_bucket(1, Duration::from_secs(9));
    let name = Id::random().to_string();
    let take = async || {
        let locker = process(&server.url()).await;
        let taken = locker.rate_limiter(&name, quota).try_acquire().await.unwrap();
        locker.settled().await;
        taken.is_some()
    };
    assert!(take().await);
    assert!(!take().await, "there was one token");
    // This is the time in which nobody is connected.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(take().await, "after 10 s of 9 s");
    assert!(!take().await, "there was one token");
}

#[tokio::test]
async fn distant_process_is_served_beside_ticks() {
    let Some(server) = ZookeeperServer::start() else { return };
    let near = process(&server.url()).await;
    let proxy = Proxy::to(server.port());
    let mut opening = Opening::default();
    opening.network.command_timeout = GENEROUS;
    let far = locker(&format!("zk://127.0.0.1:{}", proxy.port()), &opening).await;
    proxy.set(Fault::Delay(Duration::from_millis(400)));
    processes::far_process_is_served_beside_ticks(near, &far).await;
}

/// The release of a visit leaves its time behind, also of one that ends right after it.
#[tokio::test]
async fn release_ticks() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (locker, observer) = (process(&server.url()).await, party(&server.url()).await.backend);
    let guard = locker.lock("a").acquire().await.unwrap();
    let before = present(&observer).await;
    guard.release().await.unwrap();
    assert_ne!(present(&observer).await, before);
}

/// Each write and comparison that names a tick, or the life of the clock.
#[tokio::test]
async fn former_ticks_and_lives_are_refused() {
    let Some(server) = ZookeeperServer::start() else { return };
    let one = party(&server.url()).await;
    let link = link(&one.backend).await;
    let life: i64 = data(&one.backend, "/locker/clock").await.unwrap().parse().unwrap();
    let path = format!("/locker/clock/{life}");
    let tick = |version: i32| Basis::Tick { life, version: version.to_be_bytes().into() };
    let [kept, absent] = ["kept", "absent"].map(contract::fresh);
    let version = one.write(contract::write(&kept, 0, b"x")).await;
    let at = |basis| {
        [
            Write { basis, ..contract::write(&kept, version, b"y") },
            contract::comparison(&kept, version),
            contract::write(&absent, 0, b"y"),
            contract::comparison(&absent, 0),
        ]
    };
    for place in 0..4 {
        let write = |basis: Basis| {
            let mut write = at(basis.clone())[place].clone();
            write.basis = basis;
            write
        };
        let (text, stat) = link.get(&path).await.unwrap().unwrap();
        let time: u64 = std::str::from_utf8(&text).unwrap().split(' ').next().unwrap().parse().unwrap();
        let later = format!("{} 0", time + 1_000);
        let sent = Timestamp::now();
        link.carry_out(&Op::set(&path, later.as_bytes(), stat.version)).await.unwrap();
        let former = one.exchange(write(tick(stat.version))).await;
        let Outcome::Ticked(Some(found)) = former else { panic!("{place}: {former:?}") };
        assert!(found.life == life && found.latest >= Timestamp::from_micros(time + 1_000), "{found:?}");
        assert!(found.sent >= sent && found.sent <= Timestamp::now(), "{found:?}");
        assert_eq!(one.exchange(write(Basis::Life(life - 1))).await, Outcome::Ticked(None), "{place}");
        assert_eq!(one.read(&kept).await.0, version);
        assert_eq!(one.read(&absent).await.0, 0);
    }
    for place in [1, 3, 0, 2] {
        let mut write = at(Basis::Served)[place].clone();
        write.basis = Basis::Life(life);
        assert!(matches!(one.exchange(write).await, Outcome::Matched { .. }), "{place}");
    }
    // The present tick, unless another one has come in between.
    until("a write on the present tick", async || {
        let (_, stat) = link.get(&path).await.unwrap().unwrap();
        let (version, _) = one.read(&kept).await;
        let basis = tick(stat.version);
        let outcome =
            one.exchange(Write { basis, leaves: true, ..contract::write(&kept, version, b"z") }).await;
        matches!(outcome, Outcome::Matched { .. })
    })
    .await;
}
