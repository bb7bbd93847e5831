//! What other processes do while one is stopped, or after it was killed, at each point of its work.

use super::{Dir, add, exchange, number, read, settle, sweep, write};
use crate::Files;
use locker_cas::{Backend, Outcome, Write};
use locker_core::{blocking::block_on, key::Key};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

const POINTS: [&str; 7] = [
    "before the write",
    "after the write",
    "locked",
    "before the seal",
    "after the seal",
    "before the rename",
    "after the rename",
];

/// Values of this length fill a log after 60 writes.
const LEN: usize = 1_000;

fn pauses(files: &Files) -> &super::Pauses {
    &files.folder.pauses
}

fn swept(files: &Files) {
    sweep(files).unwrap();
}

#[test]
fn a_stopped_process_delays_nobody_and_loses_nothing() {
    for point in POINTS {
        let (dir, key) = (Dir::new(), Key::new("counter"));
        let (one, other) = (dir.open(), Arc::new(dir.open()));
        add(&other, &key, LEN);
        let (acting, of) = (Arc::clone(&other), key.clone());
        let times = pauses(&one).once(point, move || {
            for _ in 0..300 {
                add(&acting, &of, LEN);
            }
            swept(&acting);
        });
        let mut added = 1 + 300;
        while times.load(Ordering::Relaxed) == 0 || added < 1 + 300 + 300 {
            add(&one, &key, LEN);
            added += 1;
            assert!(added < 100_000, "{point} was not reached");
        }
        settle(&one);
        for files in [&one, &*other, &dir.open()] {
            assert_eq!(number(read(files, &key).1.as_deref()), added, "{point}");
        }
        for _ in 0..100 {
            add(&other, &key, LEN);
        }
        settle(&other);
        swept(&other);
        assert_eq!(dir.copies(), 0, "{point}: logs are left");
    }
}

/// A thread that panics at a point does no more than one whose process was killed.
#[test]
fn a_killed_process_leaves_nothing_half_done() {
    for point in POINTS {
        let (dir, key) = (Dir::new(), Key::new("counter"));
        let (one, other) = (dir.open(), dir.open());
        add(&other, &key, LEN);
        let times = pauses(&one).once(point, || panic!("killed by the test"));
        let mut added = 1;
        while times.load(Ordering::Relaxed) == 0 {
            match block_on(one.exchange(next_of(&one, &key))) {
                Ok(outcome) => assert!(matches!(outcome, Outcome::Matched { .. }), "{outcome:?}"),
                Err(error) => {
                    assert!(!error.is_certain(), "{error}");
                    // The process was killed within this write.
                    added -= usize::from(point == "before the write");
                }
            }
            added += 1;
            assert!(added < 100_000, "{point} was not reached");
        }
        settle(&one);
        drop(one);
        for files in [&other, &dir.open()] {
            assert_eq!(number(read(files, &key).1.as_deref()), added, "{point}");
        }
        for _ in 0..300 {
            add(&other, &key, LEN);
        }
        assert_eq!(number(read(&dir.open(), &key).1.as_deref()), added + 300, "{point}");
        settle(&other);
        swept(&other);
        assert_eq!(dir.copies(), 0, "{point}: logs are left");
    }
}

/// Returns the write that adds 1 to the number at a key.
fn next_of(files: &Files, key: &Key) -> Write {
    let (version, value) = read(files, key);
    let next = number(value.as_deref()) + 1;
    write(key, version, format!("{next} {}", "x".repeat(LEN)).as_bytes())
}

#[test]
fn a_late_write_has_no_effect() {
    let (dir, key) = (Dir::new(), Key::new("late"));
    let (one, other) = (dir.open(), Arc::new(dir.open()));
    for was_absent in [true, false] {
        let (version, _) = read(&one, &key);
        let (acting, of) = (Arc::clone(&other), key.clone());
        let times = pauses(&one).once("before the write", move || {
            assert!(matches!(exchange(&acting, &of, version, b"first"), Outcome::Matched { .. }));
        });
        let late = exchange(&one, &key, version, b"late");
        assert_eq!(times.load(Ordering::Relaxed), 1);
        let (present, value) = read(&other, &key);
        assert_eq!(value.as_deref(), Some(&b"first"[..]), "{was_absent}");
        assert_eq!(late, Outcome::Differs { version: present, value });
    }
}

/// A version of a removed key is not used again, so that a late write does not find it.
#[test]
fn versions_rise_over_removals() {
    let (dir, key) = (Dir::new(), Key::new("removed"));
    let (one, other) = (dir.open(), dir.open());
    let mut last = 0;
    for _ in 0..5 {
        let mut written = write(&key, 0, b"x");
        written.lasts = Duration::ZERO;
        let outcome = block_on(one.exchange(written)).unwrap();
        let Outcome::Matched { version, .. } = outcome else { panic!("{outcome:?}") };
        assert!(version > last);
        last = version;
        swept(&other);
        assert_eq!(read(&one, &key).0, last, "removed before the time that a stopped writer has");
        for files in [&one, &other] {
            pauses(files).ahead.fetch_add(61_000_000, Ordering::Relaxed);
        }
        swept(&other);
        assert_eq!(read(&one, &key), (0, None));
        assert!(matches!(exchange(&one, &key, last, b"late"), Outcome::Differs { version: 0, .. }));
    }
}
