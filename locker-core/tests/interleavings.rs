//! The interleavings of the embedded store as a test (`scripts/interleavings.sh`).
#![cfg(shuttle)]

use locker_core::store::memory::interleavings::ALL;
use std::thread;

/// A thread that panics has the name of its test.
#[test]
fn all_interleavings_are_right() {
    thread::scope(|scope| {
        for (name, test) in ALL {
            thread::Builder::new().name(name.into()).spawn_scoped(scope, test).unwrap();
        }
    });
}
