//! A process that has reached its limits. The limits are those of the whole process, so it is one of its own.

use locker::{ErrorKind, Locker, lock_on_argument};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[lock_on_argument(args(id))]
fn pay(id: u64) -> locker::Result<u64> {
    Ok(id)
}

/// Calls fail while no file can be opened, and later ones work.
#[test]
fn calls_recover_from_a_lack_of_descriptors() {
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..usual }).unwrap();
    let locker = Locker::memory();
    for _ in 0..2 {
        let refused = [
            pay(1).map(drop),
            locker.lock("a").acquire_blocking().map(drop),
            locker.counter("a").add_blocking(1).map(drop),
            Locker::connect_blocking("redis://127.0.0.1:1").map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.message().contains("background thread"), "{error}");
        }
    }
    setrlimit(Resource::Nofile, usual).unwrap();
    assert_eq!(pay(1).unwrap(), 1);
    locker.lock("a").acquire_blocking().unwrap().release_blocking().unwrap();
    assert_eq!(locker.counter("a").add_blocking(1).unwrap(), 1);
}
