//! Ids tell everybody apart: processes that were forked from one, and threads to their very end.

use fork::{Fork, fork, waitpid};
use locker::{Id, Locker};
use std::{collections::HashSet, fs, path::Path, sync::mpsc, thread};

/// What a child draws after this process has drawn, and while it goes on drawing.
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

/// Takes a lock when its thread ends, after everything the thread used later is gone.
struct AtTheEnd(Locker, mpsc::Sender<bool>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let held = self.0.lock("at the end").acquire_blocking().is_ok_and(|guard| guard.is_held());
        self.1.send(held).unwrap();
    }
}

thread_local! {
    static LAST: std::cell::OnceCell<AtTheEnd> = const { std::cell::OnceCell::new() };
}

#[test]
fn a_lock_can_be_taken_while_a_thread_ends() {
    let (sender, held) = mpsc::channel();
    let locker = Locker::memory();
    let ending = thread::spawn(move || {
        assert!(LAST.with(|last| last.set(AtTheEnd(locker.clone(), sender))).is_ok());
        drop(locker.lock("before").acquire_blocking().unwrap());
    });
    ending.join().unwrap();
    assert_eq!(held.recv(), Ok(true));
}
