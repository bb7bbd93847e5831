//! The locker of the process, as other processes see it: the environment decides, so each case is a process.

use locker::ErrorKind;
use std::process::Command;

/// Runs one of the cases below in a process of its own.
fn in_process(case: &str, url: Option<&str>) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("global::{case}"), "--nocapture", "--include-ignored"]);
    command.env("LOCKER_TEST_CASE", case).env_remove("LOCKER_URL");
    if let Some(url) = url {
        command.env("LOCKER_URL", url);
    }
    command.output().unwrap()
}

/// Whether this process is the one that `in_process` started for `case`; else starts it and checks that it passed.
fn am_i(case: &str, url: Option<&str>) -> bool {
    if std::env::var("LOCKER_TEST_CASE").is_ok_and(|running| running == case) {
        return true;
    }
    let output = in_process(case, url);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the case ran");
    false
}

#[test]
fn without_anything_it_is_the_memory_of_the_process() {
    if am_i("without_anything_it_is_the_memory_of_the_process", None) {
        let guard = locker::global().lock("a").acquire_blocking().unwrap();
        let same = locker::Locker::connect_blocking("memory://").unwrap();
        assert!(same.lock("a").try_acquire_blocking().unwrap().is_none());
        assert!(locker::set_global(locker::Locker::memory()).is_err(), "too late: it was used");
        guard.release_blocking().unwrap();
    }
}

#[test]
fn what_was_set_first_stays() {
    if am_i("what_was_set_first_stays", Some("nonsense")) {
        let mine = locker::Locker::builder().prefix("mine:").build_blocking();
        assert_eq!(mine.unwrap_err().kind(), ErrorKind::Misused, "LOCKER_URL is nonsense");
        let mine = locker::Locker::builder().url("memory://").prefix("mine:").build_blocking().unwrap();
        locker::set_global(mine).unwrap();
        assert!(locker::set_global(locker::Locker::memory()).is_err());
        assert_eq!(locker::global().prefix(), "mine:");
        assert_eq!(locker::try_global().unwrap().prefix(), "mine:");
    }
}

#[test]
fn with_a_bad_url_every_call_says_what_is_wrong() {
    if am_i("with_a_bad_url_every_call_says_what_is_wrong", Some("nonsense://here")) {
        for error in [
            locker::global().lock("a").acquire_blocking().unwrap_err(),
            locker::try_global().map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Misused);
            let text = error.to_string();
            assert!(
                text.contains("LOCKER_URL") && text.contains("nonsense://") && text.contains("memory://"),
                "{text}"
            );
        }
    }
}
