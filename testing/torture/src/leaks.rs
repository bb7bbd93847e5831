//! What is left in the store after all workers have ended.

use crate::{Plan, kinds::Kind};
use locker_harness::{GENEROUS, eventually};
use locker_runtime::{ErrorKind, Filter, Locker};
use std::time::{Duration, Instant};

/// How long a lease or a place of a dead process may be in the way: its lease, or the grant windows of its waiters.
const PATIENCE: Duration = GENEROUS;

/// Checks that everything is free for who asks, and that no hold and no waiter is left.
pub(crate) fn find(plan: &Plan, locker: &Locker) -> Vec<String> {
    let mut problems = Vec::new();
    let started = Instant::now();
    for name in plan.names_of(&[
        Kind::Lock,
        Kind::LockAll,
        Kind::Nested,
        Kind::Leader,
        Kind::Semaphore,
        Kind::ReadWrite,
    ]) {
        let kind = Kind::of(&name).expect("a name of ours");
        match kind.ask(locker, &name, kind.whole()).timeout(PATIENCE).acquire_blocking() {
            Ok(guard) => {
                problems.extend(guard.release_blocking().err().map(|error| format!("{name}: {error}")));
            }
            Err(error) => problems.push(format!("leak: not all of {name} is free: {error}")),
        }
    }
    println!("everything was free after {:?}", started.elapsed());
    // A list has no patience of its own, and a master may just have been replaced.
    let left = eventually("a list of the keys", || match used(locker) {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        result => Some(result),
    });
    match left {
        Ok(left) => problems.extend(left.iter().map(|key| format!("leak: {key}"))),
        Err(error) => problems.push(format!("the keys cannot be listed: {error}")),
    }
    problems
}

/// Returns the keys with a hold or a waiter, page by page. What was released a moment ago is still listed.
fn used(locker: &Locker) -> locker_runtime::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    let (admin, mut keys) = (locker.admin(), Vec::new());
    let filter = Filter::default().kind("lock").kind("leader").kind("semaphore").kind("rwlock");
    let mut after = None;
    loop {
        let page = runtime.block_on(admin.page(&filter, after.as_deref(), 2))?;
        for key in page.keys.into_iter().map(|listed| listed.key) {
            let state = runtime.block_on(admin.inspect(&key))?;
            if let Some(state) = state.filter(|state| !state.holders.is_empty() || state.waiting > 0) {
                keys.push(format!("{key} is still in use: {state:?}"));
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(keys);
        }
    }
}
