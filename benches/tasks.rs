//! Work that many tasks do at the same time.

use std::time::{Duration, Instant};
use tokio::{runtime::Runtime, task::JoinSet};

/// The application's runtime: the connections of the rivals are tasks of it.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Does work `times` times in `tasks` tasks, and returns how long that took.
///
/// `work` is given the task's number and how often it does its work.
pub(crate) fn spread<F>(runtime: &Runtime, tasks: u32, times: u32, work: impl Fn(u32, u32) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Instant::now();
    runtime.block_on(async {
        let mut set = JoinSet::new();
        for task in 0..tasks {
            set.spawn(work(task, times / tasks));
        }
        while let Some(done) = set.join_next().await {
            done.expect("a task");
        }
    });
    started.elapsed()
}
