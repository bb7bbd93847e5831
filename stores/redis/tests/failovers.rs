//! What a failover costs: how long it takes, which holds it ends, and what fences do.

use crate::support::{LAST_FENCE, builder, clock, connect, hold, holder, in_time, until};
use locker::{Guard, Locker};
use locker_harness::{RedisServer, SentinelSetup};
use std::time::{Duration, Instant};

/// Longer than a failover.
const LONG: Duration = Duration::from_secs(20);

/// Shorter than the failover of a killed master.
const SHORT: Duration = Duration::from_secs(2);

const BEHIND: Duration = Duration::from_secs(30);

/// Locks four names that begin like this.
async fn hold_four(locker: &Locker, kind: &str, lease: Duration) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..4 {
        guards.push(locker.lock(&format!("{kind} {number}")).lease(lease).acquire().await.unwrap());
    }
    guards
}

fn has(server: &RedisServer, guard: &Guard) -> bool {
    holder(server, guard.key()).as_deref() == Some(guard.id())
}

/// Returns when the hold was lost, and its latest deadline by the local clock.
async fn watch(guard: &Guard) -> (Instant, Instant) {
    let mut deadline = Instant::now();
    loop {
        let now = Instant::now();
        let left = guard.remaining();
        if left.is_zero() {
            return (now, deadline);
        }
        deadline = now + left;
        tokio::select! {
            () = guard.lost() => return (Instant::now(), deadline),
            // The interval of the samples.
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}

/// Holds that the replicas have live on. The others end, before their deadlines, and the fences of their successors are
/// higher. Prints what that took.
async fn fail_over(kill: bool) {
    let Some(mut setup) = SentinelSetup::start() else { return };
    let holders = connect(&setup.url()).await;
    // Another command timeout makes a store of its own, as in another process.
    let others = builder(&setup.url()).command_timeout(Duration::from_millis(310)).build().await.unwrap();
    let kept = hold_four(&holders, "kept", LONG).await;
    until("the holds at the replicas", async || {
        setup.servers()[1..].iter().all(|replica| kept.iter().all(|guard| has(replica, guard)))
    })
    .await;
    setup.cut_replication(0);
    let gone = hold_four(&holders, "gone", LONG).await;
    let short = hold_four(&holders, "short", SHORT).await;
    let watching: Vec<_> = gone
        .into_iter()
        .map(|guard| {
            tokio::spawn(async move {
                let (lost, deadline) = watch(&guard).await;
                (guard, lost, deadline)
            })
        })
        .collect();

    let begun = Instant::now();
    if kill {
        setup.kill(0);
    }
    let switching = tokio::task::spawn_blocking(move || {
        let new = if kill { setup.successor(0) } else { setup.fail_over() };
        (Instant::now(), new, setup)
    });
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        let others = others.clone();
        // Until the failover, the holds of the old master are in the way.
        tasks.spawn(async move { (hold(&others, &format!("gone {number}")).await, Instant::now()) });
    }
    let (switched, new, setup) = in_time("the switch", switching).await.unwrap();
    let mut next = in_time("grants of the new master", tasks.join_all()).await;
    let new = &setup.servers()[new];
    next.sort_by(|(one, _), (other, _)| one.key().cmp(other.key()));
    let granted = next.iter().map(|(_, at)| *at).min().unwrap();
    let first = granted.saturating_duration_since(switched);
    assert!(first < Duration::from_secs(3), "{first:?} from the switch to the first grant");

    let mut believed = Duration::ZERO;
    for (watched, (next, granted)) in watching.into_iter().zip(&next) {
        let (guard, lost, deadline) = in_time("the loss", watched).await.unwrap();
        assert!(has(new, next) && next.is_held() && !guard.is_held());
        assert!(lost <= deadline && lost < switched + LONG, "{:?} late", lost - deadline);
        assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
        believed = believed.max(lost.saturating_duration_since(*granted));
    }
    until("the renewals", async || kept.iter().all(|guard| has(new, guard))).await;
    assert!(kept.iter().all(Guard::is_held));
    // Their leases ended, or the new master does not know them.
    until("the end of short holds", async || short.iter().all(|guard| !guard.is_held())).await;
    println!(
        "{}: switched after {:?}, the first grant {first:?} later; 8 of 12 holds lost, the replicas had none of them; \
         two believed to hold a lock for {believed:?} at most",
        if kill { "master killed" } else { "forced" },
        switched - begun,
    );
    for guard in kept {
        let (key, fence) = (guard.key().strip_prefix("lock:").unwrap().to_owned(), guard.fence());
        guard.release().await.unwrap();
        assert!(hold(&others, &key).await.fence() > fence);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_failover_ends_holds_that_no_replica_has() {
    fail_over(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_master_ends_holds_that_no_replica_has() {
    fail_over(true).await;
}

/// The replicas have the record of the last fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_at_a_master_whose_clock_is_behind() {
    let Some(setup) = SentinelSetup::with_clocks_behind(BEHIND, &[], "") else { return };
    let [old, replicas @ ..] = setup.servers() else { unreachable!("three servers") };
    let locker = connect(&setup.url()).await;
    let released = hold(&locker, "released").await;
    let mut fences = vec![("released", released.fence())];
    released.release().await.unwrap();
    let held = locker.lock("held").lease(LONG).acquire().await.unwrap();
    fences.push(("held", held.fence()));
    let permit = locker.semaphore("permit", 1).acquire().await.unwrap();
    let of_permit = permit.fence();
    permit.release().await.unwrap();
    let copy = |server: &RedisServer| server.ask::<Option<String>>("GET", &[LAST_FENCE]);
    let first = copy(old);
    assert_eq!(first, Some(of_permit.to_string()));
    until("the record at the replicas", async || replicas.iter().all(|replica| copy(replica) == first)).await;
    let new = &setup.servers()[setup.fail_over()];
    let behind = clock(old).saturating_sub(clock(new));
    assert!(behind.abs_diff(BEHIND) < Duration::from_secs(5), "the clock is {behind:?} behind");
    until("the hold at the new master", async || {
        let probe = hold(&locker, "probe").await;
        let is_there = has(new, &probe);
        drop(probe.release().await);
        is_there
    })
    .await;
    assert!(held.is_held() && has(new, &held));
    held.release().await.unwrap();
    for (name, fence) in fences {
        let guard = hold(&locker, name).await;
        assert!(has(new, &guard) && guard.fence() > fence, "{name}: {} after {fence}", guard.fence());
        // By its own clock, the new master would have given a lower one.
        assert!(Duration::from_micros(guard.fence()) > clock(new));
    }
    let permit = locker.semaphore("permit", 1).acquire().await.unwrap();
    assert!(permit.fence() > of_permit, "{} after {of_permit}", permit.fence());
}
