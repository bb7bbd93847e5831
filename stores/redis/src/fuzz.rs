//! What the fuzz target calls. A broken law is a panic.

use super::{
    codec::{
        lock::{self, Run},
        primitives,
    },
    errors,
    handshake::{EVICTION, is_replica},
    push_receiver::{Message, PushReceiver, PushSink},
    script::ScriptReply,
    sentinel::read_view,
    slots::SLOTS,
    topology::{Topology, View},
};
use locker_core::{
    primitives::{Reply, Request, samples},
    store::memory::Memory,
};
use redis::{FromRedisValue, PushInfo, Value, aio::AsyncPushSender, parse_redis_value};
use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

/// Reads a reply of a server as the reply to each request, and as what servers say of themselves.
///
/// # Panics
/// If a law is broken.
pub fn redis_reply(bytes: &[u8]) {
    let Ok(value) = parse_redis_value(bytes) else { return };
    for request in samples::requests() {
        reply(&value, &request);
    }
    server(&value);
    push(value);
}

fn reply(value: &Value, request: &Request) {
    let script = match ScriptReply::of_call(Ok(value.clone())) {
        Ok(script) => script,
        Err(error) => return assert!(!error.message().is_empty()),
    };
    let _ = (lock::has_more(&script), lock::is_shared_with_foreigners(&script), lock::held_for(&script));
    let reply = match request {
        Request::Lock(request) => lock::reply(&script, request),
        request => primitives::reply(&script, request),
    };
    if let Ok(Reply::Granted { .. } | Reply::Renewed { .. }) = reply {
        assert!(ScriptReply::is_of_a_hold(value), "a hold that is not waited for replicas");
    }
}

/// Reads what servers, sentinels and nodes say of themselves.
fn server(value: &Value) {
    let _ = EVICTION.read(Some(value.clone()));
    let _ = EVICTION.read_other(Some(value.clone()));
    let _ = is_replica(value.clone());
    let _ = read_view(Ok(value.clone()), Ok(value.clone()));
    if let Err(error) = value.clone().extract_error() {
        let _ = (errors::of_call(&error), errors::is_unknown_script(&error), errors::is_about_a_slot(&error));
    }
    let text = String::from_redis_value(value.clone()).unwrap_or_default();
    if let Some(view) = View::read(&text, "h") {
        let ids: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        let has_twins = ids.iter().collect::<BTreeSet<_>>().len() < ids.len();
        cluster(&view, has_twins);
    }
}

/// Takes in what a node says. If it has no two nodes with one id, saying it again changes nothing.
fn cluster(view: &View, has_twins: bool) {
    let mut topology = Topology::new(true);
    topology.apply(view);
    assert_eq!(topology.owners().count(), usize::from(SLOTS));
    let masters = topology.masters();
    assert!(masters.iter().all(|number| topology.master(*number).is_some()));
    let again = topology.apply(view);
    assert!(has_twins || !again.has_moved && !again.has_failed_over, "a repeated view changes something");
    assert!(has_twins || topology.masters() == masters, "a repeated view changes the masters");
}

/// Receives a push message.
fn push(value: Value) {
    let Value::Push { kind, data } = value else { return };
    let text = data.get(1).and_then(|text| String::from_redis_value(text.clone()).ok());
    let message = text.as_deref().and_then(Message::read);
    if let Some(Message::Run(_, run)) = &message {
        members(run);
    }
    let receiver = Arc::new(PushReceiver::new(Weak::<Memory>::new()));
    let sink = PushSink::new(&receiver, &Arc::default(), None);
    assert!(sink.send(PushInfo { kind, data }).is_ok());
}

/// The members of a run have fences in a row, of which the last one is that of the run.
fn members(run: &Run) {
    let fences: Vec<_> = run.members().map(|member| member.fence).collect();
    assert!(fences.is_sorted_by(|one, next| one + 1 == *next), "{fences:?}");
    assert!(fences.last() == Some(&run.fence) || run.fence < fences.len() as u64, "{fences:?}");
    assert!(fences.len() == 1 || run.members().all(|member| member.id != run.id()));
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_replies_keeps_the_laws() {
        corpus("redis_reply", super::redis_reply);
    }
}
