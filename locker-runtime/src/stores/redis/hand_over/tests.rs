use super::*;
use crate::{
    blocking::block_on,
    primitives::{self, Wait},
    stores::Opening,
};
use locker_harness::{RedisServer, Signal, eventually};

const LEASE: Duration = Duration::from_secs(30);

async fn open(server: &RedisServer) -> (Arc<Redis>, Key) {
    (Redis::open(&server.url(), &Opening::default()).await.unwrap(), Key::new("lock:a"))
}

/// Who had the lock, and to whom it was handed over by a release that the server has not heard of, though it went out on
/// `connection`.
fn hand_over(server: &RedisServer, store: &Redis, key: &Key, connection: u64) -> (Id, Id) {
    let (first, heir) = (Id::from(1), Id::from(2));
    let _: String = server.ask("SET", &["lock:a", &first.to_string(), "PX", "30000"]);
    store.lines.held(key, first, 7, (Timestamp::now(), LEASE), |_| true);
    store.lines.queued(key, heir, first, LEASE);
    assert!(matches!(store.lines.release(key, first, connection, |_| true), Release::New(..)));
    (first, heir)
}

/// What was handed over to `heir`, who waits no more.
async fn hand_back(store: &Redis, key: Key, heir: Id) {
    let signal = primitives::Signal::Held { fence: 8, until: Timestamp::now() + LEASE };
    store.mail.hand_back(Kind::Lock, Push { key, id: heir, signal });
    store.mail.boxes.errands().done().await;
}

#[test]
fn a_renewal_waits_no_longer_than_its_limit_for_the_turn_to_tell_what_came_before() {
    let Some(server) = RedisServer::start() else { return };
    block_on(async {
        let (store, key) = open(&server).await;
        // On a connection that is none any more.
        let (_, heir) = hand_over(&server, &store, &key, u64::MAX);
        let renew = Request::Renew { id: heir, lease: LEASE, once: None };
        let turn = store.lines.turn(&key).unwrap();
        let taken = turn.lock().await;
        let error = store.lock(&key, &renew, Duration::from_millis(50)).await.unwrap_err();
        assert!(error.is_temporary() && !error.is_certain(), "{error}");
        drop(taken);
        let reply = store.lock(&key, &renew, LEASE).await.unwrap();
        assert_eq!(reply, Reply::Renewed { fence: 8 });
    });
}

#[test]
fn what_an_heir_that_is_gone_hands_back_is_free_also_when_the_server_had_not_heard_of_it() {
    let Some(server) = RedisServer::start() else { return };
    block_on(async {
        let (store, key) = open(&server).await;
        let (_, heir) = hand_over(&server, &store, &key, u64::MAX);
        hand_back(&store, key, heir).await;
    });
    assert_eq!(server.ask::<Option<String>>("GET", &["lock:a"]), None);
}

/// Where the one before had lost the lock by force, the server may have given it to the chosen heir already.
#[test]
fn what_an_heir_hands_back_is_not_what_the_server_has_given_it() {
    let Some(server) = RedisServer::start() else { return };
    let heir = Id::from(2);
    let _: String = server.ask("SET", &["lock:a", &heir.to_string(), "PX", "30000"]);
    let _: String = server.ask("SET", &["{lock:a}:f", &format!("9 {heir}"), "PX", "90000"]);
    block_on(async {
        let (store, key) = open(&server).await;
        hand_back(&store, key, heir).await;
    });
    assert_eq!(server.ask::<String>("GET", &["lock:a"]), heir.to_string());
}

/// One that has lost the lock by force hands it on to whom the server gives it at the same time.
#[test]
fn a_fence_is_followed_by_none_that_is_lower() {
    let Some(server) = RedisServer::start() else { return };
    block_on(async {
        let (store, key) = open(&server).await;
        let number = store.link.up(LEASE).await.unwrap().number;
        let (_, heir) = hand_over(&server, &store, &key, number);
        let _: String = server.ask("SET", &["lock:a", &heir.to_string(), "PX", "30000"]);
        let _: String = server.ask("SET", &["{lock:a}:f", &format!("100 {heir}"), "PX", "90000"]);
        let next = Id::from(3);
        store.lines.queued(&key, next, heir, LEASE);
        let _mailbox = store.mail.boxes.subscribe(next);
        let release = Request::Release { id: heir, tombstone: false, once: None };
        assert_eq!(store.lock(&key, &release, LEASE).await.unwrap(), Reply::NotHeld);
        let record: String = server.ask("GET", &["{lock:a}:f"]);
        assert_eq!(record, format!("100 {heir}"));
    });
}

/// The copy that led to a hold may be told by another while the holder's own call is refused.
#[test]
fn a_refusal_before_what_led_to_the_hold_was_answered_means_nothing() {
    let Some(server) = RedisServer::start() else { return };
    let scripts_run = || {
        let statistics: String = server.ask("INFO", &["commandstats"]);
        statistics.lines().find(|line| line.starts_with("cmdstat_eval:")).map(str::to_owned)
    };
    block_on(async {
        let (store, key) = open(&server).await;
        let number = store.link.up(LEASE).await.unwrap().number;
        let (first, heir) = hand_over(&server, &store, &key, number);
        let before = scripts_run();
        let release = Request::Release { id: heir, tombstone: false, once: None };
        let mut call = Box::pin(store.lock(&key, &release, LEASE));
        server.signal(Signal::STOP);
        assert!(call.as_mut().now_or_never().is_none(), "it is on its way");
        server.signal(Signal::CONT);
        eventually("the refusal", || (scripts_run() != before).then_some(()));
        // Now the server carries out what led to the hold.
        let _: String = server.ask("SET", &["lock:a", &heir.to_string(), "PX", "30000"]);
        store.lines.carried_out(&key, first, Timestamp::now());
        assert_eq!(call.await.unwrap(), Reply::Released);
    });
    assert_eq!(server.ask::<Option<String>>("GET", &["lock:a"]), None);
}

#[test]
fn those_who_wait_look_often_as_long_as_others_take_part_who_tell_nobody() {
    let Some(server) = RedisServer::start() else { return };
    let wait = Some(Wait { live: Some(LEASE), fair: true });
    let acquire = |id: u128| Request::Acquire { id: Id::from(id), lease: LEASE, wait, ask: () };
    block_on(async {
        let (store, key) = open(&server).await;
        assert!(matches!(store.lock(&key, &acquire(1), LEASE).await, Ok(Reply::Granted { .. })));
        let recheck = async |id| match store.lock(&key, &acquire(id), LEASE).await.unwrap() {
            Reply::Queued { recheck_in, .. } => recheck_in.unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(recheck(2).await > Duration::from_secs(1));
        let _: String = server.ask("SET", &["{lock:a}:y", "1", "PX", "60000"]);
        for id in [2, 3] {
            assert!(recheck(id).await < Duration::from_millis(200), "{id}");
        }
        let _: String = server.ask("SET", &["lock:a", "a token without an end"]);
        for id in [2, 3] {
            let pause = recheck(id).await;
            assert!(pause >= Duration::from_millis(50) && pause < Duration::from_millis(200), "{pause:?}");
        }
    });
}
