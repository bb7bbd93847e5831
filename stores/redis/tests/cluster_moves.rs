//! Redis Cluster: slots that move, and replicas that take over.

use crate::{
    cluster::{connect_apart, fresh, has, queue_at, refused, shared, url_apart},
    support::{GENEROUS, commands_run, connect, connect_patiently, hold, holder, in_time, until, waiting},
};
use locker::{ErrorKind, Locker, Quota};
use locker_harness::{ClusterSetup, RedisServer, Signal};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// A waiter whose slot moves is granted the lock at once by the next owner, to which its process was connected before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_granted_the_lock_after_its_slot_has_moved() {
    // The slot stays where it is then: no other test has names in it.
    let Some(setup) = shared() else { return };
    let (ours, theirs) = (connect_apart(&setup, 4).await, connect_apart(&setup, 5).await);
    let name = fresh(&setup, 0, "moved");
    let (key, slot) = (format!("lock:{name}"), setup.slot(&format!("lock:{name}")));
    let guard = hold(&ours, &name).await;
    let waiters = [
        queue_at(&setup.servers()[0], &theirs, &name).await,
        queue_at(&setup.servers()[0], &ours, &name).await,
    ];
    setup.move_slot(slot, 0, 1);
    assert!(has(&setup.servers()[1], &name, &guard));
    guard.release().await.unwrap();
    assert!(holder(&setup.servers()[1], &key).is_some(), "the waiters were taken for dead");
    for waiter in waiters {
        let guard = in_time("the lock", waiter).await.unwrap();
        assert!(has(&setup.servers()[1], &name, &guard));
        guard.release().await.unwrap();
    }
    // Nobody's hold is at two nodes.
    assert_eq!((holder(&setup.servers()[1], &key), waiting(&setup.servers()[1], &key)), (None, 0));
}

/// What tasks do at names whose slots move.
#[derive(Default)]
struct Work {
    inside: AtomicI64,
    permits: AtomicI64,
    locks: AtomicU64,
    grants: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

const SIZE: u64 = 200;

async fn lock_on(locker: Locker, name: String, work: Arc<Work>) {
    let mut last = 0;
    while !work.is_over.load(Ordering::SeqCst) {
        let guard = hold(&locker, &name).await;
        assert_eq!(work.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        tokio::task::yield_now().await;
        work.inside.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.expect("a hold that was not lost");
        work.locks.fetch_add(1, Ordering::SeqCst);
    }
}

async fn take_permits(locker: Locker, name: String, work: Arc<Work>) {
    while !work.is_over.load(Ordering::SeqCst) {
        let permit = locker.semaphore(&name, 2).timeout(GENEROUS).acquire().await.expect("a permit");
        assert!(work.permits.fetch_add(1, Ordering::SeqCst) < 2, "three hold two permits");
        tokio::task::yield_now().await;
        work.permits.fetch_sub(1, Ordering::SeqCst);
        permit.release().await.expect("a permit that was not lost");
        work.grants.fetch_add(1, Ordering::SeqCst);
    }
}

async fn take_tokens(locker: Locker, name: String, work: Arc<Work>) {
    let limiter = locker.rate_limiter(&name, Quota::fixed_window(SIZE, Duration::from_secs(36_000)));
    let limiter = limiter.timeout(GENEROUS);
    while !work.is_over.load(Ordering::SeqCst) {
        match limiter.acquire().await {
            Ok(_) => work.admitted.fetch_add(1, Ordering::SeqCst),
            Err(error) if error.kind() == ErrorKind::Limited => work.refused.fetch_add(1, Ordering::SeqCst),
            Err(error) => panic!("{error}"),
        };
        // The load: it waits for nothing.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Two processes use a lock, a semaphore and a limiter all the time, and no call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_in_use_move_back_and_forth() {
    let Some(setup) = shared() else { return };
    let name = |kind| format!("hot {}", setup.name_at(0, &format!("{kind}hot ")));
    let names = ["lock:", "semaphore:", "rate:"].map(name);
    let slots = [("lock:", &names[0]), ("semaphore:", &names[1]), ("rate:", &names[2])]
        .map(|(prefix, name)| setup.slot(&format!("{prefix}{name}")));
    let (work, mut tasks) = (Arc::new(Work::default()), JoinSet::new());
    for rank in 0..4 {
        // A late admission that is asked for again counts twice.
        let locker = connect_patiently(&url_apart(&setup, rank % 2)).await;
        tasks.spawn(lock_on(locker.clone(), names[0].clone(), Arc::clone(&work)));
        tasks.spawn(take_permits(locker.clone(), names[1].clone(), Arc::clone(&work)));
        tasks.spawn(take_tokens(locker, names[2].clone(), Arc::clone(&work)));
    }
    let counts = || {
        [&work.locks, &work.grants]
            .map(|count| count.load(Ordering::SeqCst))
            .into_iter()
            .chain([work.admitted.load(Ordering::SeqCst) + work.refused.load(Ordering::SeqCst)])
    };
    let servers = setup.servers();
    let both = |code| refused(&servers[0], code) + refused(&servers[1], code);
    for round in 0..6 {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let before: Vec<_> = counts().collect();
        until("calls of each kind", async || {
            counts().zip(&before).all(|(count, before)| count > *before + 3)
        })
        .await;
        for slot in slots {
            let (again, ask) = (both("TRYAGAIN"), both("ASK"));
            setup.begin_move(slot, from, to);
            until("a call refused at both nodes", async || both("TRYAGAIN") > again).await;
            setup.move_keys(slot, from, to);
            until("a call sent to the next owner", async || both("ASK") > ask).await;
            setup.move_keys(slot, from, to);
            setup.end_move(slot, from, to);
        }
    }
    let before: Vec<_> = counts().collect();
    until("calls of each kind", async || counts().zip(&before).all(|(count, before)| count > *before + 3))
        .await;
    until("all tokens", async || work.refused.load(Ordering::SeqCst) > 3).await;
    work.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = in_time("the tasks", tasks.join_next()).await {
        ended.unwrap();
    }
    assert!(both("MOVED") > 0, "no call was redirected for good");
    assert_eq!(work.admitted.load(Ordering::SeqCst), SIZE);
}

/// The replica has the holds. They are renewed there, locks go on, and those of the other masters never stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_of_a_killed_master_takes_over() {
    let Some(mut setup) = ClusterSetup::that_fails_over() else { return };
    let locker = connect(&setup.url()).await;
    let names = [0, 1, 2].map(|master| fresh(&setup, master, "killed"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locker.lock(name).lease(Duration::from_secs(40)).acquire().await.unwrap());
    }
    let waiter = queue_at(&setup.servers()[0], &locker, &names[0]).await;
    let replica = &setup.servers()[ClusterSetup::MASTERS];
    let key = format!("lock:{}", names[0]);
    let keys = || replica.ask::<Vec<String>>("KEYS", &["*"]);
    until("the hold and the waiter at the replica", async || {
        keys().contains(&key) && keys().contains(&format!("{{{key}}}:w"))
    })
    .await;
    setup.kill(0);
    // The other masters go on meanwhile.
    let other = fresh(&setup, 1, "meanwhile");
    hold(&locker, &other).await.release().await.unwrap();
    let at_the_replica = fresh(&setup, 0, "later");
    let fresh_one = hold(&locker, &at_the_replica).await;
    let replica = &setup.servers()[ClusterSetup::MASTERS];
    assert!(has(replica, &at_the_replica, &fresh_one));
    fresh_one.release().await.unwrap();
    assert!(guards.iter().all(locker::Guard::is_held));
    let first = guards.remove(0);
    assert!(has(replica, &names[0], &first));
    let fence = first.fence();
    first.release().await.unwrap();
    let next = in_time("the waiter", waiter).await.unwrap();
    assert!(has(replica, &names[0], &next) && next.fence() > fence);
    next.release().await.unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }

    // The killed one comes back as the replica of the other, and takes over again: this time both live.
    setup.restart(0);
    let (guard, replica) = (hold(&locker, &names[0]).await, &setup.servers()[0]);
    until("a replica again", async || {
        replica.ask::<String>("INFO", &["replication"]).contains("master_link_status:up")
            && replica.ask::<Vec<String>>("KEYS", &["*"]).contains(&key)
    })
    .await;
    setup.promote(0);
    until("the hold at the first master", async || has(replica, &names[0], &guard)).await;
    guard.release().await.unwrap();
    hold(&locker, &names[0]).await.release().await.unwrap();
}

/// The list begins while the master does not answer, and ends with the keys that its successor has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_listed_over_a_failover() {
    let Some(setup) = ClusterSetup::that_fails_over() else { return };
    let locker = connect(&setup.url()).await;
    let name = fresh(&setup, 0, "listed");
    let guard = locker.lock(&name).lease(Duration::from_secs(600)).acquire().await.unwrap();
    let replica = &setup.servers()[ClusterSetup::MASTERS];
    let key = guard.key().to_owned();
    until("the hold at the replica", async || replica.ask::<Vec<String>>("KEYS", &["*"]).contains(&key))
        .await;
    setup.servers()[0].signal(Signal::STOP);
    let is_master = async || replica.ask::<String>("CLUSTER", &["NODES"]).contains("myself,master");
    let listing = async { (locker.admin().names().await, Instant::now()) };
    let promotion = async {
        until("the promotion", is_master).await;
        Instant::now()
    };
    let ((listed, ended), promoted) = tokio::join!(listing, promotion);
    match listed {
        Ok(listed) => assert_eq!(listed, [("lock".to_owned(), name)]),
        // A list does not wait for as long as a busy machine may need to promote.
        Err(error) => assert!(ended < promoted + Duration::from_secs(3), "{error}"),
    }
    assert!(replica.ask::<Vec<String>>("KEYS", &["*"]).contains(&key));
    setup.servers()[0].signal(Signal::CONT);
    guard.release().await.unwrap();
}

/// The grant never reached the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_that_the_replica_lacks_is_lost_with_its_master() {
    let Some(mut setup) = ClusterSetup::that_fails_over() else { return };
    let (ours, theirs) = (connect_apart(&setup, 0).await, connect_apart(&setup, 1).await);
    let name = fresh(&setup, 0, "unreplicated");
    setup.cut_replication(0);
    let guard = ours.lock(&name).lease(Duration::from_secs(600)).acquire().await.unwrap();
    setup.kill(0);
    let next = hold(&theirs, &name).await;
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held() && next.is_held());
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(has(&setup.servers()[ClusterSetup::MASTERS], &name, &next));
    next.release().await.unwrap();
}

/// The former master continues, and would still renew what its successor has granted to another caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_master_is_left_for_its_successor() {
    let Some(setup) = ClusterSetup::that_fails_over() else { return };
    let (ours, theirs) = (connect_apart(&setup, 1).await, connect_apart(&setup, 2).await);
    let name = fresh(&setup, 0, "stopped");
    setup.cut_replication(0);
    let guard = ours.lock(&name).lease(Duration::from_secs(600)).acquire().await.unwrap();
    setup.servers()[0].signal(Signal::STOP);
    let next = hold(&theirs, &name).await;
    assert!(has(&setup.servers()[ClusterSetup::MASTERS], &name, &next));
    in_time("the loss", guard.lost()).await;
    setup.servers()[0].signal(Signal::CONT);
    until("the demotion", async || {
        setup.servers()[0].ask::<String>("CLUSTER", &["NODES"]).contains("myself,slave")
    })
    .await;
    assert!(ours.lock(&name).try_acquire().await.unwrap().is_none());
    assert!(next.is_held() && has(&setup.servers()[ClusterSetup::MASTERS], &name, &next));
    next.release().await.unwrap();
    hold(&ours, &name).await.release().await.unwrap();
}

/// Its nodes have new ids, and their configurations begin with the same numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_is_created_anew_is_used_again() {
    let Some(mut setup) = ClusterSetup::that_fails_over() else { return };
    let locker = connect(&setup.url()).await;
    let former = locker.lock("former").lease(Duration::from_secs(600)).acquire().await.unwrap();
    setup.create_anew();
    in_time("the loss", former.lost()).await;
    for master in 0..ClusterSetup::MASTERS {
        let name = fresh(&setup, master, "anew");
        let guard = hold(&locker, &name).await;
        assert!(has(&setup.servers()[master], &name, &guard), "{name}");
    }
    assert!(hold(&locker, "former").await.fence() > former.fence());
}

/// A renewal named seven keys, most of which do not exist: the node refused it for as long as the slot moved, and the
/// holds ended although they were at one node all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_live_through_a_long_move_of_their_slot() {
    let Some(setup) = shared() else { return };
    let locker = connect_apart(&setup, 3).await;
    let name = |kind| setup.name_at(0, &format!("{kind}long "));
    let (lock, permit) = (format!("long {}", name("lock:")), format!("long {}", name("semaphore:")));
    let guards = [
        hold(&locker, &lock).await,
        in_time("the permit", locker.semaphore(&permit, 2).acquire()).await.unwrap(),
    ];
    // A semaphore is kept for a minute longer than its holds.
    let keys = [(guards[0].key(), 0), (guards[1].key(), 60_000)];
    for (key, _) in keys {
        setup.begin_move(setup.slot(key), 0, 1);
    }
    let left = |key: &str| setup.servers()[0].ask::<i64>("PTTL", &[key]);
    for (key, more) in keys {
        until("a lease that runs", async || left(key) < more + 4_500).await;
        until("a renewal", async || left(key) > more + 5_000).await;
    }
    assert!(guards.iter().all(locker::Guard::is_held));
    for (key, _) in keys {
        setup.move_keys(setup.slot(key), 0, 1);
        setup.end_move(setup.slot(key), 0, 1);
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Each failed call made all nodes be asked at once: 13 times a second with 32 callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_calls_ask_the_nodes_less_and_less() {
    let Some(setup) = ClusterSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let masters = &setup.servers()[..ClusterSetup::MASTERS];
    for server in setup.servers() {
        let _: String = server.ask("CONFIG", &["SET", "cluster-require-full-coverage", "yes"]);
    }
    let slot = setup.slot("lock:nobody").to_string();
    let is_down = |server: &RedisServer| {
        let info: String = server.ask("CLUSTER", &["INFO"]);
        // A node that has removed the slot takes it again from a message of the owner that has not removed it yet.
        if info.contains("slots_assigned:16384") {
            let _: redis::Value = server.ask("CLUSTER", &["DELSLOTS", &slot]);
        }
        info.contains("state:fail") && info.contains("slots_assigned:16383")
    };
    until("refusals", async || setup.servers().iter().filter(|server| !is_down(server)).count() == 0).await;
    // Redis 6.2 does not count subcommands.
    let asked = || commands_run(&masters[1], |name| matches!(name, "cluster|nodes" | "cluster"));
    let before = asked();
    let mut callers = JoinSet::new();
    for number in 0..32 {
        let lock = locker.lock(&format!("down {number}")).timeout(Duration::from_secs(5));
        callers.spawn(async move { lock.acquire().await.map(drop) });
    }
    while let Some(refused) = in_time("the callers", callers.join_next()).await {
        assert_eq!(refused.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let asked = asked() - before;
    assert!((1..25).contains(&asked), "asked {asked} times in 5 s");
}

/// The claims of the removed master had the highest number, so that its slots stayed there until a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_removed_master_have_another_owner() {
    let Some(mut setup) = ClusterSetup::start() else { return };
    let locker = connect(&setup.url()).await;
    let name = setup.name_at(2, "lock:");
    let guard = locker.lock(&name).lease(Duration::from_secs(600)).acquire().await.unwrap();
    let gone = [2, 2 + ClusterSetup::MASTERS];
    let ids = gone.map(|node| setup.servers()[node].ask::<String>("CLUSTER", &["MYID"]));
    for node in gone {
        setup.kill(node);
    }
    let left = |node: &usize| !gone.contains(node);
    for node in (0..setup.servers().len()).filter(left) {
        for id in &ids {
            let _: String = setup.servers()[node].ask("CLUSTER", &["FORGET", id]);
        }
    }
    let slots: Vec<_> = (10_922..16_384).map(|slot| slot.to_string()).collect();
    let slots: Vec<_> = ["ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
    let _: String = setup.servers()[0].ask("CLUSTER", &slots);
    let next = hold(&locker, &name).await;
    assert!(has(&setup.servers()[0], &name, &next));
    in_time("the loss", guard.lost()).await;
}
