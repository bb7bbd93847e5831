//! Ids are unique, also in forked processes.

use fork::{Fork, fork, waitpid};
use locker_core::id::Id;
use std::{collections::HashSet, fs, path::Path};

/// Returns the id that a forked child draws.
fn drawn_by_a_child(file: &Path) -> String {
    match fork().unwrap() {
        Fork::Child => {
            let written = fs::write(file, Id::random().to_string());
            std::process::exit(i32::from(written.is_err()));
        }
        Fork::Parent(child) => {
            assert_eq!(waitpid(child).unwrap(), 0);
            fs::read_to_string(file).unwrap()
        }
    }
}

#[test]
fn forked_processes_draw_different_ids() {
    let folder = tempfile::tempdir().unwrap();
    let mut ids = HashSet::from([Id::random().to_string()]);
    for child in ["first", "second"] {
        assert!(ids.insert(drawn_by_a_child(&folder.path().join(child))));
    }
    assert!(ids.insert(Id::random().to_string()));
}
