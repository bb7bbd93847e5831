//! The waiters of this process for events, watchdogs, barriers, latches and records. One message of the server is for
//! all of them that wait at a key.

use locker_core::{
    error::Result,
    id::{Id, IdSet},
    key::Key,
    primitives::{HoldRequest, Reply, Request, Signal, barrier, event, latch, record, watchdog},
    sync::{Mutex, lock},
};
use std::collections::HashMap;

/// The waiters by key. A waiter is here from before its request until its wait has ended.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<Key, IdSet>>);

impl Watchers {
    /// Notes what `request` says of its waiter, before it is sent. Returns the waiter if it may have to wait.
    pub(super) fn before(&self, key: &Key, request: &Request) -> Option<Id> {
        let (id, waits) = waiter(request)?;
        if !waits {
            self.remove(key, id);
            return None;
        }
        lock(&self.0).entry(key.clone()).or_default().insert(id);
        Some(id)
    }

    /// Removes a waiter that does not wait after this reply.
    pub(super) fn after(&self, key: &Key, id: Id, reply: &Result<Reply>) {
        match reply {
            Ok(Reply::Queued { .. }) => {}
            // It may be in the queue, and asks again or cancels.
            Err(error) if !error.is_certain() => {}
            _ => self.remove(key, id),
        }
    }

    /// Returns the waiters at a key that a signal is for. They stay unless their key was deleted: that may be said
    /// before those that were woken ask again.
    pub(super) fn told(&self, key: &Key, signal: Signal) -> IdSet {
        let mut all = lock(&self.0);
        let told = if signal == Signal::Deleted { all.remove(key) } else { all.get(key).cloned() };
        told.unwrap_or_default()
    }

    fn remove(&self, key: &Key, id: Id) {
        let mut all = lock(&self.0);
        if let Some(ids) = all.get_mut(key)
            && ids.remove(&id)
            && ids.is_empty()
        {
            all.remove(key);
        }
    }
}

/// Returns the waiter that a request is about, and whether it waits from now on.
pub(super) fn waiter(request: &Request) -> Option<(Id, bool)> {
    match request {
        Request::Event(event::Request::Wait { id, wait })
        | Request::Watchdog(watchdog::Request::Wait { id, wait })
        | Request::Barrier(barrier::Request::Arrive { id, wait, .. })
        | Request::Latch(latch::Request::Wait { id, wait, .. }) => Some((*id, wait.is_some())),
        Request::Record(record::Request::Hold(HoldRequest::Acquire { id, wait, .. })) => {
            Some((*id, wait.is_some()))
        }
        Request::Event(event::Request::Cancel { id })
        | Request::Watchdog(watchdog::Request::Cancel { id })
        | Request::Barrier(barrier::Request::Cancel { id, .. })
        | Request::Latch(latch::Request::Cancel { id })
        | Request::Record(record::Request::Hold(HoldRequest::Cancel { id, .. })) => Some((*id, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::{
        error::{Error, ErrorKind},
        primitives::Wait,
    };

    /// Returns whether the waiter is still there after this reply to its request.
    fn stays_after(wait: Option<Wait>, reply: &Result<Reply>) -> bool {
        let (watchers, key, id) = (Watchers::default(), Key::new("event:a"), Id::from(1));
        let request = Request::Event(event::Request::Wait { id, wait });
        if let Some(id) = watchers.before(&key, &request) {
            watchers.after(&key, id, reply);
        }
        watchers.told(&key, Signal::Deleted).contains(&id)
    }

    #[test]
    fn waiter_is_known_until_its_wait_ends() {
        let wait = Some(Wait { live: None, fair: true });
        let queued = Ok(Reply::Queued { ahead: 0, recheck_after: None });
        let error = || Error::new(ErrorKind::Unavailable, "no reply");
        for (wait, reply, stays) in [
            (wait, queued.clone(), true),
            (wait, Err(error().unknown()), true),
            (wait, Err(error()), false),
            (wait, Ok(Reply::Message("go".into())), false),
            (None, queued, false),
        ] {
            assert_eq!(stays_after(wait, &reply), stays, "{wait:?} {reply:?}");
        }
    }

    #[test]
    fn deletion_reaches_waiters_that_were_woken() {
        let (watchers, key, id) = (Watchers::default(), Key::new("barrier:a"), Id::from(1));
        let wait = Some(Wait { live: None, fair: true });
        watchers.before(&key, &Request::Event(event::Request::Wait { id, wait }));
        for signal in [Signal::Wake, Signal::Wake, Signal::Deleted] {
            assert!(watchers.told(&key, signal).contains(&id), "{signal:?}");
        }
        assert!(lock(&watchers.0).is_empty());
    }

    #[test]
    fn left_waiters_leave_nothing_behind() {
        let (watchers, key) = (Watchers::default(), Key::new("latch:a"));
        let wait = |id| latch::Request::Wait { id, count: 1, wait: Some(Wait { live: None, fair: true }) };
        for id in [1, 2] {
            watchers.before(&key, &Request::Latch(wait(Id::from(id))));
        }
        for id in [1, 2, 3] {
            watchers.before(&key, &Request::Latch(latch::Request::Cancel { id: Id::from(id) }));
        }
        assert!(lock(&watchers.0).is_empty());
    }
}
