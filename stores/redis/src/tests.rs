use super::{
    Redis,
    handoff::runs::{Next, Place},
    resolver::test_names,
};
use futures_util::FutureExt;
use locker_core::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{HoldRequest, Reply, Wait, lock::Request},
    store::opening::Opening,
};
use locker_harness::{ClusterSetup, RedisServer, Signal, in_time, until};
use std::{net::SocketAddr, sync::Arc, time::Duration};

const LEASE: Duration = Duration::from_secs(60);

fn by() -> Timestamp {
    Timestamp::now() + Duration::from_secs(1)
}

fn acquire(id: Id) -> Request {
    HoldRequest::Acquire { id, lease: LEASE, wait: Some(Wait { live: None, fair: true }), ask: None }
}

/// An executor may poll a member between being passed over and the hold of the next one.
#[tokio::test]
async fn passed_over_member_does_not_hold() {
    let Some(server) = RedisServer::start() else { return };
    let store = Redis::open(&server.url(), &Opening::default()).await.unwrap();
    let (key, [before, late, next]) = (Key::new("lock:a"), [(); 3].map(|()| Id::random()));
    store.handoff.call(&key, &acquire(before), by()).await.unwrap();
    let _mailboxes = [late, next].map(|id| store.session.mailboxes().subscribe(id));
    for id in [late, next] {
        let queued = store.handoff.call(&key, &acquire(id), by()).await.unwrap();
        assert!(matches!(queued, Reply::Queued { .. }), "{queued:?}");
    }
    let release = HoldRequest::Release { id: before, tombstone: false, once: None };
    store.handoff.call(&key, &release, by()).await.unwrap();
    until("the turn", async || matches!(store.handoff.runs.place(&key, late), Place::Holds { .. })).await;
    let Place::Holds { grant, fence } = store.handoff.runs.place(&key, late) else { panic!() };

    // A member that has taken the lock with a reply is not passed over.
    assert_eq!(store.handoff.call(&key, &acquire(late), by()).await.unwrap(), Reply::Granted { fence });
    let passed_over = |id| store.session.mailboxes().take_back(id);
    assert_eq!(store.handoff.pass_on(&key, grant, Some(late), passed_over), Next::Gone);

    let confirm = HoldRequest::Renew { id: late, lease: LEASE, once: None };
    let mut confirming = Box::pin(store.handoff.call(&key, &confirm, by()));
    server.signal(Signal::STOP);
    assert!(confirming.as_mut().now_or_never().is_none());
    server.signal(Signal::CONT);
    let passed = store.handoff.pass_on(&key, grant, Some(late), |_| true);
    assert!(matches!(passed, Next::Holds { member, .. } if member.id == next), "{passed:?}");
    assert_eq!(in_time("the confirmation", confirming).await.unwrap(), Reply::Lost, "both hold");
}

#[tokio::test]
async fn recheck_task_ends_with_the_last_key() {
    let Some(server) = RedisServer::start() else { return };
    let store = Redis::open(&server.url(), &Opening::default()).await.unwrap();
    let key = Key::new("lock:a");
    for id in [Id::random(), Id::random()] {
        store.handoff.call(&key, &acquire(id), by()).await.unwrap();
    }
    // There is no waiter, because there is no mailbox.
    until("the recheck", async || !store.handoff.rechecks.knows(&key)).await;
    let rechecks = Arc::downgrade(&store.handoff.rechecks);
    let store = Arc::downgrade(&{ store });
    until("the end of the store", async || store.strong_count() == 0).await;
    until("the end of its task", async || rechecks.strong_count() == 0).await;
}

/// While a slot moves, its owner no longer has some of the keys. A command for such a key goes to the next owner.
#[tokio::test]
async fn command_follows_a_slot_that_moves() {
    let Some(setup) = ClusterSetup::start() else { return };
    let store = Redis::open(&setup.url(), &Opening::default()).await.unwrap();
    let name = setup.name_at(0, "text ");
    let (key, slot) = (format!("text {name}"), setup.slot(&format!("text {name}")));
    let set = |text: &str| redis::cmd("SET").arg(&key).arg(text).arg("PX").arg(60_000).clone();
    setup.begin_move(slot, 0, 1);
    let reply = store.session.router.command(&key, &set("next"), by()).await.unwrap();
    assert_eq!(reply, Ok(redis::Value::Okay));
    // The next owner has it, and shows it only behind ASKING.
    let keys = |server: usize| -> Vec<String> { setup.servers()[server].ask("KEYS", &["text *"]) };
    assert_eq!((keys(0), keys(1)), (vec![], vec![key.clone()]));
    setup.end_move(slot, 0, 1);
    let read = store.session.router.command(&key, redis::cmd("GET").arg(&key), by()).await.unwrap();
    assert_eq!(read, Ok(redis::Value::BulkString(b"next".to_vec())));
}

#[tokio::test]
async fn slots_are_those_of_the_server() {
    let Some(server) = RedisServer::with(&["--cluster-enabled", "yes"]) else { return };
    let mut connection = server.connection();
    let keys = ["a", "{}:q", "{a}b{c}", "a{b", "a}b{c}", "{{a}}", "lock:a b", "Ä ü", ""];
    let random = (0..500).map(|_| Id::random().to_string());
    for key in keys.map(str::to_owned).into_iter().chain(random) {
        let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key).query(&mut connection).unwrap();
        assert_eq!(super::slots::slot_of(&key), slot, "{key}");
    }
}

/// A name that means another server at each look. The connection of the caller's runtime led to another server than the
/// main one: a hold was lost at its first renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_connection_follows_the_main_one() {
    let (Some(one), Some(other)) = (RedisServer::start(), RedisServer::start()) else { return };
    let address = |server: &RedisServer| SocketAddr::from(([127, 0, 0, 1], server.port()));
    test_names::set("two-masters.test", vec![address(&one), address(&other)]);
    let store = Redis::open("redis://two-masters.test", &Opening::default()).await.unwrap();
    let (key, id) = (Key::new("lock:a"), Id::random());
    let call = async move { store.handoff.call(&key, &acquire(id), by()).await.map(|_| store) };
    let _open = tokio::spawn(call).await.unwrap().unwrap();
    // The other one is that of the test.
    let clients = |server: &RedisServer| server.ask::<String>("CLIENT", &["LIST"]).lines().count() - 1;
    until("the local connection", async || clients(&one) == 2).await;
    assert_eq!(clients(&other), 0);
}
