//! Tests of the backend, in directories of their own.

mod directories;
mod disks;
mod points;
mod processes;
mod sizes;

use super::{Files, folder::Host};
use locker_cas::{
    Backend, Message, Outcome, Received, Version,
    contract::{self, Party, write},
};
use locker_core::{blocking::block_on, error::Result, key::Key, sync::lock};
use locker_harness::eventually;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

type Act = Arc<dyn Fn(&'static str) + Send + Sync>;

/// The pauses of directories that are opened later.
static REGISTERED: Mutex<BTreeMap<PathBuf, Arc<Pauses>>> = Mutex::new(BTreeMap::new());

/// What a test does at points of the work of a process, how far its clock was put ahead, and what it has seen.
#[derive(Default)]
pub(super) struct Pauses {
    act: Mutex<Option<Act>>,
    pub(super) ahead: AtomicU64,
    /// The bytes of the largest buffer that a log was read into.
    pub(super) largest: AtomicUsize,
    /// The points that were reached, with the name of the thread.
    seen: Mutex<BTreeSet<(&'static str, String)>>,
}

impl Pauses {
    pub(super) fn of(path: &Path) -> Arc<Self> {
        lock(&REGISTERED).get(path).cloned().unwrap_or_default()
    }

    pub(super) fn at(&self, point: &'static str) {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        lock(&self.seen).insert((point, thread));
        let act = lock(&self.act).clone();
        if let Some(act) = act {
            act(point);
        }
    }

    /// Acts the next time that a process comes to `point`.
    fn once(&self, point: &'static str, act: impl Fn() + Send + Sync + 'static) -> Arc<AtomicUsize> {
        let times = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&times);
        let act = move |reached| {
            if reached == point && counted.fetch_add(1, Ordering::Relaxed) == 0 {
                act();
            }
        };
        *lock(&self.act) = Some(Arc::new(act));
        times
    }
}

impl fmt::Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pauses")
    }
}

/// A directory of a test, removed with all that it contains.
struct Dir(PathBuf);

impl Dir {
    /// Names a directory whose path is longer than the address of a socket may be.
    fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(base: &Path) -> Self {
        let random = super::folder::random();
        Self(base.join(format!("locker-files-{random:016x}-{}", "long".repeat(40))))
    }

    /// Returns the pauses of all that open the directory from now on.
    fn pauses(&self) -> Arc<Pauses> {
        Arc::clone(lock(&REGISTERED).entry(self.0.clone()).or_default())
    }

    fn open(&self) -> Files {
        self.open_as(&Host::this().unwrap()).unwrap()
    }

    fn open_as(&self, host: &Host) -> Result<Files> {
        let host = host.clone();
        block_on(Files::open_at(self.0.clone(), move || Ok(host)))
    }

    fn sweep_lock(&self) -> PathBuf {
        self.0.join(Host::this().unwrap().boot).join("sweep.lock")
    }

    /// Sets the time of the last sweep.
    fn swept_before(&self, time: Duration) {
        let file = std::fs::File::options().write(true).open(self.sweep_lock()).unwrap();
        file.set_modified(SystemTime::now() - time).unwrap();
    }

    /// Returns a path of a socket without a process, which a sweep removes.
    fn socket_of_the_dead(&self) -> PathBuf {
        let inbox = format!("{:08x}", super::folder::random() >> 32);
        self.0.join(Host::this().unwrap().boot).join("inbox").join(inbox)
    }

    /// Returns the names of logs, each twice if it has two.
    fn logs(&self) -> Vec<String> {
        let boot = Host::this().unwrap().boot;
        let names = std::fs::read_dir(self.0.join(boot).join("logs")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.contains("lock")).collect()
    }

    /// Returns the number of logs that are not named as their shard alone: those that a compaction makes.
    fn copies(&self) -> usize {
        self.logs().iter().filter(|name| name.len() > 2).count()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Sweeps once.
fn sweep(files: &Files) -> Result<()> {
    let (io, keeper) = (files.io.downgrade(), files.keeper.downgrade());
    block_on(super::sweep::sweep(&io, &keeper, Duration::ZERO))
        .expect("the threads live as long as the store")
}

/// Waits until the keeper has done what it was asked for.
fn settle(files: &Files) {
    block_on(files.keeper.run(|_| ())).unwrap();
}

fn exchange(files: &Files, key: &Key, expected: Version, value: &[u8]) -> Outcome {
    block_on(files.exchange(write(key, expected, value))).unwrap()
}

/// Returns the present version and value.
fn read(files: &Files, key: &Key) -> (Version, Option<Vec<u8>>) {
    match block_on(files.exchange(contract::comparison(key, -1))).unwrap() {
        Outcome::Differs { version, value } => (version, value),
        other => panic!("{other:?}"),
    }
}

/// Returns the number that a value begins with.
fn number(value: Option<&[u8]>) -> usize {
    let text = value.map_or("0", |value| str::from_utf8(value).unwrap());
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Adds 1 to the number at a key, in a value of at least `len` bytes. Returns the new number.
fn add(files: &Files, key: &Key, len: usize) -> usize {
    let (mut version, mut value) = read(files, key);
    loop {
        let next = number(value.as_deref()) + 1;
        match exchange(files, key, version, format!("{next} {}", "x".repeat(len)).as_bytes()) {
            Outcome::Matched { .. } => return next,
            Outcome::Differs { version: present, value: found } => (version, value) = (present, found),
            ticked @ Outcome::Ticked(_) => panic!("{ticked:?}"),
        }
    }
}

#[tokio::test]
async fn the_contract_is_kept() {
    let dir = Dir::new();
    let (one, other) = (Party::new(dir.open()), Party::new(dir.open()));
    contract::all(&one, &other).await;
    contract::gone_inboxes_are_reported(&one, other).await;
}

#[test]
fn values_of_the_maximum_are_kept_and_larger_ones_refused() {
    let (dir, key) = (Dir::new(), Key::new("large"));
    let (one, other) = (dir.open(), dir.open());
    let mut version = 0;
    for round in 0..3 {
        let value = vec![round; one.max_value_len()];
        assert!(matches!(exchange(&one, &key, version, &value), Outcome::Matched { .. }));
        let (present, found) = read(&other, &key);
        assert!(found.unwrap() == value, "round {round}");
        version = present;
    }
    let larger = vec![0; one.max_value_len() + 1];
    let error = block_on(one.exchange(write(&key, version, &larger))).unwrap_err();
    assert!(error.is_certain() && error.message().contains("4 MiB"), "{error}");
    assert_eq!(read(&other, &key).0, version);
}

/// Replaced values of 2 MB are no reason to keep more than a log that is about to be copied.
#[test]
fn replaced_values_are_removed() {
    let (dir, key) = (Dir::new(), Key::new("busy"));
    let (one, idle) = (dir.open(), dir.open());
    for _ in 0..2_000 {
        add(&one, &key, 1_000);
    }
    settle(&one);
    let logs = dir.logs();
    let folder = dir.0.join(Host::this().unwrap().boot).join("logs");
    let bytes: u64 = logs.iter().map(|name| folder.join(name).metadata().unwrap().len()).sum();
    assert!(logs.len() == 1 && bytes < 400_000, "{logs:?} {bytes}");
    assert_eq!(number(read(&idle, &key).1.as_deref()), 2_000);
}

/// A receiver that does not empty its queue delays nobody, and learns that it missed messages.
#[test]
fn a_full_queue_is_a_gap() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    let message = |text: &str| vec![Message { to: other.inbox(), text: text.to_owned() }];
    for number in 0..2_000 {
        assert_eq!(block_on(one.send(message(&number.to_string()))).unwrap(), [0_u32; 0]);
    }
    let heard = Arc::<Mutex<Vec<Option<String>>>>::default();
    let record = Arc::clone(&heard);
    other.listen(Box::new(move |received| {
        lock(&record).push(match received {
            Received::Text(text) => Some(text.to_owned()),
            Received::Gap => None,
        });
    }));
    eventually("the gap", || lock(&heard).contains(&None).then_some(()));
    assert_eq!(lock(&heard)[0].as_deref(), Some("0"));
    lock(&heard).clear();
    block_on(one.send(message(&"x".repeat(100_000)))).unwrap();
    eventually("the gap instead of a message too long", || lock(&heard).contains(&None).then_some(()));
    block_on(one.send(message("after"))).unwrap();
    eventually("a message after the gap", || lock(&heard).contains(&Some("after".into())).then_some(()));
}

/// Processes that live for less than a minute also sweep, if nobody else has done so for long.
#[test]
fn the_first_after_a_pause_sweeps() {
    let (dir, key) = (Dir::new(), Key::new("key"));
    let files = dir.open();
    exchange(&files, &key, 0, b"x");
    let (socket, lock) = (dir.socket_of_the_dead(), dir.sweep_lock());
    drop(dir.open());
    std::fs::write(&socket, "").unwrap();
    drop(dir.open());
    assert!(socket.exists(), "swept although another process had opened the directory just now");
    dir.swept_before(Duration::from_secs(3_600));
    let opened = dir.open();
    eventually("the sweep", || (!socket.exists()).then_some(()));
    eventually("its time", || {
        (lock.metadata().unwrap().modified().unwrap().elapsed().unwrap().as_secs() < 60).then_some(())
    });
    assert_eq!(dir.logs().len(), 1, "logs were created for the sweep");
    drop(opened);
}

/// Each process swept every minute.
#[test]
fn one_process_of_all_sweeps_in_a_minute() {
    let dir = Dir::new();
    let (one, other) = (dir.open(), dir.open());
    let socket = dir.socket_of_the_dead();
    let is_swept_by = |files: &Files| {
        std::fs::write(&socket, "").unwrap();
        block_on(files.keeper.run(|keeper| keeper.sweep(super::sweep::INTERVAL))).flatten().unwrap();
        !socket.exists()
    };
    dir.swept_before(Duration::from_secs(61));
    assert!(is_swept_by(&one));
    assert!(!is_swept_by(&other) && !is_swept_by(&one));
    dir.swept_before(Duration::from_secs(61));
    assert!(is_swept_by(&other));
    assert!(!is_swept_by(&one));
}

/// Puts a file in the place of the socket, which no more than a socket beyond the limit of watches can be watched.
fn listen_in_vain(files: &Files) {
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let socket = std::os::unix::net::UnixDatagram::from(std::os::fd::OwnedFd::from(file));
    socket.set_nonblocking(true).unwrap();
    let bound = lock(&files.bound).replace(socket);
    let heard = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&heard);
    files.listen(Box::new(move |received| {
        counted.fetch_add(usize::from(received == Received::Gap), Ordering::Relaxed);
    }));
    eventually("a gap", || (heard.load(Ordering::Relaxed) == 1).then_some(()));
    drop(bound);
}

/// A process that could not watch its socket was deaf, and nobody learned why.
#[test]
fn socket_that_cannot_be_watched_is_reported() {
    let dir = Dir::new();
    let mut started = processes::command("listen in vain", &dir.0);
    let output = started.stderr(std::process::Stdio::piped()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("max_user_watches").count(), 1, "{told}");
}
