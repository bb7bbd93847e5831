//! Python programs that fork, with the library as a module.

#![cfg(unix)]

use locker_harness::{RedisServer, missing};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Runs a function of `forks.py` on each store, with and without a hook that calls `forked`, all at the same time.
fn run(case: &str, urls: &[&str]) {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(library(), folder.path().join("locker_forks.so")).expect("the library as a module");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forks.py");
    let start = |url: &str, hook: &str| {
        let mut command = Command::new(&python);
        command
            .arg(&script)
            .args([case, url, hook])
            .env("PYTHONPATH", folder.path())
            .env_remove("LOCKER_URL");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a Python")
    };
    // Each program has a database of its own.
    let ways = urls.iter().flat_map(|url| [((*url).to_owned(), ""), (url.replace("/0", "/1"), "forked")]);
    let programs: Vec<_> = ways.map(|(url, hook)| (start(&url, hook), url, hook)).collect();
    for (program, url, hook) in programs {
        let output = program.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{case} {url} {hook}: {}\n{said}", output.status);
    }
}

fn run_in_memory_and_on_redis(case: &str) {
    let Some(server) = RedisServer::start() else { return };
    run(case, &["memory", &format!("{}/0", server.url())]);
}

fn run_on_redis(case: &str) {
    let Some(server) = RedisServer::start() else { return };
    run(case, &[&format!("{}/0", server.url())]);
}

fn python() -> Option<PathBuf> {
    let named = std::env::var_os("LOCKER_TEST_PYTHON").map_or("python3".into(), PathBuf::from);
    let is_there = Command::new(&named).arg("--version").stdout(Stdio::null()).status().is_ok();
    if is_there { Some(named) } else { missing("there is no python3: run scripts/setup-python.sh") }
}

/// The library of this package, which cargo has built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    test.with_file_name(format!("{prefix}locker_forks{suffix}"))
}

/// The child locks, renews and releases with a locker of its own. It ends by `_exit`, by a normal exit, which runs
/// destructors, and by a signal. The parent's hold is renewed all the time, with the same fence.
#[test]
fn parent_keeps_its_hold_over_a_fork() {
    run_in_memory_and_on_redis("hold");
}

/// Without the check, a call on Redis waited for a thread that the child does not have, and a lock in memory was not
/// renewed.
#[test]
fn locker_of_the_parent_is_misused_at_once() {
    run_in_memory_and_on_redis("parents_locker");
}

/// Dropped in the child, the copies of a guard and of two waits end nothing of the parent.
#[test]
fn parent_keeps_its_waits_over_a_fork() {
    run_in_memory_and_on_redis("waits");
}

/// The copy of a wait that has timed out, and whose cancel the server has not confirmed yet, does not ask the store
/// anything.
#[test]
fn parent_times_out_over_a_fork() {
    run_on_redis("leaving");
}

/// Other threads of the parent hold mutexes of the library at the moment of the fork, many times.
#[test]
fn child_of_busy_threads_works() {
    run_in_memory_and_on_redis("busy");
}

/// Another thread of the parent waits at the moment of the fork until its warning is read, and the child warns as well.
#[test]
fn child_warns_beside_a_blocked_warning() {
    run("warning", &["memory"]);
}

/// The child of a child, after the first one has ended.
#[test]
fn daemon_works() {
    run_in_memory_and_on_redis("daemon");
}

/// Its task runs in the parent alone, and knows nothing in the child.
#[test]
fn child_has_no_observer() {
    run_in_memory_and_on_redis("observer");
}

/// The attributes use the global locker. A child must not fall back to a store that its parent has not set.
#[test]
fn forked_child_sets_the_global_locker_again() {
    run_in_memory_and_on_redis("global_locker");
}

/// Four workers of a pool take turns on one lock, 200 turns, and nobody overlaps.
#[test]
fn forked_workers_exclude_each_other() {
    run_on_redis("pool");
}

/// `multiprocessing` forks while the parent holds.
#[test]
fn child_process_waits_for_its_parent() {
    run_on_redis("process");
}

/// The C library runs no hook of a fork by `_Fork`, so the child calls `forked` itself.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn fork_without_hooks_is_reported() {
    run("bare_fork", &["memory"]);
}
