//! A queue of calls. Calls that were given up leave it, even while the thread or connection that takes them hangs.

#![allow(missing_debug_implementations, reason = "calls show nothing of themselves")]

use locker_core::sync::{Mutex, lock};
use std::{
    collections::VecDeque,
    mem::take,
    sync::{Arc, Weak},
};
use tokio::sync::Notify;

/// What is in a queue.
pub trait Call {
    /// Returns whether nobody waits for the result.
    fn is_given_up(&self) -> bool;
}

/// The end of a queue at which calls come in. The queue is closed when the last clone is dropped.
pub struct Sender<T: Call>(Arc<Open<T>>);

/// A sender that does not keep its queue open.
pub struct WeakSender<T: Call>(Weak<Open<T>>);

/// The end of a queue at which calls go out, each to one of the clones.
pub struct Receiver<T>(Arc<Queue<T>>);

struct Open<T: Call>(Arc<Queue<T>>);

struct Queue<T> {
    calls: Mutex<Calls<T>>,
    /// Notified if there is something to do for one receiver.
    changed: Notify,
}

struct Calls<T> {
    waiting: VecDeque<T>,
    /// How many calls were given up since those in the queue were removed. Some of them had left it before.
    given_up: usize,
    is_closed: bool,
}

/// Returns the ends of a new queue.
#[must_use]
pub fn queue<T: Call>() -> (Sender<T>, Receiver<T>) {
    let calls = Calls { waiting: VecDeque::new(), given_up: 0, is_closed: false };
    let queue = Arc::new(Queue { calls: Mutex::new(calls), changed: Notify::new() });
    (Sender(Arc::new(Open(Arc::clone(&queue)))), Receiver(queue))
}

impl<T: Call> Sender<T> {
    pub fn send(&self, call: T) {
        let Open(queue) = &*self.0;
        lock(&queue.calls).waiting.push_back(call);
        queue.changed.notify_one();
    }

    /// Returns a guard for the caller of a call, to be made before what `is_given_up` looks at: if it is dropped before
    /// it is told of the result, the call is one that was given up.
    #[must_use]
    pub fn waiting(&self) -> Waiting<'_, T> {
        Waiting(Some(self))
    }

    /// Notes that a call was given up. Removes those that were as soon as they may be half of the queue.
    pub fn give_up(&self) {
        let mut calls = lock(&self.0.0.calls);
        calls.given_up += 1;
        if calls.given_up * 2 < calls.waiting.len() {
            return;
        }
        calls.given_up = 0;
        let (gone, kept): (VecDeque<T>, _) = take(&mut calls.waiting).into_iter().partition(T::is_given_up);
        calls.waiting = kept;
        drop(calls);
        // Not under the lock: a call may contain whatever its caller has put into it.
        drop(gone);
    }

    /// Returns how many calls wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        lock(&self.0.0.calls).waiting.len()
    }

    #[must_use]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::downgrade(&self.0))
    }
}

impl<T: Call> WeakSender<T> {
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }
}

impl<T: Call> Receiver<T> {
    /// Waits for the next call that was not given up. Returns `None` if the queue is closed and empty.
    ///
    /// Cancel safe.
    pub async fn recv(&self) -> Option<T> {
        loop {
            let next = self.try_recv();
            let is_over = {
                let calls = lock(&self.0.calls);
                if calls.is_closed || !calls.waiting.is_empty() {
                    // The next receiver is woken in any case.
                    self.0.changed.notify_one();
                }
                // A call may have come just before the end.
                calls.is_closed && calls.waiting.is_empty()
            };
            if next.is_some() || is_over {
                return next;
            }
            self.0.changed.notified().await;
        }
    }

    /// Returns the next call that was not given up, if there is one.
    #[must_use]
    pub fn try_recv(&self) -> Option<T> {
        loop {
            let next = lock(&self.0.calls).waiting.pop_front()?;
            if !next.is_given_up() {
                return Some(next);
            }
        }
    }
}

impl<T: Call> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Call> Drop for Open<T> {
    fn drop(&mut self) {
        lock(&self.0.calls).is_closed = true;
        self.0.changed.notify_one();
    }
}

/// Held while a caller waits.
pub struct Waiting<'a, T: Call>(Option<&'a Sender<T>>);

impl<T: Call> Waiting<'_, T> {
    /// Ends the wait with a result.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl<T: Call> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if let Some(sender) = self.0 {
            sender.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Given up if the flag is set.
    struct Flagged(usize, Arc<AtomicBool>);

    impl Call for Flagged {
        fn is_given_up(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }
    }

    fn given_up(sender: &Sender<Flagged>, number: usize) {
        let flag = Arc::<AtomicBool>::default();
        let waiting = sender.waiting();
        sender.send(Flagged(number, Arc::clone(&flag)));
        flag.store(true, Ordering::Relaxed);
        drop(waiting);
    }

    #[test]
    fn calls_that_were_given_up_leave_the_queue() {
        let (sender, receiver) = queue();
        for number in 0..10 {
            sender.send(Flagged(number, Arc::default()));
        }
        assert_eq!(sender.queued(), 10);
        for number in 0..1_000 {
            given_up(&sender, 1_000 + number);
            assert!(sender.queued() <= 20, "{}", sender.queued());
        }
        for number in 0..10 {
            assert_eq!(receiver.recv().now_or_never().flatten().map(|call| call.0), Some(number));
        }
        given_up(&sender, 0);
        assert!(sender.queued() == 0 && receiver.recv().now_or_never().is_none());
    }

    #[test]
    fn weak_senders_keep_no_queue_open() {
        let (sender, receiver) = queue();
        let weak = sender.downgrade();
        weak.upgrade().expect("it is open").send(Flagged(1, Arc::default()));
        assert_eq!(receiver.recv().now_or_never().flatten().map(|call| call.0), Some(1));
        drop(sender);
        assert!(weak.upgrade().is_none());
        assert!(receiver.recv().now_or_never().expect("the end").is_none());
    }

    #[test]
    fn each_receiver_is_woken() {
        let (sender, receiver) = queue();
        let others = [receiver.clone(), receiver.clone(), receiver];
        let mut waiting: Vec<_> = others.iter().map(|receiver| Box::pin(receiver.recv())).collect();
        assert!(waiting.iter_mut().all(|recv| recv.now_or_never().is_none()));
        sender.send(Flagged(0, Arc::default()));
        sender.send(Flagged(1, Arc::default()));
        drop(sender);
        let mut heard = [None, None, None];
        for (recv, heard) in waiting.iter_mut().zip(&mut heard) {
            *heard = recv.now_or_never();
        }
        let heard = heard.map(|call| call.map(|call| call.map(|call| call.0)));
        assert_eq!(heard, [Some(Some(0)), Some(Some(1)), Some(None)]);
    }
}
