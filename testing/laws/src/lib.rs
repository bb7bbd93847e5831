//! What holds must do in the sight of several processes: lockers with stores of their own.

#![allow(clippy::missing_panics_doc, reason = "a law that is broken panics")]

use locker_harness::Lateness;
use locker_runtime::{ErrorKind, Locker};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long anybody waits. A hold that others keep alive by what they do never ends, so this is no measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a store as another process does. All lockers of one process with the same options share a store, so each gets
/// another limit. A busy machine may need longer than one attempt has.
pub async fn process(url: &str, number: u64) -> Locker {
    let locker = Locker::builder().url(url).command_timeout(Duration::from_millis(1_000 + number));
    let (locker, started) = (locker.timeout(PATIENCE), Instant::now());
    loop {
        match locker.clone().build().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && started.elapsed() < PATIENCE => {}
            built => return built.expect("a store"),
        }
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A process that sees the key for the first time renews the hold, for less than was left of it at first.
pub async fn renewal_elsewhere_lasts(url: &str) {
    let [one, two, three] = [process(url, 1).await, process(url, 2).await, process(url, 3).await];
    one.keyed_lock("renewed").acquire("ann", secs(6.0), Duration::ZERO).await.unwrap();
    // This process knows the hold from the beginning.
    assert!(two.keyed_lock("renewed").acquire("bob", secs(6.0), Duration::ZERO).await.is_err());
    tokio::time::sleep(secs(4.5)).await;
    let renewed = Instant::now();
    assert!(three.keyed_lock("renewed").renew("ann", secs(4.0)).await.unwrap());
    let bob = two.keyed_lock("renewed").acquire("bob", secs(6.0), PATIENCE);
    bob.await.expect("the hold ends at last");
    let waited = renewed.elapsed();
    assert!(waited >= secs(3.9), "two hold it: it was renewed for 4 s, and ended after {waited:?}");
}

/// Others renew their permits all the time. If a machine is too busy for that, it is tried again.
pub async fn permit_of_a_dead_holder_comes_back(url: &str) {
    for number in 0..3 {
        if is_permit_of_the_dead_back(url, &format!("busy {number}")).await {
            return;
        }
    }
    panic!("holds are lost that are renewed");
}

/// Returns whether the others held theirs all the time.
async fn is_permit_of_the_dead_back(url: &str, name: &str) -> bool {
    const BUSY: u64 = 8;
    let lease = secs(6.0);
    let dead = process(url, 1).await;
    dead.keyed_semaphore(name, BUSY + 1).acquire("dead", lease, Duration::ZERO).await.unwrap();
    let (died, mut guards) = (Instant::now(), Vec::new());
    for number in 0..BUSY {
        let locker = process(url, 2 + number).await;
        guards.push(locker.semaphore(name, BUSY + 1).lease(lease).acquire().await.unwrap());
        tokio::time::sleep(lease / 24).await;
    }
    let last = process(url, 2 + BUSY).await;
    let permit = last.semaphore(name, BUSY + 1).acquire().await.expect("the permit of the dead");
    let waited = died.elapsed();
    let are_held = guards.iter().all(|guard| guard.check().is_ok());
    assert!(!are_held || waited >= lease / 100 * 99, "{waited:?}");
    drop(permit);
    are_held
}

/// Each process that tries comes for a moment only.
pub async fn short_visits_do_not_keep_a_dead_holder(url: &str) {
    let (lease, dead) = (secs(2.0), process(url, 1).await);
    dead.keyed_lock("visited").acquire("dead", lease, Duration::ZERO).await.unwrap();
    drop(dead);
    let (mut connected, mut number) = (Duration::ZERO, 1);
    loop {
        number += 1;
        let visitor = process(url, number).await;
        let came = Instant::now();
        let got = visitor.lock("visited").timeout(secs(0.2)).acquire().await;
        connected += came.elapsed();
        if let Ok(guard) = got {
            return drop(guard.release().await);
        }
        assert!(connected < PATIENCE, "{number} visits");
        drop(visitor);
        tokio::time::sleep(secs(0.1)).await;
    }
}

/// One process waits, and has just seen the value. When another process sends a message about the key, the waiters ask
/// the store in spite of that.
pub async fn waiters_hear_of_other_processes(url: &str) {
    let [one, two] = [process(url, 1).await, process(url, 2).await];
    let (event, latch) = (one.event("told"), one.latch("told", 1));
    let waits = async {
        tokio::join!(event.wait(secs(30.0)), latch.wait(secs(30.0)), async {
            let keys = [one.admin().key("event", "told"), one.admin().key("latch", "told")];
            for key in keys {
                while one.admin().inspect(&key).await.unwrap().is_none_or(|state| state.waiting == 0) {}
            }
            let told = Instant::now();
            two.event("told").send("now").await.unwrap();
            two.latch("told", 1).count_down().await.unwrap();
            told
        })
    };
    let (message, passed, told) = waits.await;
    let took = told.elapsed();
    passed.unwrap();
    assert_eq!(message.unwrap(), "now");
    assert!(took < secs(4.0), "they would ask again after 5 s on their own: {took:?}");
}

/// The write of a process that is far away, behind a delay of 800 ms, always comes after a tick that others make. It is
/// repeated, and then counts all the same.
pub async fn far_process_is_served_beside_ticks(near: Locker, far: &Locker) {
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    let ticks = tokio::spawn(async move {
        loop {
            if let Ok(guard) = near.lock("near").acquire().await {
                drop(guard.release().await);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(secs(0.1)).await;
        }
    });
    for _ in 0..3 {
        let (machine, asked) = (Lateness::measure(), Instant::now());
        // A release waits for a third of the lease.
        let guard = far.lock("far").lease(secs(90.0)).timeout(PATIENCE).acquire().await.unwrap();
        let took = asked.elapsed();
        assert!(took < secs(10.0) + machine.worst(), "it starves: {took:?}");
        guard.release().await.unwrap();
    }
    ticks.abort();
    assert!(rounds.load(Ordering::Relaxed) > 3);
}
