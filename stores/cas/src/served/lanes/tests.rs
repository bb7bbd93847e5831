//! Lanes over connections without a server, which a test makes silent.

use super::*;
use crate::backend::Inbox;
use locker_core::{
    error::ErrorKind,
    sync::{Mutex, lock},
};
use locker_harness::{in_time, until};
use std::future::pending;
use tokio::sync::oneshot;

/// A connection is its number, from 0 on.
#[derive(Debug)]
struct Fake {
    server: Server,
    connected: AtomicUsize,
    /// How many connections there can be.
    most: AtomicUsize,
    /// Those that do not answer while they are among these.
    silent: Mutex<HashSet<usize>>,
}

impl Driver for Fake {
    type Session = usize;
    const NAME: &'static str = "fake";
    const PRODUCT: &'static str = "Fake";
    const MAX_KEY: usize = 1;

    fn server(&self) -> &Server {
        &self.server
    }

    fn lanes(&self) -> Lanes {
        Lanes { durable: 3, quick: 0 }
    }

    fn max_value_len(&self) -> usize {
        1
    }

    async fn connect(&self) -> Result<usize> {
        let take = |count| (count < self.most.load(Ordering::SeqCst)).then_some(count + 1);
        let taken = self.connected.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.map_err(|_| Error::new(ErrorKind::Unavailable, "no connections to spare"))
    }

    async fn do_jobs(this: Arc<Self>, session: Arc<usize>, _durable: bool, jobs: Vec<Job>) -> bool {
        while lock(&this.silent).contains(&*session) {
            background::sleep(Duration::from_millis(2)).await;
        }
        for job in jobs {
            match job {
                Job::Send(_, answer) => drop(answer.send(Ok(vec![Inbox::try_from(*session).unwrap()]))),
                _ => panic!("only messages are sent"),
            }
        }
        true
    }

    fn is_closed(_session: &usize) -> bool {
        false
    }

    async fn ended(_session: &usize) {
        pending::<()>().await;
    }
}

const SHORT: Duration = Duration::from_millis(300);

/// Opens three lanes. Returns what they share, their queue, and what ends them.
async fn three(answer_limit: Duration) -> (Arc<Fake>, Sender<Job>, watch::Sender<()>) {
    background::ready().unwrap();
    let (closed, ended) = watch::channel(());
    let fake = Arc::new(Fake {
        server: Server::new("fake".into(), answer_limit, Box::new(|| 0)),
        connected: AtomicUsize::new(0),
        most: AtomicUsize::new(usize::MAX),
        silent: Mutex::default(),
    });
    let Queues { durable, .. } = start(&fake, &ended);
    until("three connections", async || fake.connected.load(Ordering::SeqCst) == 3).await;
    (fake, durable, closed)
}

/// Sends something. Returns where the answer comes: the connection that has taken it.
fn ask(queue: &Sender<Job>) -> oneshot::Receiver<Result<Vec<Inbox>>> {
    let (sender, answer) = oneshot::channel();
    queue.send(Job::Send(Vec::new(), sender));
    answer
}

async fn answered_by(queue: &Sender<Job>) -> usize {
    let answer = in_time("an answer", ask(queue)).await.unwrap();
    usize::try_from(answer.unwrap()[0]).unwrap()
}

/// One call finds all of them dead.
#[tokio::test]
async fn idle_connections_are_replaced_after_a_silence() {
    let (fake, queue, _closed) = three(SHORT).await;
    lock(&fake.silent).extend(0..3);
    let _never = ask(&queue);
    until("three others", async || fake.connected.load(Ordering::SeqCst) == 6).await;
    assert!(answered_by(&queue).await >= 3);
    assert!(answered_by(&queue).await >= 3);
}

/// The server has no others to spare, and those that are idle may work still.
#[tokio::test]
async fn suspected_connections_are_kept_without_others() {
    let (fake, queue, _closed) = three(SHORT).await;
    fake.most.store(3, Ordering::SeqCst);
    let (suspicions, mut asked) = (fake.server.suspicions(), Vec::new());
    let dead = answered_by(&queue).await;
    lock(&fake.silent).insert(dead);
    // Until it has taken one.
    until("a suspicion", async || {
        asked.push(ask(&queue));
        suspicions.has_changed().unwrap()
    })
    .await;
    for _ in 0..20 {
        assert_ne!(answered_by(&queue).await, dead);
    }
}

/// A locked table makes all connections slow: nobody connects again when they have answered.
#[tokio::test]
async fn connections_that_have_answered_are_not_replaced() {
    const LONG: Duration = Duration::from_secs(6);
    let (fake, queue, _closed) = three(LONG).await;
    // Younger ones would not be suspected.
    tokio::time::sleep(LONG).await;
    lock(&fake.silent).extend(0..3);
    let asked = [(); 3].map(|()| ask(&queue));
    until("that all have one", async || queue.queued() == 0).await;
    fake.server.suspect();
    lock(&fake.silent).clear();
    for answer in asked {
        in_time("an answer", answer).await.unwrap().unwrap();
    }
    for _ in 0..20 {
        assert!(answered_by(&queue).await < 3);
    }
    assert_eq!(fake.connected.load(Ordering::SeqCst), 3);
}
