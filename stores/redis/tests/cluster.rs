//! Redis Cluster: the way to the node of a key, and what the nodes tell each other. All nodes live.

use crate::support::{
    GENEROUS, builder, connect, ghost_run, hold, holder, in_time, scripts_run, until, waiting,
};
use locker::{ErrorKind, Guard, Locker, Quota};
use locker_harness::{ClusterSetup, RedisServer, Shared, Signal, free_port};
use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::{JoinHandle, JoinSet};

/// A cluster of the tests that leave it as it was.
pub(crate) fn shared() -> Option<Arc<ClusterSetup>> {
    static SETUP: Shared<ClusterSetup> = Shared::new();
    SETUP.get(ClusterSetup::start)
}

/// Connects a locker with connections of its own, as another process has.
pub(crate) async fn connect_apart(setup: &ClusterSetup, rank: usize) -> Locker {
    connect(&url_apart(setup, rank)).await
}

/// Returns a URL with the servers in another order.
pub(crate) fn url_apart(setup: &ClusterSetup, rank: usize) -> String {
    let mut ports: Vec<_> = setup.servers().iter().map(RedisServer::port).collect();
    let ranks = ports.len();
    ports.rotate_left(rank % ranks);
    setup.url_through(&ports)
}

/// A name of a lock at this master that no other test uses.
pub(crate) fn fresh(setup: &ClusterSetup, master: usize, test: &str) -> String {
    let mut names = (0..).map(|number| format!("{test} {master} {number}"));
    names.find(|name| setup.first_owner(&format!("lock:{name}")) == master).expect("a name")
}

pub(crate) fn has(server: &RedisServer, name: &str, guard: &Guard) -> bool {
    holder(server, &format!("lock:{name}")).as_deref() == Some(guard.id())
}

/// Starts a waiter for a lock, and returns when it is queued.
pub(crate) async fn queue_at(server: &RedisServer, locker: &Locker, name: &str) -> JoinHandle<Guard> {
    let (key, locker, own) = (format!("lock:{name}"), locker.clone(), name.to_owned());
    let before = waiting(server, &key);
    let waiter = tokio::spawn(async move { hold(&locker, &own).await });
    until("the waiter in the queue", async || waiting(server, &key) > before).await;
    waiter
}

/// Returns how often a node has refused with this error.
pub(crate) fn refused(server: &RedisServer, code: &str) -> u64 {
    let statistics: String = server.ask("INFO", &["errorstats"]);
    let count = |line: &str| line.strip_prefix(&format!("errorstat_{code}:count="))?.trim().parse().ok();
    statistics.lines().find_map(count).unwrap_or(0)
}

#[tokio::test]
async fn every_key_is_at_the_node_of_its_slot() {
    let Some(setup) = shared() else { return };
    let locker = connect(&setup.url()).await;
    let shown = format!("{locker:?}");
    assert!(shown.contains("Redis(redis+cluster://127.0.0.1:"), "{shown}");
    for master in 0..ClusterSetup::MASTERS {
        let name = fresh(&setup, master, "routed");
        let guard = hold(&locker, &name).await;
        assert!(has(&setup.servers()[master], &name, &guard), "{name}");
        assert!(locker.lock(&name).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// Each connection of the background thread receives the messages for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_granted_the_lock_by_every_node() {
    let Some(setup) = shared() else { return };
    let (ours, theirs) = (connect_apart(&setup, 0).await, connect_apart(&setup, 1).await);
    for master in 0..ClusterSetup::MASTERS {
        let (name, server) = (fresh(&setup, master, "granted"), &setup.servers()[master]);
        let guard = hold(&ours, &name).await;
        let waiters = [queue_at(server, &theirs, &name).await, queue_at(server, &ours, &name).await];
        guard.release().await.unwrap();
        for waiter in waiters {
            // The release has granted it: the node has counted the waiter's process among its own clients.
            assert!(holder(server, &format!("lock:{name}")).is_some(), "{name}");
            in_time("the lock", waiter).await.unwrap().release().await.unwrap();
        }
    }
}

/// Nodes pass messages on to each other, so each comes over three connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_messages_change_nothing() {
    let Some(setup) = shared() else { return };
    let (ours, theirs) = (connect_apart(&setup, 2).await, connect_apart(&setup, 3).await);
    let (name, server) = (fresh(&setup, 1, "copies"), &setup.servers()[1]);
    let guard = hold(&theirs, &name).await;
    let waiter = queue_at(server, &ours, &name).await;
    let id = server.ask::<Vec<String>>("ZRANGE", &[&format!("{{lock:{name}}}:q"), "0", "0"]).remove(0);
    let place: String = server.ask("HGET", &[&format!("{{lock:{name}}}:w"), &id]);
    let channel = place.rsplit(' ').next().unwrap();
    guard.release().await.unwrap();
    let granted = in_time("the lock", waiter).await.unwrap();
    let run = format!("lock run {id}:6000 {} lock:{name}", granted.fence());
    let ghost = setup.name_at(1, "lock:ghost ");
    let mut fence = 0;
    let mut copies = async || {
        for message in [run.as_str(), "ghost"] {
            // Over the connection to the owner from another node, then from the owner, and in both cases over the
            // others.
            for from in [0, 1, 2] {
                fence += 1;
                let stranger = ghost_run(server, channel, &format!("lock:ghost {ghost}"), fence);
                let message = if message == "ghost" { &stranger } else { message };
                let _: i64 = setup.servers()[from].ask("PUBLISH", &[channel, message]);
                let is_read = || holder(server, &format!("lock:ghost {ghost}")).is_none();
                until("a message having been read", async || message == run || is_read()).await;
            }
        }
    };
    copies().await;
    assert!(granted.is_held() && has(server, &name, &granted));
    granted.release().await.unwrap();
    let next = hold(&theirs, &name).await;
    copies().await;
    assert!(next.is_held() && has(server, &name, &next));
    assert!(ours.lock(&name).try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
    hold(&ours, &name).await.release().await.unwrap();

    // Permits of a semaphore, granted to a waiter, and the same while another one holds.
    let name = setup.name_at(2, "semaphore:");
    let (server, key) = (&setup.servers()[2], format!("semaphore:{name}"));
    let first = theirs.semaphore(&name, 1).acquire().await.unwrap();
    let second = tokio::spawn(ours.semaphore(&name, 1).timeout(GENEROUS).acquire());
    until("the waiter", async || waiting(server, &key) == 1).await;
    first.release().await.unwrap();
    let second = in_time("the permit", second).await.unwrap().unwrap();
    let message = format!("semaphore granted {} {} {key}", second.id(), second.fence());
    let tell = async || {
        for from in [0, 1, 2] {
            let _: i64 = setup.servers()[from].ask("PUBLISH", &[channel, &message]);
            // Nothing shows that a message was thrown away.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tell().await;
    assert!(theirs.semaphore(&name, 1).try_acquire().await.unwrap().is_none(), "the permit was returned");
    assert!(second.is_held());
    second.release().await.unwrap();
    let third = theirs.semaphore(&name, 1).acquire().await.unwrap();
    tell().await;
    assert!(ours.semaphore(&name, 1).try_acquire().await.unwrap().is_none(), "a permit was returned");
    third.release().await.unwrap();
}

#[tokio::test]
async fn names_of_all_nodes_are_listed() {
    let Some(setup) = shared() else { return };
    let locker = builder(&setup.url()).prefix("listed:").build().await.unwrap();
    let names: Vec<_> = (0..40).map(|number| format!("{number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(hold(&locker, name).await);
    }
    let at = |name: &String| setup.first_owner(&format!("listed:lock:{name}"));
    assert_eq!(names.iter().map(at).collect::<BTreeSet<_>>().len(), ClusterSetup::MASTERS);
    let listed: BTreeSet<_> =
        locker.admin().names().await.unwrap().into_iter().map(|(_, name)| name).collect();
    assert_eq!(listed, names.into_iter().collect());
    for guard in guards {
        guard.release().await.unwrap();
    }
    // Fences outlive the locks.
    assert_eq!(locker.admin().names().await.unwrap(), []);
}

#[tokio::test]
async fn one_node_that_answers_is_enough() {
    let Some(setup) = shared() else { return };
    let (dead, alive) = (free_port(), setup.servers()[4].port());
    let started = Instant::now();
    let locker = connect(&setup.url_through(&[dead, alive])).await;
    for master in 0..ClusterSetup::MASTERS {
        hold(&locker, &fresh(&setup, master, "seeds")).await.release().await.unwrap();
    }
    assert!(started.elapsed() < GENEROUS, "{:?}", started.elapsed());

    let refused = async |url: &str| {
        let builder = Locker::builder().url(url).timeout(Duration::from_secs(3));
        builder.build().await.expect_err(url)
    };
    let error = refused(&setup.url_through(&[dead])).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&dead.to_string()), "{error}");
    let server = RedisServer::start().expect("a server");
    let error = refused(&setup.url_through(&[server.port()])).await;
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{error}");
    assert!(error.to_string().contains("not a node of a cluster"), "{error}");
    let login = setup.url().replace("://", "://ann:secret@");
    let error = refused(&login).await;
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    for (end, reason) in [("/3", "database"), ("?db=1", "`db`"), ("?hash=1", "`hash`")] {
        let error = refused(&format!("{}{end}", setup.url())).await;
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn start_up_checks_are_for_every_master() {
    let Some(setup) = ClusterSetup::start() else { return };
    let last = &setup.servers()[2];
    let _: String = last.ask("CONFIG", &["SET", "maxmemory-policy", "allkeys-lru"]);
    let error = builder(&setup.url()).build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    let _: String = last.ask("CONFIG", &["SET", "maxmemory-policy", "noeviction"]);
    let permissions = acl();
    let user: Vec<_> = permissions.iter().map(String::as_str).chain(["-publish"]).collect();
    for server in setup.servers() {
        let _: String = server.ask("ACL", &user);
    }
    let login = setup.url().replace("://", "://shop:secret@");
    let error = builder(&login).prefix("shop:").build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.to_string().to_lowercase().contains("publish"), "{error}");
    for server in setup.servers() {
        let _: String = server.ask("ACL", &["SETUSER", "shop", "+publish", "-cluster"]);
    }
    let error = builder(&login).prefix("shop:").build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.to_string().contains("cluster"), "{error}");
    for server in setup.servers() {
        let _: String = server.ask("ACL", &["SETUSER", "shop", "+cluster|nodes"]);
    }
    let locker = builder(&login).prefix("shop:").build().await.unwrap();
    // No permission is missing, also while a slot moves.
    let (name, slot) = ("moves", setup.slot("shop:lock:moves"));
    let (from, to) = (setup.first_owner("shop:lock:moves"), (setup.first_owner("shop:lock:moves") + 1) % 3);
    setup.begin_move(slot, from, to);
    let held = tokio::spawn(locker.lock(name).acquire());
    until("a call at the next owner", async || refused(&setup.servers()[to], "TRYAGAIN") > 0).await;
    setup.end_move(slot, from, to);
    let guard = in_time("the lock", held).await.unwrap().unwrap();
    assert_eq!(locker.admin().names().await.unwrap(), [("lock".to_owned(), name.to_owned())]);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_stops_is_no_business_of_the_others() {
    let Some(setup) = ClusterSetup::start() else { return };
    let (locker, last) = (connect(&setup.url()).await, &setup.servers()[2]);
    let [held, stopped] = [1, 2].map(|master| fresh(&setup, master, "cut"));
    let (guard, silent) = (hold(&locker, &held).await, hold(&locker, &stopped).await);
    let waiter = queue_at(&setup.servers()[1], &locker, &held).await;
    last.signal(Signal::STOP);
    in_time("the loss at the node that has stopped", silent.lost()).await;
    assert!(guard.is_held());
    let error = locker.lock(&stopped).timeout(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&last.port().to_string()), "{error}");
    let error = in_time("the list", locker.admin().names()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&last.port().to_string()), "{error}");
    guard.release().await.unwrap();
    in_time("the lock", waiter).await.unwrap().release().await.unwrap();
    last.signal(Signal::CONT);
    drop(silent);
    hold(&locker, &stopped).await.release().await.unwrap();
    assert!(locker.admin().names().await.is_ok());
}

/// Addresses are given to other machines, which may be nodes of another cluster.
#[tokio::test]
async fn node_of_another_cluster_grants_nothing() {
    let Some(setup) = ClusterSetup::start() else { return };
    let (locker, server) = (connect(&setup.url()).await, &setup.servers()[0]);
    let [name, other] = [0, 1].map(|master| fresh(&setup, master, "foreign"));
    hold(&locker, &name).await.release().await.unwrap();
    let _: String = server.ask("FLUSHALL", &[]);
    let _: String = server.ask("CLUSTER", &["RESET", "HARD"]);
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let slots: Vec<_> = ["ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
    let _: String = server.ask("CLUSTER", &slots);
    until("the other cluster", async || {
        server.ask::<String>("CLUSTER", &["INFO"]).contains("cluster_state:ok")
    })
    .await;
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "pubsub"]);
    // Some versions elect a successor soon, others only after the nodes' timeout.
    until("the refusal", async || match locker.lock(&name).try_acquire().await {
        Ok(granted) => granted.is_some(),
        Err(error) => error.to_string().contains("another node"),
    })
    .await;
    hold(&locker, &other).await.release().await.unwrap();
    assert_eq!(setup.servers()[0].ask::<Vec<String>>("KEYS", &["lock:*"]), [""; 0]);
}

/// Counts a call once it has been polled.
fn counted<T>(asked: Arc<AtomicU64>, call: impl Future<Output = T>) -> impl Future<Output = T> {
    let (mut call, mut is_first) = (Box::pin(call), true);
    poll_fn(move |context| {
        let result = call.as_mut().poll(context);
        if std::mem::take(&mut is_first) {
            asked.fetch_add(1, Ordering::SeqCst);
        }
        result
    })
}

/// Calls about one name are of one slot, and those of other names are not refused beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_slot_go_out_together() {
    const CALLERS: u64 = 64;
    let Some(setup) = ClusterSetup::start() else { return };
    let locker = builder(&setup.url()).command_timeout(GENEROUS).build().await.unwrap();
    let (name, server) = (setup.name_at(0, "rate:"), &setup.servers()[0]);
    let quota = Quota::fixed_window(1_000, Duration::from_secs(3_600));
    let limiter = locker.rate_limiter(&name, quota).timeout(GENEROUS);
    limiter.acquire().await.unwrap();
    let names: Vec<_> = (0..CALLERS).map(|number| format!("beside {number}")).collect();
    let before = scripts_run(server);
    server.signal(Signal::STOP);
    let (mut calls, asked) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for name in names {
        let (limiter, request) = (limiter.clone(), locker.lock(&name));
        calls.spawn(counted(asked.clone(), async move { limiter.acquire().await.map(drop) }));
        calls.spawn(counted(asked.clone(), async move { request.acquire().await?.release().await }));
    }
    // Calls that come after the node has continued go out alone.
    until("all calls", async || asked.load(Ordering::SeqCst) == 2 * CALLERS).await;
    server.signal(Signal::CONT);
    while let Some(result) = in_time("a reply", calls.join_next()).await {
        result.unwrap().unwrap();
    }
    // A third of the locks are at this node, and each is two calls.
    let run = scripts_run(server) - before;
    assert!(run < CALLERS + CALLERS / 2, "{run} scripts");
    assert_eq!(refused(server, "CROSSSLOT"), 0);
}

/// Returns the permissions that docs/reference/redis.md names for a cluster.
fn acl() -> Vec<String> {
    let page = include_str!("../../../docs/reference/redis.md");
    let line =
        page.lines().find_map(|line| line.strip_prefix("ACL SETUSER shop on >secret ")).expect("the line");
    let more = ["+cluster|nodes", "+asking", "+scan"];
    assert!(more.iter().all(|name| page.contains(name)), "{more:?}");
    let parts = ["SETUSER", "shop", "reset", "on", ">secret"].into_iter().chain(line.split(' ')).chain(more);
    parts.map(str::to_owned).collect()
}
