//! Hand-offs on a server, compared with the step of the lock.

use crate::{
    in_process_handoff::Turns,
    support::{LEASE, connect, in_time, nobody_is_left, until, waiting},
};
use locker::{Guard, Key, Locker};
use locker_core::{
    clock::Timestamp,
    id::Id,
    primitives::{Context, HoldRequest, Notification, Reply, State as _, Wait, lock},
};
use locker_harness::RedisServer;
use std::collections::HashMap;
use tokio::task::JoinHandle;

/// Callers join and leave the queue and release the lock at random. The holder is always the one that the step chooses,
/// though runs are handed off within a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_serve_waiters_as_the_step_does() {
    let Some(server) = RedisServer::start() else { return };
    let lockers = [connect(&server.url()).await, connect(&format!("{}/0", server.url())).await];
    let mut model = Model::default();
    let mut real = Real::new(&server, &lockers);
    for _ in 0..400 {
        match fastrand::u8(..8) {
            0..=3 if model.waiting.len() < 40 => {
                let number = real.join(fastrand::usize(..2)).await;
                model.join(number);
            }
            4 if !model.waiting.is_empty() => {
                let number = model.waiting[fastrand::usize(..model.waiting.len())];
                real.give_up(number).await;
                model.give_up(number);
            }
            _ => {
                real.release().await;
                model.release();
            }
        }
        real.agrees_with(&model).await;
    }
    while model.holder.is_some() {
        real.release().await;
        model.release();
        real.agrees_with(&model).await;
    }
    nobody_is_left(&server);
}

/// The state of the lock, and the callers as the step serves them.
#[derive(Default)]
struct Model {
    state: lock::State,
    waiting: Vec<usize>,
    holder: Option<usize>,
}

impl Model {
    fn step(&mut self, request: &lock::Request) -> (Reply, Vec<Notification>) {
        let (key, mut notifications) = (Key::new("lock:a"), Vec::new());
        let mut context = Context::new(&key, Timestamp::from_micros(1), &mut notifications);
        (self.state.step(request, &mut context), notifications)
    }

    fn id(number: usize) -> Id {
        Id::from(number as u128 + 1)
    }

    fn join(&mut self, number: usize) {
        let wait = Some(Wait { live: None, fair: true });
        let acquire = HoldRequest::Acquire { id: Self::id(number), lease: LEASE, wait, ask: None };
        match self.step(&acquire).0 {
            Reply::Granted { .. } => self.holder = Some(number),
            Reply::Queued { .. } => self.waiting.push(number),
            other => panic!("{other:?}"),
        }
    }

    fn give_up(&mut self, number: usize) {
        self.waiting.retain(|waiting| *waiting != number);
        self.step(&HoldRequest::Cancel { id: Self::id(number), tombstone: false });
    }

    fn release(&mut self) {
        let Some(holder) = self.holder.take() else { return };
        let release = HoldRequest::Release { id: Self::id(holder), tombstone: false, once: None };
        let (reply, notifications) = self.step(&release);
        assert_eq!(reply, Reply::Released);
        if let [push] = &notifications[..] {
            let at = self.waiting.iter().position(|number| Self::id(*number) == push.id);
            self.holder = at.map(|at| self.waiting.remove(at));
        }
    }
}

/// The same callers on a server.
struct Real<'a> {
    server: &'a RedisServer,
    lockers: &'a [Locker],
    waiters: HashMap<usize, JoinHandle<()>>,
    turns: Turns,
    holder: Option<(usize, Guard)>,
    next_number: usize,
    fence: u64,
}

impl<'a> Real<'a> {
    fn new(server: &'a RedisServer, lockers: &'a [Locker]) -> Self {
        let (waiters, turns) = (HashMap::new(), Turns::new());
        Self { server, lockers, waiters, turns, holder: None, next_number: 0, fence: 0 }
    }

    /// Starts a caller, and returns when it is in the queue, unless the lock is free.
    async fn join(&mut self, process: usize) -> usize {
        let (number, before) = (self.next_number, waiting(self.server, "lock:a"));
        self.next_number += 1;
        let (sender, request) = (self.turns.sender.clone(), self.lockers[process].lock("a"));
        let task = tokio::spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            drop(sender.send((number, guard)));
        });
        self.waiters.insert(number, task);
        if self.holder.is_some() {
            until("the place", async || waiting(self.server, "lock:a") > before).await;
        }
        number
    }

    async fn give_up(&mut self, number: usize) {
        let waiter = self.waiters.remove(&number).expect("a waiter");
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        for locker in self.lockers {
            in_time("the end of the attempt", locker.settled()).await;
        }
    }

    async fn release(&mut self) {
        if let Some((_, guard)) = self.holder.take() {
            guard.release().await.unwrap();
        }
    }

    async fn agrees_with(&mut self, model: &Model) {
        if model.holder.is_some() && self.holder.is_none() {
            let (number, guard) = self.turns.next().await;
            assert!(guard.fence() > self.fence, "the fence fell");
            self.fence = guard.fence();
            self.waiters.remove(&number);
            self.holder = Some((number, guard));
        }
        assert_eq!(self.holder.as_ref().map(|(number, _)| *number), model.holder);
        assert!(self.turns.receiver.try_recv().is_err(), "two hold at once");
    }
}
