//! The record of a run or of a hold with a name stays when the hold ends by itself. It says nothing about a later hold
//! of the same id.

use super::silence::{MINUTE, Scene};
use locker_core::{
    id::Id,
    primitives::{HoldRequest, lock::Request},
};
use locker_harness::RedisServer;
use std::time::Duration;

fn at_once(id: Id, lease: Duration, name: Option<Id>) -> Request {
    HoldRequest::Acquire { id, lease, wait: None, ask: name }
}

/// It was told that it is a member of a run, which it could not confirm, and waited behind its own hold.
#[test]
fn run_that_has_passed_is_not_the_next_hold_of_its_member() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [first, one]) = (Scene::new(&server), [1, 2].map(Id::from));
    scene.pass_on(&[first, one]);
    assert_eq!(scene.holder(), Some(one));
    scene.now = scene.now + Duration::from_secs(3);
    let fence = scene.acquire("p", one).number(0);
    let again = scene.acquire("p", one);
    assert_eq!((again.word(), again.number(0)), ("granted", fence));
}

/// The attempt that had the name before ended it.
#[test]
fn attempt_that_has_passed_ends_no_later_hold_of_its_name() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [attempt, name]) = (Scene::new(&server), [1, 2].map(Id::from));
    scene.call("p", &at_once(attempt, Duration::from_millis(500), Some(name)));
    scene.now = scene.now + Duration::from_secs(1);
    scene.call("p", &at_once(name, MINUTE, None));
    assert!(scene.text("GET", "{lock:a}:f").is_some());
    scene.call("p", &HoldRequest::Cancel { id: attempt, tombstone: true });
    assert_eq!(scene.holder(), Some(name));
}

/// It was told that the lock is busy.
#[test]
fn member_of_a_run_that_waits_no_longer_learns_of_the_run() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, ids) = (Scene::new(&server), [1, 2, 3].map(Id::from));
    scene.pass_on(&ids);
    assert_eq!(scene.call("p", &at_once(ids[1], MINUTE, None)).word(), "run");
}

/// A waiter that is kept for long kept the queue, where the refused ids are, and each acquire took two scripts.
#[test]
fn refused_ids_last_a_minute_in_a_queue_that_is_kept() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [holder, waiter, gone]) = (Scene::new(&server), [1, 2, 3].map(Id::from));
    scene.acquire("p", holder);
    let wait = Some(locker_core::primitives::Wait { live: Some(10 * MINUTE), fair: true });
    scene.call("p", &HoldRequest::Acquire { id: waiter, lease: MINUTE, wait, ask: None });
    scene.call("p", &HoldRequest::Cancel { id: gone, tombstone: true });
    scene.call("p", &HoldRequest::Cancel { id: waiter, tombstone: false });
    scene.call("p", &HoldRequest::Release { id: holder, tombstone: false, once: None });
    scene.now = scene.now + Duration::from_secs(61);
    scene.acquire("p", holder);
    assert_eq!(server.ask::<i64>("EXISTS", &["{lock:a}:q"]), 0);
}
