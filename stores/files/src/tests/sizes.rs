//! Logs that have grown because nobody could compact them.

use super::{Dir, exchange, processes::command, read, settle};
use crate::{
    Files,
    folder::{Host, Locked},
};
use locker_cas::Outcome;
use locker_core::key::Key;
use std::{process::Stdio, sync::atomic::Ordering};

const MIB: usize = 1 << 20;

/// Replaces a value of 1 MiB again and again.
pub(super) fn grow(files: &Files, key: &str, mebibytes: u8) {
    let key = Key::new(key);
    for round in 0..mebibytes {
        let version = read(files, &key).0;
        let outcome = exchange(files, &key, version, &vec![round; MIB]);
        assert!(matches!(outcome, Outcome::Matched { .. }), "{outcome:?}");
    }
}

/// A directory with a log of 40 MiB of replaced values, whose lock a process has that was stopped.
struct Grown {
    dir: Dir,
    stopped: Files,
    /// The name of the log.
    name: String,
    lock: Option<Locked>,
    /// What the process that has written the values said.
    told: String,
}

impl Grown {
    fn new() -> Self {
        let dir = Dir::new();
        let stopped = dir.open();
        exchange(&stopped, &Key::new("key"), 0, b"x");
        let name = dir.logs()[0].clone();
        let folder = &stopped.folder;
        let lock = folder.lock(&folder.logs, &format!("{name}.lock")).unwrap();
        assert!(lock.is_some());
        let output = command("grow key 40", &dir.0).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        Self { dir, stopped, name, lock, told }
    }
}

/// Nobody learned why the directory grew.
#[test]
fn log_that_nobody_compacts_is_reported() {
    let grown = Grown::new();
    let told: Vec<_> = grown.told.lines().filter(|line| line.contains("MiB")).collect();
    // At 17 MiB, and when it has doubled.
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains(&format!("logs/{}.lock", grown.name)) && told[0].contains("lslocks"),
        "{told:?}"
    );
}

/// A process that opened the directory later read all of the log into one buffer.
#[test]
fn long_log_is_read_in_pieces() {
    let mut grown = Grown::new();
    let (later, key) = (grown.dir.open(), Key::new("key"));
    assert_eq!(read(&later, &key).1, Some(vec![39; MIB]));
    let largest = later.folder.pauses.largest.load(Ordering::Relaxed);
    assert!(largest < 3 * MIB, "{largest} bytes were read at once");
    // It is compacted as soon as that is possible.
    drop(grown.lock.take());
    grow(&later, "key", 1);
    settle(&later);
    assert_eq!(read(&grown.stopped, &key).1, Some(vec![0; MIB]));
    let log = grown.dir.0.join(Host::this().unwrap().boot).join("logs").join(&grown.name);
    assert!(log.metadata().unwrap().len() < 5 * MIB as u64);
}
