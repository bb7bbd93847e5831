//! The locker of the process, as other processes see it: the environment decides, so each case is a process.

use locker::ErrorKind;
use std::{ffi::OsStr, process::Command};

/// Runs one of the cases below in a process of its own.
fn in_process(case: &str, url: Option<&OsStr>) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("global::{case}"), "--nocapture", "--include-ignored"]);
    command.env("LOCKER_TEST_CASE", case).env_remove("LOCKER_URL");
    if let Some(url) = url {
        command.env("LOCKER_URL", url);
    }
    command.output().unwrap()
}

/// What `case` says in a process of its own, where it passes; `None`: this is that process.
fn said(case: &str, url: Option<&OsStr>) -> Option<String> {
    if std::env::var("LOCKER_TEST_CASE").is_ok_and(|running| running == case) {
        return None;
    }
    let output = in_process(case, url);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "the case ran");
    Some(said)
}

/// Whether this process is the one that was started for `case`; else starts it and checks that it passed.
fn am_i(case: &str, url: Option<&OsStr>) -> bool {
    said(case, url).is_none()
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
    if am_i("what_was_set_first_stays", Some("nonsense".as_ref())) {
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
    if am_i("with_a_bad_url_every_call_says_what_is_wrong", Some("nonsense://here".as_ref())) {
        for error in [
            locker::global().lock("a").acquire_blocking().unwrap_err(),
            locker::try_global().map(|_| ()).unwrap_err(),
            locker::Locker::builder().build_blocking().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Misused);
            let text = error.to_string();
            assert!(
                text.contains("LOCKER_URL") && text.contains("nonsense://") && text.contains("memory://"),
                "{text}"
            );
        }
        locker::set_global(locker::Locker::memory()).expect("none was chosen");
        locker::global().lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
    }
}

/// It was meant for a store that others share.
#[cfg(unix)]
#[test]
fn a_variable_that_cannot_be_read_is_not_taken_for_none() {
    use std::os::unix::ffi::OsStrExt;

    let url = OsStr::from_bytes(b"redis://\xff");
    if am_i("a_variable_that_cannot_be_read_is_not_taken_for_none", Some(url)) {
        for locker in [locker::Locker::builder().build_blocking(), locker::try_global().cloned()] {
            let error = locker.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misused);
            assert!(error.to_string().contains("LOCKER_URL"), "{error}");
        }
    }
}

#[cfg(feature = "tracing")]
#[test]
fn who_builds_a_locker_that_nothing_names_a_store_for_is_warned() {
    let Some(said) = said("who_builds_a_locker_that_nothing_names_a_store_for_is_warned", None) else {
        tracing_subscriber::fmt().with_writer(std::io::stdout).init();
        locker::Locker::builder().build_blocking().unwrap();
        return;
    };
    assert!(said.contains("this process only"), "{said}");
}

#[cfg(feature = "tracing")]
#[test]
fn who_has_set_a_locker_is_not_warned() {
    let Some(said) = said("who_has_set_a_locker_is_not_warned", None) else {
        tracing_subscriber::fmt().with_writer(std::io::stdout).init();
        locker::set_global(locker::Locker::memory()).unwrap();
        let _ = locker::global();
        return;
    };
    assert!(!said.contains("this process only"), "{said}");
}

#[cfg(feature = "redis")]
#[test]
fn who_has_set_a_locker_has_no_connection_to_another() {
    use std::net::TcpListener;

    let listen = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        (listener, url)
    };
    let (named, url) = listen();
    if am_i("who_has_set_a_locker_has_no_connection_to_another", Some(url.as_ref())) {
        locker::set_global(locker::Locker::memory()).unwrap();
        locker::global().lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
        // Connections are made in order: when this one is there, one begun before it would be, too.
        let (later, url) = listen();
        std::thread::spawn(move || locker::Locker::connect_blocking(&url));
        later.accept().unwrap();
        return;
    }
    named.set_nonblocking(true).unwrap();
    let none = named.accept().map(|_| ()).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
}
