//! Two transactions of an earlier and a later holder, in every order of their steps.

use crate::support::{Caller, Database, STALE, fresh_name, is_blocked, refused};
use locker_harness::{in_time, until};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::mpsc;

/// Whose turn it is: the earlier holder (fence 1) or the later (fence 2).
const ORDERS: [[usize; 6]; 20] = orders();
const FENCES: [i64; 2] = [1, 2];

/// The ways to arrange three steps of each of two transactions.
const fn orders() -> [[usize; 6]; 20] {
    let (mut orders, mut found, mut bits) = ([[0; 6]; 20], 0, 0_u32);
    while bits < 64 {
        if bits.count_ones() == 3 {
            let mut step = 0;
            while step < 6 {
                orders[found][step] = (bits >> step & 1) as usize;
                step += 1;
            }
            found += 1;
        }
        bits += 1;
    }
    orders
}

/// What became of the transactions.
#[derive(Debug, Default)]
struct Outcome {
    /// The fences that committed.
    committed: Vec<i64>,
    /// The later holder found what the earlier wrote, once it had recorded its fence.
    later_saw_earlier: bool,
    /// The fences that were refused, and why.
    refused: Vec<(i64, String)>,
}

/// A transaction whose steps are: begin and read, record the fence and write, end.
struct Transaction {
    steps: mpsc::UnboundedSender<()>,
    done: Arc<AtomicUsize>,
    pid: i32,
    task: tokio::task::JoinHandle<Caller>,
}

impl Transaction {
    fn start(
        caller: Caller,
        fence: i64,
        name: String,
        isolation: &'static str,
        commits: bool,
        outcome: Arc<Mutex<Outcome>>,
    ) -> Self {
        let (steps, mut turns) = mpsc::unbounded_channel();
        let (done, pid) = (Arc::new(AtomicUsize::new(0)), caller.pid);
        let counted = Arc::clone(&done);
        let task = tokio::spawn(async move {
            turns.recv().await.unwrap();
            caller.run(&format!("BEGIN ISOLATION LEVEL {isolation}")).await.unwrap();
            caller.run("SELECT count(*) FROM locker_meta").await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            turns.recv().await.unwrap();
            let mut result = caller.fence(&name, fence).await;
            if result.is_ok() {
                let earlier = database_effects(&caller, &name).await.starts_with('1');
                outcome.lock().unwrap().later_saw_earlier |= earlier && fence == 2;
                result = caller.write(&name, fence).await;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            turns.recv().await.unwrap();
            if commits && result.is_ok() {
                result = caller.run("COMMIT").await;
                if result.is_ok() {
                    outcome.lock().unwrap().committed.push(fence);
                }
            } else {
                caller.run("ROLLBACK").await.unwrap();
            }
            if let Err(code) = result {
                outcome.lock().unwrap().refused.push((fence, code));
            }
            counted.fetch_add(1, Ordering::SeqCst);
            caller
        });
        Self { steps, done, pid, task }
    }

    /// Allows one more step, and waits until all that were allowed are done, or one waits for the other transaction.
    async fn step(&self, allowed: usize, observer: &Caller) {
        self.steps.send(()).unwrap();
        until("the step", async || {
            self.done.load(Ordering::SeqCst) == allowed || is_blocked(observer, self.pid).await
        })
        .await;
    }
}

/// Runs the two transactions. `commits` says of each whether it commits or rolls back.
async fn run(
    callers: [Caller; 2],
    observer: &Caller,
    name: &str,
    isolation: &'static str,
    order: [usize; 6],
    commits: [bool; 2],
) -> ([Caller; 2], Outcome) {
    let outcome = Arc::<Mutex<Outcome>>::default();
    let [earlier, later] = callers;
    let start = |caller, which: usize| {
        let name = name.to_owned();
        Transaction::start(caller, FENCES[which], name, isolation, commits[which], Arc::clone(&outcome))
    };
    let both = [start(earlier, 0), start(later, 1)];
    let mut allowed = [0; 2];
    for which in order {
        allowed[which] += 1;
        both[which].step(allowed[which], observer).await;
    }
    let [earlier, later] = both.map(|transaction| transaction.task);
    let callers = [
        in_time("the earlier transaction", earlier).await.unwrap(),
        in_time("the later transaction", later).await.unwrap(),
    ];
    let outcome = std::mem::take(&mut *outcome.lock().unwrap());
    (callers, outcome)
}

async fn check_all(isolation: &'static str) {
    let Some(database) = Database::open().await else { return };
    let observer = database.client().await;
    let mut callers = [database.client().await, database.client().await];
    let mut refusals = 0;
    for order in ORDERS {
        for commits in [[true, true], [true, false], [false, true], [false, false]] {
            for has_row in [false, true] {
                let name = fresh_name();
                if has_row {
                    assert_eq!(observer.fence(&name, 0).await, Ok(()));
                }
                let outcome;
                (callers, outcome) = run(callers, &observer, &name, isolation, order, commits).await;
                let case = format!("{isolation}, {order:?}, {commits:?}, {has_row}: {outcome:?}");
                let Outcome { mut committed, later_saw_earlier, refused: failed } = outcome;
                // The replies to COMMIT can arrive in another order than the server committed in.
                committed.sort_unstable();
                assert!(
                    committed != [1, 2] || later_saw_earlier,
                    "the earlier holder has written after the later: {case}"
                );
                let texts: Vec<_> = committed.iter().map(ToString::to_string).collect();
                assert_eq!(database_effects(&observer, &name).await, texts.join(","), "{case}");
                for (fence, code) in &failed {
                    let is_conflict = isolation != "READ COMMITTED" && code == "40001";
                    assert!(is_conflict || *fence == 1 && code == STALE, "{case}");
                    if code == STALE {
                        assert_eq!(committed, [2], "{case}");
                        refusals += 1;
                    }
                }
                if isolation == "READ COMMITTED" {
                    assert_eq!(committed.contains(&2), commits[1], "{case}");
                    assert!(!commits[0] || committed.contains(&1) || !failed.is_empty(), "{case}");
                }
                if committed.contains(&2) {
                    assert_eq!(observer.fence(&name, 1).await, refused(STALE), "{case}");
                }
            }
        }
    }
    assert!(refusals > 0, "no order has refused the earlier holder");
}

async fn database_effects(observer: &Caller, name: &str) -> String {
    let sql = "SELECT coalesce(string_agg(fence::text, ',' ORDER BY fence), '') FROM effects WHERE name = $1";
    observer.query_one(sql, &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn stale_writer_loses_at_read_committed() {
    check_all("READ COMMITTED").await;
}

#[tokio::test]
async fn stale_writer_loses_at_repeatable_read() {
    check_all("REPEATABLE READ").await;
}

#[tokio::test]
async fn stale_writer_loses_at_serializable() {
    check_all("SERIALIZABLE").await;
}
