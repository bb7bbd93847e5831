//! The clock that the processes move on, on real members.

use super::*;
use locker_core::{blocking::block_on, id::Id};
use locker_harness::{EtcdCluster, GENEROUS};
use locker_laws::{self as processes, process};
use locker_runtime::{Guard, Locker, Quota};
use std::{path::Path, process::Command, time::Instant};

const CLOCK: &str = "locker/clock";

async fn hold(locker: &Locker, name: &str, lease: Duration) -> Guard {
    in_time("a hold", locker.lock(name).lease(lease).renew(false).acquire()).await.unwrap()
}

#[tokio::test]
async fn holds_keep_their_ends_across_processes() {
    let Some(cluster) = EtcdCluster::start(3) else { return };
    let url = cluster.url();
    tokio::join!(
        processes::renewal_elsewhere_lasts(&url),
        processes::permit_of_a_dead_holder_comes_back(&url),
        processes::short_visits_do_not_keep_a_dead_holder(&url),
    );
}

/// The leader is killed and stopped while a hold runs. Its end is neither early nor late by more than the outage.
#[tokio::test]
async fn ends_outlive_changes_of_the_leader() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let (one, two) = (process(&cluster.url(), 1).await, process(&cluster.url(), 2).await);
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
        if round == 0 { cluster.restart(leader) } else { cluster.cont(leader) }
    }
}

#[tokio::test]
async fn clock_ticks_only_while_it_is_used() {
    let Some(server) = EtcdServer::start() else { return };
    let lockers = [process(&server.url(), 1).await, process(&server.url(), 2).await];
    let tick = || Seen::of(&server, CLOCK).word("value").map(str::to_owned);
    for locker in &lockers {
        hold(locker, "a", Duration::from_secs(60)).await.release().await.unwrap();
    }
    let (started, mut ticks, mut last) = (Instant::now(), 0, tick());
    while started.elapsed() < Duration::from_secs(5) {
        let now = tick();
        ticks += usize::from(now != last);
        last = now;
    }
    assert!((3..=12).contains(&ticks), "{ticks} ticks in 5 s of two processes");
    let mut since = Instant::now();
    until("three seconds without a tick", async || {
        let now = tick();
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
    let Some(server) = EtcdServer::start() else { return };
    let lease = Duration::from_secs(4);
    for is_known in [true, false] {
        let (one, before) = (process(&server.url(), 1).await, process(&server.url(), 2).await);
        let (name, sent) = (is_known.to_string(), Instant::now());
        let guard = hold(&one, &name, lease).await;
        delete(&server, CLOCK);
        let two = if is_known { before } else { process(&server.url(), 3).await };
        let next = in_time("the next holder", two.lock(&name).acquire()).await.unwrap();
        assert!(sent.elapsed() >= lease * 99 / 100, "ended after {:?}", sent.elapsed());
        assert!(guard.check().is_err(), "two guards say that they hold");
        assert!(Seen::of(&server, CLOCK).word("value").is_some(), "it was made anew");
        next.release().await.unwrap();
    }
}

/// As after a snapshot was restored: the clock shows an earlier time.
#[tokio::test]
async fn clock_that_goes_back_ends_no_hold() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, two) = (process(&server.url(), 1).await, process(&server.url(), 2).await);
    let early = Seen::of(&server, CLOCK).word("value").unwrap().to_owned();
    for locker in [&one, &two] {
        hold(locker, "a", Duration::from_secs(60)).await.release().await.unwrap();
    }
    until("some ticks", async || Seen::of(&server, CLOCK).word("value") != Some(&early)).await;
    let body = format!(r#"{{"key":"{}","value":"{early}"}}"#, base64(CLOCK));
    server.ask("kv/put", &body).expect("a write of the gateway");
    let (lease, sent) = (Duration::from_secs(3), Instant::now());
    let guard = hold(&one, "b", lease).await;
    let next = in_time("the next holder", two.lock("b").acquire()).await.unwrap();
    assert!(sent.elapsed() >= lease * 99 / 100, "ended after {:?}", sent.elapsed());
    assert!(sent.elapsed() < lease + Duration::from_secs(5), "ended after {:?}", sent.elapsed());
    assert!(guard.check().is_err() && next.check().is_ok());
}

#[tokio::test]
async fn clock_that_is_no_time_is_a_conflict() {
    let Some(server) = EtcdServer::start() else { return };
    let body = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(CLOCK), base64("noon"));
    server.ask("kv/put", &body).expect("a write of the gateway");
    let error = open(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains(CLOCK), "{error}");
}

/// Nobody is connected for longer than a limit needs to fill up again. The next process counts that time: etcd has
/// measured it, and after a change of the leader less of it.
#[tokio::test]
async fn limits_fill_up_while_nobody_is_connected() {
    let Some(mut cluster) = EtcdCluster::start(3) else { return };
    let quota = |seconds| Quota::token_bucket(1, Duration::from_secs(seconds));
    for (changes_leader, away) in [(false, 13), (true, 5)] {
        // On a busy machine the cluster may change its leader by itself, and then measures less.
        let is_filled = loop {
            let (name, url) = (Id::random().to_string(), cluster.url());
            let take = async |number, seconds| {
                let locker = process(&url, number).await;
                let taken = locker.rate_limiter(&name, quota(seconds)).try_acquire().await.unwrap();
                locker.settled().await;
                taken.is_some()
            };
            assert!(take(1, 9).await);
            assert!(!take(2, 9).await, "there was one token");
            let term = term_of(&cluster);
            if changes_leader {
                let leader = cluster.leader();
                cluster.kill(leader);
            }
            // This is the time in which nobody is connected.
            tokio::time::sleep(Duration::from_secs(away)).await;
            let is_filled = take(3, 9).await;
            if changes_leader == (term_of(&cluster) != term) {
                break is_filled;
            }
        };
        assert_eq!(is_filled, !changes_leader, "after {away} s of 9 s");
    }
}

/// Returns the number of the last election.
fn term_of(cluster: &EtcdCluster) -> u64 {
    let answer = cluster.ask(cluster.leader(), "kv/range", r#"{"key":"YQ=="}"#).expect("an answer");
    let term = answer.split_once(r#""raft_term":""#).and_then(|(_, rest)| rest.split('"').next());
    term.and_then(|term| term.parse().ok()).expect("a term")
}

/// A wait that comes and goes writes the value, but leaves it under its lease: so etcd ends it at last, even if time
/// stands still between such visits.
#[tokio::test]
async fn visits_do_not_prolong_the_life_of_a_value() {
    let Some(server) = EtcdServer::start() else { return };
    let (one, two) = (process(&server.url(), 1).await, process(&server.url(), 2).await);
    let (mut number, mut answered) = (0, 0);
    until("three visits that etcd has answered in time", async || {
        number += 1;
        let name = number.to_string();
        let lease = || Seen::of(&server, &format!("locker/key/lock:{name}")).word("lease").map(str::to_owned);
        let guard = hold(&one, &name, Duration::from_secs(40)).await;
        let before = lease();
        assert!(before.is_some(), "it is under a lease");
        let visit = two.lock(&name).timeout(Duration::from_millis(100)).acquire().await;
        // One without its answer is remembered for a minute, which is longer than the hold.
        if visit.unwrap_err().kind() == ErrorKind::TimedOut {
            assert_eq!(lease(), before);
            answered += 1;
        }
        guard.release().await.unwrap();
        if answered == 3 {
            let _longer = hold(&two, &name, Duration::from_secs(400)).await;
            assert_ne!(lease(), before, "a later end needs a longer one");
        }
        answered == 3
    })
    .await;
}

#[tokio::test]
async fn distant_process_is_served_beside_ticks() {
    let Some(server) = EtcdServer::start() else { return };
    let near = process(&server.url(), 1).await;
    let proxy = Proxy::to(server.port());
    let far = open_far(&proxy).await;
    proxy.set(Fault::Delay(Duration::from_millis(400)));
    processes::far_process_is_served_beside_ticks(near, &far).await;
}

async fn open_far(proxy: &Proxy) -> Locker {
    let url = format!("etcd://127.0.0.1:{}", proxy.port());
    let locker = Locker::builder().url(url.as_str()).command_timeout(GENEROUS);
    in_time("a store", locker.timeout(Duration::from_secs(60)).build()).await.unwrap()
}

/// The release of a visit leaves its time behind, also of one that blocks a thread and ends right after it.
#[test]
fn release_ticks() {
    let Some(server) = EtcdServer::start() else { return };
    let locker = block_on(process(&server.url(), 1));
    let guard = locker.lock("a").acquire_blocking().unwrap();
    let before = Seen::of(&server, CLOCK).word("value").map(str::to_owned);
    guard.release_blocking().unwrap();
    let after = Seen::of(&server, CLOCK).word("value").map(str::to_owned);
    assert_ne!(before, after);
}

/// Makes writes of another application until the cluster has this revision.
fn reach(server: &EtcdServer, revision: i64) {
    let put = format!(r#"{{"key":"{}","value":""}}"#, base64("other"));
    let next = || {
        let answer = server.ask("kv/put", &put).expect("a write of the gateway");
        answer.split_once(r#""revision":""#)?.1.split('"').next()?.parse::<i64>().ok()
    };
    let mut present = next().unwrap();
    assert!(present <= revision, "{present} is beyond {revision}");
    while present < revision {
        present = next().unwrap();
    }
}

/// The directory of a member is replaced by a copy, without new numbers for its revisions. Another process then writes
/// a value that has the very revision of the one that this process remembers.
#[tokio::test]
async fn values_of_before_a_copy_are_not_believed() {
    let Some(mut server) = EtcdServer::start() else { return };
    let (one, two) = (process(&server.url(), 1).await, process(&server.url(), 2).await);
    let lease = Duration::from_secs(30);
    let use_again = async |locker: &Locker, name: &str| {
        until("the cluster", async || {
            let guard = locker.lock(name).timeout(Duration::from_secs(2)).acquire().await;
            let Ok(guard) = guard else { return false };
            guard.release().await.is_ok()
        })
        .await;
    };
    use_again(&one, "a").await;
    use_again(&two, "b").await;
    let copies = server.directory().with_extension("copies");
    let copy = |from: &Path, to: &Path| {
        let _ = std::fs::remove_dir_all(to);
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    server.kill();
    copy(server.directory(), &copies);
    server.restart();
    use_again(&one, "a").await;
    let revision_of = |server: &EtcdServer, name: &str| {
        Seen::of(server, &format!("locker/key/lock:{name}")).number("mod_revision")
    };
    let (mut remembered, mut last) = (Vec::new(), revision_of(&server, "a"));
    for name in ["c", "d", "e", "f", "g", "h", "i", "j"] {
        // The processes make some writes when they connect again.
        reach(&server, last + 100);
        hold(&one, name, lease).await.release().await.unwrap();
        last = revision_of(&server, name);
        remembered.push((name, last));
    }
    server.kill();
    copy(&copies, server.directory());
    server.restart();
    for (locker, name) in [(&one, "a"), (&two, "b"), (&one, "a")] {
        use_again(locker, name).await;
    }
    let mut same = 0;
    for (name, revision) in remembered {
        reach(&server, revision - 1);
        let guard = hold(&two, name, lease).await;
        // Unless a tick of the clock came in between.
        same += usize::from(revision_of(&server, name) == revision);
        let other = one.lock(name).lease(lease).try_acquire().await;
        assert!(!matches!(other, Ok(Some(_))), "two hold {name}");
        guard.release().await.unwrap();
    }
    assert!(same > 0, "no value had the revision of the one before the copy");
    std::fs::remove_dir_all(&copies).unwrap();
}
