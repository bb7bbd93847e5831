//! What this process remembers: the requests at each key, and the inboxes without a process.

use super::{
    backend::Inbox,
    round::{Job, KnownValue},
};
use locker_core::{clock::Timestamp, key::Key};
use std::{collections::HashMap, mem::take, time::Duration};

/// How many values this process remembers of keys without a request.
const REMEMBERED: usize = 10_000;

/// The maximum of bytes of all values that are remembered without a request.
const REMEMBERED_BYTES: usize = 64 << 20;

/// How long an inbox is taken to be without a process after a message to it failed. Its process may only replace its
/// connection, and until then its waiters are passed over.
const GONE_FOR: Duration = Duration::from_secs(1);

/// The requests at one key.
#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    /// Whether a task carries them out.
    is_served: bool,
    known: Option<KnownValue>,
    /// When another process has last told of the key.
    told_at: Timestamp,
}

impl Queue {
    fn bytes(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.stored.body.len())
    }
}

/// The requests at all keys.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_key: HashMap<Key, Queue, foldhash::fast::RandomState>,
    /// How many values are remembered at keys without a request, and their bytes.
    idle: (usize, usize),
}

impl Queues {
    /// Adds a request. Returns whether a task must be started for it.
    pub(super) fn add(&mut self, key: &Key, job: Job) -> bool {
        let queue = self.by_key.entry(key.clone()).or_default();
        queue.jobs.push(job);
        let starts = !std::mem::replace(&mut queue.is_served, true);
        if starts && queue.known.is_some() {
            self.idle = (self.idle.0 - 1, self.idle.1 - queue.bytes());
        }
        starts
    }

    /// Notes that another process has told of a key: the value that this process knows is older.
    pub(super) fn told(&mut self, key: &Key) {
        if let Some(queue) = self.by_key.get_mut(key) {
            queue.told_at = Timestamp::now();
        }
    }

    /// Returns when another process has last told of a key, of which this one knows the value.
    pub(super) fn told_at(&self, key: &Key) -> Timestamp {
        self.by_key.get(key).map_or_else(Timestamp::default, |queue| queue.told_at)
    }

    /// Returns the requests at a key and its value. Without requests, the task ends.
    pub(super) fn take(&mut self, key: &Key) -> Option<(Vec<Job>, Option<KnownValue>)> {
        let queue = self.by_key.get_mut(key)?;
        if !queue.jobs.is_empty() {
            return Some((take(&mut queue.jobs), queue.known.take()));
        }
        queue.is_served = false;
        if queue.known.is_none() {
            self.by_key.remove(key);
            return None;
        }
        self.idle = (self.idle.0 + 1, self.idle.1 + queue.bytes());
        if self.idle.0 > REMEMBERED || self.idle.1 > REMEMBERED_BYTES {
            self.forget_idle();
        }
        None
    }

    pub(super) fn put_back(&mut self, key: &Key, known: Option<KnownValue>, first: Vec<Job>) {
        let Some(queue) = self.by_key.get_mut(key) else { return };
        queue.known = known.filter(KnownValue::has_value);
        queue.jobs.splice(0..0, first);
    }

    /// Lets the value of a key without a request have been seen so much earlier. Returns `false` while it has one.
    #[cfg(test)]
    pub(super) fn age(&mut self, key: &Key, by: Duration) -> bool {
        let queue = self.by_key.get_mut(key).filter(|queue| !queue.is_served);
        let known = queue.and_then(|queue| queue.known.as_mut());
        known.map(|known| known.seen = known.seen - by).is_some()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Forgets the values of keys without a request: any value can be read again.
    fn forget_idle(&mut self) {
        self.by_key.retain(|_, queue| queue.is_served);
        self.idle = (0, 0);
    }
}

/// The inboxes that no process listens to, with the time until which that is believed.
#[derive(Debug, Default)]
pub(super) struct Gone(HashMap<Inbox, Timestamp>);

impl Gone {
    pub(super) fn add(&mut self, inboxes: &[Inbox]) {
        let until = Timestamp::now() + GONE_FOR;
        self.0.extend(inboxes.iter().map(|inbox| (*inbox, until)));
    }

    pub(super) fn list(&mut self) -> Vec<Inbox> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let now = Timestamp::now();
        self.0.retain(|_, until| *until > now);
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Stored;
    use locker_core::primitives::Request;

    fn key(number: usize) -> Key {
        Key::new(&number.to_string())
    }

    /// Lets the task of a key carry out its requests.
    fn serve(queues: &mut Queues, key: &Key) {
        while queues.take(key).is_some() {
            let mut known = KnownValue::default();
            known.learn(1, Stored { body: vec![0; 7], ..Stored::default() }, Timestamp::now());
            queues.put_back(key, Some(known), Vec::new());
        }
    }

    /// However many keys have requests at the moment, their number is no reason to look through all of them.
    #[test]
    fn requests_at_many_keys_forget_no_value() {
        let mut queues = Queues::default();
        queues.add(&key(0), Job::own(Request::Inspect, None));
        serve(&mut queues, &key(0));
        for number in 1..=3 * REMEMBERED {
            assert!(queues.add(&key(number), Job::own(Request::Inspect, None)));
        }
        assert_eq!((queues.idle, queues.len()), ((1, 7), 3 * REMEMBERED + 1));
        assert!(queues.add(&key(0), Job::own(Request::Inspect, None)));
        assert_eq!(queues.idle, (0, 0));
        serve(&mut queues, &key(0));
        for number in 1..REMEMBERED {
            serve(&mut queues, &key(number));
        }
        assert_eq!((queues.idle, queues.len()), ((REMEMBERED, 7 * REMEMBERED), 3 * REMEMBERED + 1));
        serve(&mut queues, &key(REMEMBERED));
        assert_eq!((queues.idle, queues.len()), ((0, 0), 2 * REMEMBERED));
        assert!(queues.add(&key(1), Job::own(Request::Inspect, None)), "it was forgotten");
    }

    #[test]
    fn large_values_are_forgotten() {
        let mut queues = Queues::default();
        let mut remember = |number, len| {
            let mut known = KnownValue::default();
            known.learn(1, Stored { body: vec![0; len], ..Stored::default() }, Timestamp::now());
            queues.add(&key(number), Job::own(Request::Inspect, None));
            queues.take(&key(number));
            queues.put_back(&key(number), Some(known), Vec::new());
            queues.take(&key(number));
            queues.idle
        };
        let half = REMEMBERED_BYTES / 2;
        assert_eq!(remember(0, half), (1, half));
        assert_eq!(remember(1, half), (2, 2 * half));
        assert_eq!(remember(2, 1), (0, 0));
    }
    /// Its process may only have replaced its connection.
    #[test]
    fn inbox_is_gone_for_a_second() {
        let mut gone = Gone::default();
        assert!(gone.list().is_empty());
        gone.add(&[7]);
        assert_eq!(gone.list(), [7]);
        for until in gone.0.values_mut() {
            assert!(until.since(Timestamp::now()) > GONE_FOR / 2);
            *until = *until - GONE_FOR;
        }
        assert!(gone.list().is_empty() && gone.0.is_empty());
    }
}
