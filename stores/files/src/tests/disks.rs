//! Disks that are slow: what waits for them delays no call and no renewal, in this store or in another one.

use super::{Dir, exchange, read, settle, sweep, write};
use crate::{Files, folder::Host, io::shard_of};
use futures_util::FutureExt;
use locker_cas::{Backend, CasStore, Message, Opening, Outcome, Received};
use locker_core::{background, blocking::block_on, key::Key, sync::lock};
use locker_harness::eventually;
use locker_runtime::{Guard, Locker};
use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

const LEASE: Duration = Duration::from_secs(2);

/// A store with a hold, and a point at which its disk is so slow that it does not go on.
struct Slow {
    goes_on: GoesOn,
    dir: Dir,
    locker: Locker,
    guard: Guard,
    /// The name of a counter in the log of the hold.
    beside: String,
    reached: Arc<AtomicUsize>,
}

/// Lets the disk go on when it is dropped.
struct GoesOn(Arc<AtomicBool>);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Slow {
    fn at(point: &'static str) -> Self {
        let (dir, goes_on) = (Dir::new(), GoesOn(Arc::default()));
        // The directory is opened without a delay.
        drop(dir.open());
        let waits = Arc::clone(&goes_on.0);
        let reached = dir.pauses().once(point, move || {
            let until = Instant::now() + 4 * LEASE;
            while !waits.load(Ordering::Acquire) && Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
            }
        });
        // Not by its URL, which the crate opens as it is outside of tests.
        let store = CasStore::new(dir.open(), &Opening::default()).unwrap();
        let locker = Locker::builder().store(store).lease(LEASE).build_blocking().unwrap();
        let guard = locker.lock("held").acquire_blocking().unwrap();
        let is_beside = |name: &String| shard_of(&format!("counter:{name}")) == shard_of(guard.key());
        let beside = (0..10_000).map(|number| number.to_string()).find(is_beside).unwrap();
        Self { goes_on, dir, locker, guard, beside, reached }
    }

    fn add(&self) {
        self.locker.counter(&self.beside).add_blocking(1).unwrap();
    }

    /// Has a floor of the fences kept on the disk by another store.
    fn sync(&self) -> Files {
        let files = self.dir.open();
        for entry in fs::read_dir(&self.dir.0).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("floor.") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        files.keeper.send(|keeper| drop(keeper.sweep(Duration::ZERO)));
        files
    }
}

/// A hold was lost in every store of the process when a disk took longer than its lease.
fn holds_live_through(point: &'static str) {
    let slow = Slow::at(point);
    let other = Locker::builder().url(format!("fake://disk {point}")).lease(LEASE).build_blocking().unwrap();
    let other = other.lock("held").acquire_blocking().unwrap();
    let syncs = (point == "before the sync").then(|| slow.sync());
    let started = Instant::now();
    while slow.reached.load(Ordering::Relaxed) == 0 {
        slow.add();
        assert!(started.elapsed() < locker_harness::GENEROUS, "{point} was not reached");
    }
    let stalled = Instant::now();
    while stalled.elapsed() < 2 * LEASE + LEASE / 2 {
        slow.add();
        for guard in [&slow.guard, &other] {
            assert!(guard.check().is_ok(), "{point}: {} was lost after {:?}", guard.key(), stalled.elapsed());
        }
        thread::sleep(Duration::from_millis(20));
    }
    drop(slow.goes_on);
    syncs.iter().for_each(settle);
    for guard in [slow.guard, other] {
        guard.release_blocking().unwrap();
    }
}

#[test]
fn slow_disk_loses_no_hold() {
    thread::scope(|scope| {
        for point in ["before the sync", "locked", "before the seal", "after the seal"] {
            scope.spawn(move || holds_live_through(point));
        }
    });
}

/// Holds are renewed on the background thread.
#[test]
fn files_are_not_used_on_the_background_thread() {
    let dir = Dir::new();
    let (sender, opened) = oneshot::channel();
    let opening = Files::open_at(dir.0.clone(), Host::this);
    background::ready().unwrap();
    background::spawn(async move { drop(sender.send(opening.await)) });
    let files = block_on(opened).unwrap().unwrap();
    let heard = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&heard);
    files.listen(Box::new(move |_: Received<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let key = Key::new("key");
    let mut version = 0;
    for _ in 0..10 {
        exchange(&files, &key, version, &vec![0; 100_000]);
        version = super::read(&files, &key).0;
    }
    block_on(files.send(vec![Message { to: files.inbox(), text: "x".into() }])).unwrap();
    eventually("the message", || (heard.load(Ordering::Relaxed) > 0).then_some(()));
    sweep(&files).unwrap();
    settle(&files);
    let seen = lock(&files.folder.pauses.seen).clone();
    for point in ["before the write", "before the seal", "before the sync", "before a look for a gap"] {
        assert!(seen.iter().any(|(reached, _)| *reached == point), "{point} in {seen:?}");
    }
    assert!(seen.iter().all(|(_, thread)| thread.starts_with("locker-")), "{seen:?}");
}

/// While a disk hangs, every call that was given up stayed in the queue with its value.
#[test]
fn given_up_calls_leave_the_queue() {
    let dir = Dir::new();
    let (files, (goes_on, waits)) = (dir.open(), std::sync::mpsc::channel::<()>());
    let waits = Mutex::new(waits);
    let reached = files.folder.pauses.once("before the write", move || {
        let _ = lock(&waits).recv();
    });
    let (first, key) = (write(&Key::new("first"), 0, b"x"), Key::new("key"));
    let mut hangs = files.exchange(first);
    assert!((&mut hangs).now_or_never().is_none());
    eventually("the disk to hang", || (reached.load(Ordering::Relaxed) > 0).then_some(()));
    for at in 0..1_000 {
        assert!(files.exchange(write(&key, 0, &vec![7; 100_000])).now_or_never().is_none());
        let len = files.io.len();
        assert!(len <= 2, "{len} calls after {at}");
    }
    drop(goes_on);
    assert!(matches!(block_on(hangs).unwrap(), Outcome::Matched { .. }));
    assert_eq!(read(&files, &key), (0, None));
}
