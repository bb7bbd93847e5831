//! Other wall clocks for programs, by faketime.

use crate::missing;
use std::{fs, path::Path, process::Command};

/// Returns the environment that sets the wall clock of a program `ahead` seconds ahead of the system's. The other
/// clocks of the program are the system's.
/// Returns `None` if there is no faketime.
///
/// # Panics
/// If faketime does not work.
#[must_use]
pub fn wall_clock(ahead: i64) -> Option<Vec<(&'static str, String)>> {
    remove_leftovers();
    let Ok(shown) = Command::new("faketime").args(["-m", "-f", "+0d", "printenv", "LD_PRELOAD"]).output()
    else {
        return missing("there is no faketime: run scripts/setup-etcd.sh");
    };
    let library = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    assert!(library.contains("libfaketime"), "{shown:?}");
    Some(vec![
        ("LD_PRELOAD", library),
        ("FAKETIME", format!("{ahead:+}s")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ("NO_FAKE_STAT", "1".into()),
    ])
}

/// Removes what programs that were killed have left: faketime refuses to start with the process id of one of them.
fn remove_leftovers() {
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let process = name.strip_prefix("faketime_shm_").or_else(|| name.strip_prefix("sem.faketime_sem_"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // Another test may have removed it, or another user may own it.
            let _ = fs::remove_file(entry.path());
        }
    }
}
