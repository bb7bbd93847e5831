//! A recorder that is installed for the whole process, and its forked child.

use crate::Metrics;
use fork::{Fork, fork, waitpid};
use futures_util::FutureExt;
use locker::Locker;
use metrics_exporter_prometheus::PrometheusBuilder;

/// The only test whose lockers have no recorder of their own.
#[test]
fn recorder_counts_once_installed_and_zero_in_a_child() {
    let (locker, given) = (Locker::memory(), Metrics::memory());
    locker.lock("before").acquire_blocking().unwrap().release_blocking().unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = Metrics(recorder.handle());
    assert!(metrics::set_global_recorder(recorder).is_ok());
    assert_eq!(metrics.all_acquires(), 0);

    let guard = locker.lock("after").acquire_blocking().unwrap();
    given.1.lock("given").acquire_blocking().unwrap().release_blocking().unwrap();
    assert_eq!((metrics.acquires("lock", "granted"), metrics.held("lock")), (1, 1));
    let mut waiting = Box::pin(locker.lock("after").acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(metrics.waiting("lock"), 1);
    assert_eq!(given.0.acquires("lock", "granted"), 1, "it keeps the recorder that it was given");

    match fork().unwrap() {
        Fork::Child => {
            let own = Locker::memory();
            let held = own.lock("child").acquire_blocking().map(|guard| (metrics.held("lock"), guard));
            drop(guard);
            let is_refused = waiting.as_mut().now_or_never().is_some_and(|ended| ended.is_err());
            drop(waiting);
            let waits = metrics.of("locker_waiting");
            let is_right = is_refused
                && waits.is_empty()
                && held.is_ok_and(|(held, guard)| {
                    let stays = metrics.held("lock");
                    guard.release_blocking().is_ok() && (held, stays, metrics.held("lock")) == (1, 1, 0)
                });
            std::process::exit(i32::from(!is_right));
        }
        Fork::Parent(child) => assert_eq!(waitpid(child).unwrap(), 0, "the child counts from zero"),
    }
    assert_eq!([metrics.held("lock"), metrics.waiting("lock")], [1, 1]);
    drop(waiting);
    guard.release_blocking().unwrap();
    metrics.assert_idle();
}
