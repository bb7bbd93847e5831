//! Processes that are silent, and processes that only seem to be, call by call at a simulated time.

use super::{
    comparison::{Texts, settings},
    requests::START,
};
use crate::{
    codec::{lock, primitives},
    script::{Invocation, ScriptReply, Settings},
};
use locker_core::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{HoldRequest, IdempotencyKey, Wait, lock::Request},
};
use locker_harness::RedisServer;
use redis::{Connection, Value};
use std::{collections::HashMap, sync::Arc, time::Duration};

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A server whose time stands still. Every process that it tells something is there.
pub(super) struct Scene {
    connection: Connection,
    texts: Texts,
    pub(super) now: Timestamp,
    key: Key,
    settings: Arc<Settings>,
}

impl Scene {
    pub(super) fn new(server: &RedisServer) -> Self {
        let texts = Texts { bug: None, changed: HashMap::new(), seeded: false };
        let settings = settings("", None);
        Self { connection: server.connection(), texts, now: START, key: Key::new("lock:a"), settings }
    }

    pub(super) fn invoke(&mut self, call: Invocation) -> ScriptReply {
        let in_full =
            call.of(&self.settings).changed(|text| self.texts.change(text), true, self.now.as_micros());
        ScriptReply::read(in_full.query(&mut self.connection).unwrap()).unwrap()
    }

    pub(super) fn call(&mut self, channel: &str, request: &Request) -> ScriptReply {
        let call = lock::invocation(&self.key, request, &Arc::from(channel)).of(&self.settings);
        if let Some(first) = call.first() {
            let in_full = first.changed(|text| self.texts.change(text), true, self.now.as_micros());
            match in_full.query(&mut self.connection).unwrap() {
                Value::Nil => {}
                done => return ScriptReply::read(done).unwrap(),
            }
        }
        self.invoke(call)
    }

    pub(super) fn acquire(&mut self, channel: &str, id: Id) -> ScriptReply {
        let wait = Some(Wait { live: Some(MINUTE), fair: true });
        self.call(channel, &HoldRequest::Acquire { id, lease: MINUTE, wait, ask: None })
    }

    fn recheck(&mut self, channel: &str) {
        self.invoke(lock::recheck(&self.key, &Arc::from(channel), &[]));
    }

    /// Makes one process ask for the lock with these ids. The first one gets it and releases it.
    pub(super) fn pass_on(&mut self, ids: &[Id]) {
        for id in ids {
            self.acquire("p", *id);
        }
        self.call("p", &HoldRequest::Release { id: ids[0], tombstone: false, once: None });
    }

    pub(super) fn text(&mut self, command: &str, key: &str) -> Option<String> {
        redis::cmd(command).arg(key).query(&mut self.connection).unwrap()
    }

    pub(super) fn holder(&mut self) -> Option<Id> {
        self.text("GET", "lock:a")?.split(' ').next().and_then(Id::parse)
    }
}

/// Ends the hold of a process that has not confirmed it yet, while a foreign client uses the lock, so that it stays
/// free until a waiter asks. Checks that the next waiter of the process holds.
fn check_end_in_time(end: impl FnOnce(&mut Scene, Id)) {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [first, one, two, other]) = (Scene::new(&server), [1, 2, 3, 4].map(Id::from));
    for (channel, id) in [("p", first), ("p", one), ("p", two), ("q", other)] {
        scene.acquire(channel, id);
    }
    let _: String = server.ask("SET", &["{lock:a}:y", "1"]);
    scene.call("p", &HoldRequest::Release { id: first, tombstone: false, once: None });
    scene.recheck("q");
    assert_eq!(scene.holder(), Some(one));
    let record = scene.text("GET", "{lock:a}:f").unwrap();
    assert!(record.contains(" ?p "), "{record}");
    scene.now = scene.now + Duration::from_millis(5);
    end(&mut scene, one);
    assert_eq!(scene.holder(), None);
    scene.recheck("q");
    assert_eq!(scene.holder(), Some(two));
}

/// It was marked silent, and all of its waiters lost their places.
#[test]
fn cancel_in_time_is_no_silence() {
    check_end_in_time(|scene, id| {
        scene.call("p", &HoldRequest::Cancel { id, tombstone: true });
    });
}

#[test]
fn release_in_time_is_no_silence() {
    check_end_in_time(|scene, id| {
        scene.call("p", &HoldRequest::Release { id, tombstone: true, once: None });
    });
}

#[test]
fn declined_run_is_no_silence() {
    check_end_in_time(|scene, id| {
        let record = scene.text("GET", "{lock:a}:f").unwrap();
        let fence = record.split(' ').next().unwrap().parse().unwrap();
        let run = lock::Run::read(&format!("{id}:60000"), fence).unwrap();
        scene.invoke(lock::decline(&scene.key, &run, "p"));
    });
}

/// The waiters were removed with the key, and ask again.
#[test]
fn deleted_hold_is_no_silence() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [first, one]) = (Scene::new(&server), [1, 2].map(Id::from));
    scene.pass_on(&[first, one]);
    assert_eq!(scene.holder(), Some(one));
    let deletion = IdempotencyKey { attempt: Id::from(9), retried: false };
    scene.invoke(primitives::delete(&scene.key, deletion));
    assert_eq!(scene.text("GET", "{lock:a}:f"), None);
}

/// The grant has passed without a word.
#[test]
fn grant_that_passes_is_silence() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [first, one, two, other]) = (Scene::new(&server), [1, 2, 3, 4].map(Id::from));
    for (channel, id) in [("p", first), ("p", one), ("q", other), ("p", two)] {
        scene.acquire(channel, id);
    }
    scene.call("p", &HoldRequest::Release { id: first, tombstone: false, once: None });
    assert_eq!(scene.holder(), Some(one));
    scene.now = scene.now + Duration::from_secs(3);
    scene.recheck("q");
    assert_eq!(scene.holder(), Some(other));
    let silent: String = server.ask("HGET", &["{lock:a}:w", "!"]);
    assert_eq!(silent, " p ");
}

/// The record of a run that has passed is there for a minute, also while another holds.
#[test]
fn end_of_a_later_hold_is_no_silence() {
    let Some(server) = RedisServer::start() else { return };
    let (mut scene, [first, one, two, three, other]) = (Scene::new(&server), [1, 2, 3, 4, 5].map(Id::from));
    scene.pass_on(&[first, one]);
    scene.now = scene.now + Duration::from_secs(3);
    let lease = Duration::from_secs(10);
    scene.call("q", &HoldRequest::Acquire { id: other, lease, wait: None, ask: None });
    assert!(scene.text("GET", "{lock:a}:f").is_some_and(|record| record.contains(" ?p ")));
    scene.acquire("p", two);
    scene.acquire("q", three);
    assert_eq!(scene.holder(), Some(other));
    scene.now = scene.now + lease;
    scene.recheck("q");
    assert_eq!(scene.holder(), Some(two));
}
