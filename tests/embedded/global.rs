//! The global locker. The environment decides about it, so each case runs in a process of its own.

use crate::alone::{am_i, said};
use locker::ErrorKind;
use std::ffi::OsStr;

#[test]
fn global_defaults_to_the_process_memory() {
    if am_i("global::global_defaults_to_the_process_memory", None) {
        let guard = locker::global().lock("a").acquire_blocking().unwrap();
        let same = locker::Locker::connect_blocking("memory://").unwrap();
        assert!(same.lock("a").try_acquire_blocking().unwrap().is_none());
        assert!(locker::set_global(locker::Locker::memory()).is_err(), "too late: it was used");
        guard.release_blocking().unwrap();
    }
}

#[test]
fn first_set_global_stays() {
    if am_i("global::first_set_global_stays", Some("nonsense".as_ref())) {
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
fn bad_url_fails_every_call() {
    if am_i("global::bad_url_fails_every_call", Some("nonsense://here".as_ref())) {
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

/// The variable was meant for a shared store.
#[cfg(unix)]
#[test]
fn unreadable_variable_is_not_ignored() {
    use std::os::unix::ffi::OsStrExt;

    let url = OsStr::from_bytes(b"redis://\xff");
    if am_i("global::unreadable_variable_is_not_ignored", Some(url)) {
        for locker in [locker::Locker::builder().build_blocking(), locker::try_global().cloned()] {
            let error = locker.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misused);
            assert!(error.to_string().contains("LOCKER_URL"), "{error}");
        }
    }
}

#[cfg(feature = "tracing")]
#[test]
fn build_without_a_store_logs_a_warning() {
    let Some(said) = said("global::build_without_a_store_logs_a_warning", None) else {
        tracing_subscriber::fmt().with_writer(std::io::stdout).init();
        locker::Locker::builder().build_blocking().unwrap();
        return;
    };
    assert!(said.out.contains("this process only"), "{}", said.out);
    assert!(said.errors.is_empty(), "{}", said.errors);
}

#[cfg(feature = "tracing")]
#[test]
fn set_global_logs_no_warning() {
    let Some(said) = said("global::set_global_logs_no_warning", None) else {
        tracing_subscriber::fmt().with_writer(std::io::stdout).init();
        locker::set_global(locker::Locker::memory()).unwrap();
        let _ = locker::global();
        return;
    };
    assert!(!said.out.contains("this process only") && said.errors.is_empty(), "{}{}", said.out, said.errors);
}

/// A program without `LOCKER_URL` and without a subscriber locked within its process only, and nothing said so.
#[test]
fn fall_back_to_memory_is_printed() {
    let Some(said) = said("global::fall_back_to_memory_is_printed", None) else {
        let _ = (locker::global(), locker::global());
        return;
    };
    assert!(said.errors.starts_with("locker: no store is named, neither by the program"), "{}", said.errors);
    assert_eq!(said.errors.lines().count(), 1, "{}", said.errors);
    assert!(!said.out.contains("no store"), "{}", said.out);
}

#[test]
fn named_memory_prints_nothing() {
    let url = Some("memory://".as_ref());
    let Some(said) = said("global::named_memory_prints_nothing", url) else {
        locker::Locker::builder().build_blocking().unwrap();
        let _ = locker::global();
        return;
    };
    assert_eq!(said.errors, "");
}

#[test]
fn builder_url_prints_nothing() {
    let Some(said) = said("global::builder_url_prints_nothing", None) else {
        let locker = locker::Locker::builder().url("memory://").build_blocking().unwrap();
        locker::set_global(locker).unwrap();
        let _ = locker::global();
        return;
    };
    assert_eq!(said.errors, "");
}

/// What a subscriber drops is dropped by choice.
#[cfg(feature = "tracing")]
#[test]
fn filtered_warning_is_not_printed() {
    let Some(said) = said("global::filtered_warning_is_not_printed", None) else {
        let filtered = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR).finish();
        tracing::subscriber::with_default(filtered, || locker::Locker::builder().build_blocking().unwrap());
        return;
    };
    assert!(!said.out.contains("this process only") && said.errors.is_empty(), "{}{}", said.out, said.errors);
}

/// The subscriber of another thread does not hear this one.
#[cfg(feature = "tracing")]
#[test]
fn subscriber_elsewhere_does_not_count() {
    let Some(said) = said("global::subscriber_elsewhere_does_not_count", None) else {
        let _scope = tracing::subscriber::set_default(tracing_subscriber::fmt().finish());
        let build = || locker::Locker::builder().build_blocking().map(|_| ());
        std::thread::spawn(build).join().unwrap().unwrap();
        return;
    };
    assert!(said.errors.contains("this process only"), "{}", said.errors);
}

#[cfg(feature = "redis")]
#[test]
fn set_global_opens_no_other_connection() {
    use std::net::TcpListener;

    let listen = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        (listener, url)
    };
    let (named, url) = listen();
    if am_i("global::set_global_opens_no_other_connection", Some(url.as_ref())) {
        locker::set_global(locker::Locker::memory()).unwrap();
        locker::global().lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
        // Connections arrive in order: one that was begun before this one would have arrived.
        let (later, url) = listen();
        std::thread::spawn(move || locker::Locker::connect_blocking(&url));
        later.accept().unwrap();
        return;
    }
    named.set_nonblocking(true).unwrap();
    let none = named.accept().map(|_| ()).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
}
