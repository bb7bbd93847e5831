//! Wrong settings and URLs: the errors name them.

use locker::{ErrorKind, Locker};
use std::time::Duration;

fn refused(result: Result<locker::Guard, locker::Error>, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(!error.is_temporary());
    for word in words {
        assert!(error.to_string().contains(word), "{error} should mention {word}");
    }
}

#[test]
fn impossible_settings_are_refused_by_name() {
    let locker = Locker::memory();
    let lock = || locker.lock("a");
    let century = Duration::from_secs(100 * 366 * 24 * 3600);
    refused(lock().lease(Duration::ZERO).acquire_blocking(), &["lease", "too short", "1ms"]);
    refused(lock().lease(Duration::from_micros(1)).acquire_blocking(), &["lease", "too short"]);
    refused(lock().lease(century).acquire_blocking(), &["lease", "too long", "10 years"]);
    refused(lock().lease(Duration::MAX).acquire_blocking(), &["lease", "too long"]);
    refused(lock().timeout(century).acquire_blocking(), &["timeout", "too long"]);
    refused(lock().retry_delay(Duration::ZERO).acquire_blocking(), &["retry_delay", "too short"]);
    refused(lock().max_retry(0).acquire_blocking(), &["max_retry", "attempts"]);
    refused(lock().max_hold(Duration::from_secs(1)).acquire_blocking(), &["max_hold", "shorter", "lease"]);
    refused(lock().renew(false).max_hold(Duration::from_secs(60)).acquire_blocking(), &["max_hold", "renew"]);
}

/// The locker's default and the setting of one call do not contradict each other.
#[test]
fn zero_timeout_overrides_max_retry() {
    let locker = Locker::builder().url("memory://").max_retry(3).build_blocking().unwrap();
    let _held = locker.lock("zero timeout").acquire_blocking().unwrap();
    let once = locker.lock("zero timeout").timeout(Duration::ZERO);
    for once in [once.clone(), once.max_retry(5)] {
        assert_eq!(once.acquire_blocking().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

#[test]
fn defaults_are_checked_when_the_locker_is_built() {
    let error = Locker::builder().lease(Duration::ZERO).build_blocking().unwrap_err();
    assert!(error.kind() == ErrorKind::Misused && error.to_string().contains("lease"), "{error}");
}

#[test]
fn lockers_and_requests_are_shown_in_a_line() {
    let locker = Locker::builder().url("memory://").prefix("shop:").build_blocking().unwrap();
    let (shown, request) = (format!("{locker:?}"), format!("{:?}", locker.lock("a")));
    assert!(shown.contains("Memory") && shown.contains("shop:") && shown.contains("lease: 10s"), "{shown}");
    assert!(request.contains("shop:lock:a") && request.contains("lease: 10s"), "{request}");
    for shown in [shown, request] {
        assert!(shown.len() < 300 && !shown.contains("0x"), "{shown}");
    }
}

#[test]
fn unknown_urls_list_the_accepted_ones() {
    for url in
        ["", "memory", "memory:", "nonsense://", "http://127.0.0.1", "redis:/127.0.0.1", "://", " memory://"]
    {
        let error = Locker::connect_blocking(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{url}: {error}");
        assert!(
            error.to_string().contains("memory://") && error.to_string().contains("redis://"),
            "{url}: {error}"
        );
    }
    let error = Locker::connect_blocking("memory://somewhere").unwrap_err();
    assert!(error.to_string().contains("takes no host and no path"), "{error}");
}
