//! Jobs that several instances of a program start.

use crate::support::{Opened, connect_apart, fresh_name, until};
use futures_util::future::join_all;
use locker::{ErrorKind, Locker, Result, lock_on_argument};
use std::sync::atomic::{AtomicUsize, Ordering};

const INSTANCES: usize = 4;

exhibits! {
    {
        one_of_four_instances_runs_the_job,
        shifted_instances_run_a_job_once
    } on redis postgres etcd files
}

#[derive(Default)]
struct Counts {
    runs: AtomicUsize,
    refusals: AtomicUsize,
}

/// Each instance has connections of its own.
async fn instances(store: &Opened) -> Vec<Locker> {
    join_all((1..=INSTANCES).map(|number| connect_apart(&store.url, number as u64))).await
}

/// It tries once. A slow store has time to answer.
#[lock_on_argument(name = "museum.daily", args(job), max_retry = 1, timeout = "5m", locker = locker)]
async fn daily(locker: &Locker, job: &str, counts: &Counts) -> Result<()> {
    counts.runs.fetch_add(1, Ordering::SeqCst);
    let others = INSTANCES - 1;
    until("the other instances", async || counts.refusals.load(Ordering::SeqCst) == others).await;
    Ok(())
}

/// jasonlvhit/gocron#160: the scheduler ran the job whether it had got the lock or not.
async fn one_of_four_instances_runs_the_job(store: &Opened) {
    let (job, counts, instances) = (fresh_name(), Counts::default(), instances(store).await);
    join_all(instances.iter().map(async |locker| {
        if let Err(error) = daily(locker, &job, &counts).await {
            assert_eq!(error.kind(), ErrorKind::RetriesExhausted, "{error}");
            counts.refusals.fetch_add(1, Ordering::SeqCst);
        }
    }))
    .await;
    assert_eq!(counts.runs.into_inner(), 1);
}

#[lock_on_argument(name = "museum.quick", args(job), max_retry = 1, timeout = "5m", locker = locker)]
async fn quick(locker: &Locker, job: &str) -> Result<()> {
    Ok(())
}

#[lock_on_argument(
    expr = "1h",
    name = "museum.hourly",
    args(job),
    release = "on_expiry",
    max_retry = 1,
    timeout = "5m",
    locker = locker,
)]
async fn hourly(locker: &Locker, job: &str) -> Result<()> {
    Ok(())
}

/// go-co-op/gocron#841: a job that ends before another instance starts it runs there again.
async fn shifted_instances_run_a_job_once(store: &Opened) {
    let (job, instances) = (fresh_name(), instances(store).await);
    for locker in &instances {
        quick(locker, &job).await.expect("a lock excludes only at the same time");
    }
    hourly(&instances[0], &job).await.unwrap();
    for locker in &instances[1..] {
        assert_eq!(hourly(locker, &job).await.unwrap_err().kind(), ErrorKind::RetriesExhausted);
    }
}
