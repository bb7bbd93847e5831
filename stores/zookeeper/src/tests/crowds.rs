//! Processes that share a lock while servers are killed, stopped and started.

use super::*;
use futures_util::future::join_all;
use locker_harness::ZookeeperCluster;
use locker_runtime::Guard;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// How long the servers are broken.
const BROKEN: Duration = Duration::from_secs(20);

/// Holders that enter one after the other, with rising fences.
#[derive(Default)]
struct Critical {
    is_taken: AtomicBool,
    fences: Mutex<Vec<u64>>,
}

impl Critical {
    async fn pass(&self, guard: Guard) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two holders at once");
        let fence = guard.fence();
        {
            let mut fences = self.fences.lock().unwrap();
            assert!(fences.last().is_none_or(|last| *last < fence), "{fence} after {:?}", fences.last());
            fences.push(fence);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.is_taken.store(false, Ordering::SeqCst);
        // Without an answer it is repeated in the background.
        drop(guard.release().await);
    }
}

/// Kills and stops one server after the other. Returns how many.
async fn break_servers(cluster: &mut ZookeeperCluster) -> usize {
    let (started, mut rounds) = (Instant::now(), 0);
    while started.elapsed() < BROKEN {
        let server = if rounds % 2 == 0 {
            tokio::task::block_in_place(|| cluster.leader())
        } else {
            fastrand::usize(..3)
        };
        if rounds % 3 == 0 {
            cluster.kill(server);
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            cluster.restart(server);
        } else {
            cluster.stop(server);
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.cont(server);
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        tokio::task::block_in_place(|| cluster.settle());
        rounds += 1;
    }
    rounds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_has_one_holder_while_servers_break() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
    let (critical, is_over) = (Critical::default(), AtomicBool::new(false));
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(process(&cluster.url()).await);
    }
    let work = async |locker: &Locker| {
        let mut passed = 0;
        while !is_over.load(Ordering::Relaxed) {
            let lock = locker.lock("shared").lease(Duration::from_secs(10)).timeout(Duration::from_secs(5));
            if let Ok(guard) = lock.acquire().await {
                critical.pass(guard).await;
                passed += 1;
            }
        }
        passed
    };
    let breaking = async {
        let rounds = break_servers(&mut cluster).await;
        until("all at work again", async || {
            let passed = critical.fences.lock().unwrap().len();
            tokio::time::sleep(Duration::from_secs(1)).await;
            critical.fences.lock().unwrap().len() > passed + 4
        })
        .await;
        is_over.store(true, Ordering::Relaxed);
        rounds
    };
    let (rounds, passed) = tokio::join!(breaking, futures_util::future::join_all(lockers.iter().map(work)));
    assert!(rounds >= 2 && passed.iter().all(|passed| *passed > 3), "{rounds} rounds, {passed:?}");
    println!("{rounds} rounds, {passed:?}");
}

/// What has become of the writes of one process, each of which adds a number of its own.
#[derive(Default)]
struct Written {
    done: Vec<u64>,
    refused: Vec<u64>,
    unknown: Vec<u64>,
}

async fn add_numbers(party: &Party<Zookeeper>, key: &Key, first: u64, is_over: &AtomicBool) -> Written {
    let (mut written, mut number) = (Written::default(), first);
    while !is_over.load(Ordering::Relaxed) {
        let (version, value) = read_in_spite_of_errors(party, key).await;
        number += 1;
        let next = [value.unwrap_or_default(), number.to_be_bytes().to_vec()].concat();
        let of =
            match in_time("an answer", party.backend.exchange(contract::write(key, version, &next))).await {
                Ok(Outcome::Matched { .. }) => &mut written.done,
                Err(error) if !error.is_certain() => &mut written.unknown,
                _ => &mut written.refused,
            };
        of.push(number);
    }
    written
}

/// What was answered is there once, what was refused for certain never, and what is unknown at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_true_while_servers_break() {
    let Some(mut cluster) = ZookeeperCluster::start(3) else { return };
    let (key, is_over) = (contract::fresh("numbers"), AtomicBool::new(false));
    let mut parties = Vec::new();
    for _ in 0..4 {
        parties.push(impatient(&cluster.url()).await);
    }
    let breaking = async {
        let rounds = break_servers(&mut cluster).await;
        is_over.store(true, Ordering::Relaxed);
        rounds
    };
    let numbers = (0_u64..).step_by(1 << 32);
    let adding = parties.iter().zip(numbers).map(|(party, first)| add_numbers(party, &key, first, &is_over));
    let (rounds, written) = tokio::join!(breaking, futures_util::future::join_all(adding));
    // Late requests have arrived by then, or never will.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, value) = read_in_spite_of_errors(&parties[0], &key).await;
    let mut present: Vec<_> =
        value.unwrap().chunks(8).map(|number| u64::from_be_bytes(number.try_into().unwrap())).collect();
    let count = present.len();
    present.sort_unstable();
    present.dedup();
    assert_eq!(present.len(), count, "a number is there twice");
    let is_present = |number: &u64| present.binary_search(number).is_ok();
    let (mut done, mut unknown) = (0, 0);
    for Written { done: all, refused, unknown: may_be } in &written {
        assert!(all.iter().all(is_present), "an answered write is lost");
        assert!(!refused.iter().any(is_present), "a refused write was carried out");
        (done, unknown) = (done + all.len(), unknown + may_be.len());
    }
    let of_unknown = count - done;
    assert!(rounds >= 2 && done > 100 && of_unknown <= unknown, "{rounds} {done} {unknown} {count}");
    println!("{rounds} rounds, {done} done, {of_unknown} of {unknown} unknown ones");
}

/// A release wakes the waiter of another process. It would ask again by itself only after a second and more.
#[tokio::test]
async fn waiters_hear_of_other_processes() {
    let Some(server) = ZookeeperServer::start() else { return };
    let (one, two) = (process(&server.url()).await, process(&server.url()).await);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let guard = one.lock("told").acquire().await.unwrap();
        let waits = async {
            let next = two.lock("told").acquire().await.unwrap();
            (next, Instant::now())
        };
        let freed = async {
            let (queue, key) = (one.admin(), one.admin().key("lock", "told"));
            until("its place in the queue", async || {
                queue.inspect(&key).await.unwrap().is_some_and(|state| state.waiting == 1)
            })
            .await;
            let released = Instant::now();
            guard.release().await.unwrap();
            released
        };
        let ((next, taken), released) = in_time("a hand-off", async { tokio::join!(waits, freed) }).await;
        quickest = quickest.min(taken - released);
        next.release().await.unwrap();
    }
    assert!(quickest < Duration::from_millis(500), "{quickest:?}");
}

/// The transactions of the ensemble so far.
async fn transactions(store: &Zookeeper) -> i64 {
    let done = link(store).await.multi(vec![Op::Check("/locker/key".into(), ANY)]).await.unwrap();
    assert!(matches!(done, crate::ops::Done::All(_)));
    store.exchange.client.zxid()
}

/// Insertions into one bucket do not refuse each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_uses_cost_a_few_transactions_each() {
    let Some(server) = ZookeeperServer::start() else { return };
    let observer = party(&server.url()).await.backend;
    for keys in [500, 4_000] {
        let mut opening = Opening::default();
        opening.network.command_timeout = Duration::from_secs(10);
        let locker = locker(&server.url(), &opening).await;
        let before = transactions(&observer).await;
        let held = (0..keys).map(|number| {
            let lock = locker.lock(&format!("{keys} {number}")).lease(Duration::from_secs(300));
            async move { lock.acquire().await.unwrap() }
        });
        let guards = join_all(held).await;
        let each = (transactions(&observer).await - before) / keys;
        assert!(each <= 4, "{keys} locks took {each} transactions each");
        drop(guards);
    }
}

/// Other values of the bucket were inserted by this process since the last write.
#[tokio::test]
async fn write_beside_own_insertions_is_one_transaction() {
    let Some(server) = ZookeeperServer::start() else { return };
    let one = party(&server.url()).await;
    let (key, keys) = (contract::fresh("held"), &one.backend.exchange.keys);
    let bucket = keys.place(key.as_str()).unwrap().bucket;
    let is_beside = |key: &Key| keys.place(key.as_str()).unwrap().bucket == bucket;
    let neighbours = (0..).map(|number| Key::new(&format!("lock:{number}"))).filter(is_beside).take(5);
    let mut version = one.write(contract::write(&key, 0, b"x")).await;
    let mut least = i64::MAX;
    for neighbour in neighbours {
        one.write(contract::write(&neighbour, 0, b"x")).await;
        let before = transactions(&one.backend).await;
        version = one.write(contract::write(&key, version, b"x")).await;
        // The clock may tick beside it.
        least = least.min(transactions(&one.backend).await - before - 1);
    }
    assert_eq!(least, 1);
}
