//! Some seconds of torture for each store. `cargo run -p locker-torture -- --store postgres --seconds 600` runs for
//! longer, and judges the order of service as well: that depends on the other work of the machine.

use std::{
    io::BufReader,
    process::Command,
    sync::{Mutex, PoisonError},
};

/// So that each store has the processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The kinds of holds, each with grants.
const ALL: usize = 3;

fn torture_breaks_no_promise(store: &str) {
    torture_with(&["--store", store], ALL, "9");
}

fn torture_with(options: &[&str], kinds: usize, seconds: &str) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = std::env::var("LOCKER_TORTURE_SECONDS").unwrap_or_else(|_| seconds.into());
    let history = tempfile::NamedTempFile::new().unwrap();
    let torture = Command::new(env!("CARGO_BIN_EXE_locker-torture"))
        .args(options)
        .args(["--calm", "0", "--seconds", &seconds, "--history"])
        .arg(history.path())
        .output()
        .unwrap();
    let (output, errors) =
        (String::from_utf8_lossy(&torture.stdout), String::from_utf8_lossy(&torture.stderr));
    println!("{output}{errors}");
    assert!(torture.status.success(), "{output}{errors}");
    // Without the program of the store there is no history.
    if history.path().metadata().unwrap().len() > 0 {
        let verdict = locker_checker::judge(BufReader::new(history.reopen().unwrap())).unwrap();
        assert!(verdict.is_sound() && verdict.grants.len() == kinds, "{verdict}");
    }
}

#[test]
fn redis_under_torture_breaks_no_promise() {
    torture_breaks_no_promise("redis");
}

#[test]
fn postgres_under_torture_breaks_no_promise() {
    torture_breaks_no_promise("postgres");
}

#[test]
fn mysql_under_torture_breaks_no_promise() {
    torture_breaks_no_promise("mysql");
}

#[test]
fn etcd_under_torture_breaks_no_promise() {
    torture_breaks_no_promise("etcd");
}

#[test]
fn zookeeper_under_torture_breaks_no_promise() {
    torture_breaks_no_promise("zookeeper");
}

#[test]
fn files_under_torture_break_no_promise() {
    torture_breaks_no_promise("files");
}

#[test]
fn sentinels_under_torture_break_no_promise() {
    torture_with(&["--topology", "sentinel"], ALL, "9");
}

#[test]
fn cluster_under_torture_breaks_no_promise() {
    torture_with(&["--topology", "cluster"], ALL, "9");
}

#[test]
fn nested_locks_under_torture_break_no_promise() {
    torture_with(&["--store", "files", "--kinds", "nested"], 1, "5");
}
