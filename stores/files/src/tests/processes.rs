//! Several processes: this program, started again.

use super::{Dir, add, number, read};
use crate::Files;
use locker_core::{blocking::block_on, key::Key, store::opening::Opening};
use locker_harness::eventually;
use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write, stdout},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What a started process does: a word and its arguments.
const TASK: &str = "LOCKER_FILES_TEST_TASK";
const DIR: &str = "LOCKER_FILES_TEST_DIR";

/// Returns the command that starts this program again for a task.
pub(super) fn command(task: &str, dir: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "tests::processes::task", "--nocapture", "--test-threads=1"]);
    command.env(TASK, task).env(DIR, dir).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Does the task that this program was started for, if there is one.
#[test]
fn task() {
    let (Ok(task), Ok(dir)) = (env::var(TASK), env::var(DIR)) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    let open = || block_on(Files::open(&format!("file://{dir}"), &Opening::default()));
    match *words {
        ["count", name, times] => {
            let files = open().unwrap();
            for _ in 0..times.parse::<usize>().unwrap() {
                add(&files, &Key::new("counter"), 0);
                add(&files, &Key::new(name), 2_000);
                writeln!(stdout(), "added").unwrap();
            }
        }
        ["open"] => match open() {
            Ok(_) => println!("opened"),
            Err(error) => println!("refused {error}"),
        },
        ["grow", key, mebibytes] => super::sizes::grow(&open().unwrap(), key, mebibytes.parse().unwrap()),
        ["listen", "in", "vain"] => super::listen_in_vain(&open().unwrap()),
        ["fill"] => super::directories::fill(&open().unwrap()),
        ["use", "files"] => super::directories::use_up_files(&open().unwrap()),
        _ => panic!("unknown task {task}"),
    }
}

/// A process that adds to counters.
struct Counting {
    child: Child,
    name: String,
    added: Arc<AtomicUsize>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Counting {
    fn start(dir: &Dir, name: &str, times: usize) -> Self {
        let mut child = command(&format!("count {name} {times}"), &dir.0).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let added = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&added);
        let reader = thread::spawn(move || {
            let lines = lines.map_while(Result::ok);
            // Other output may stand before the first one.
            let added = lines.filter(|line| line.ends_with("added"));
            added.for_each(|_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
        });
        Self { child, name: name.to_owned(), added, reader: Some(reader) }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Returns how often the process says that it has added, after its end.
    fn ended(mut self) -> (String, usize) {
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (self.name.clone(), self.added.load(Ordering::Relaxed))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn counted(files: &Files, name: &str) -> usize {
    number(read(files, &Key::new(name)).1.as_deref())
}

#[test]
fn processes_count_together() {
    let dir = Dir::new();
    let started: Vec<_> = (0..4).map(|number| Counting::start(&dir, &format!("p{number}"), 1_000)).collect();
    for (name, added) in started.into_iter().map(Counting::ended) {
        assert_eq!((added, counted(&dir.open(), &name)), (1_000, 1_000), "{name}");
    }
    assert_eq!(counted(&dir.open(), "counter"), 4_000);
}

/// Kills thirty processes: what each has said that it added was added, and at most one addition more to each
/// of its two counters.
#[test]
fn killed_processes_lose_nothing() {
    let dir = Dir::new();
    let (mut killed, mut next) = (BTreeMap::new(), 0);
    let mut start = || {
        next += 1;
        Counting::start(&dir, &format!("p{next}"), usize::MAX)
    };
    let mut running: Vec<_> = (0..3).map(|_| start()).collect();
    while killed.len() < 30 {
        let victim = running.remove(0);
        eventually("an addition", || (victim.added.load(Ordering::Relaxed) > 0).then_some(()));
        thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        victim.signal("-KILL");
        killed.extend([victim.ended()]);
        running.push(start());
    }
    for last in running {
        last.signal("-KILL");
        killed.extend([last.ended()]);
    }
    let (files, mut sum) = (dir.open(), 0);
    for (name, added) in &killed {
        let counted = counted(&files, name);
        assert!((*added..=*added + 1).contains(&counted), "{name}: {counted} of {added}");
        sum += added;
    }
    let total = counted(&files, "counter");
    assert!((sum..=sum + killed.len()).contains(&total), "{total} of {sum}");
    for _ in 0..300 {
        add(&files, &Key::new("counter"), 1_000);
    }
    assert_eq!(counted(&files, "counter"), total + 300);
}

/// Stops processes at random points: others go on at once, and nothing is lost or done twice when they go on.
#[test]
fn stopped_processes_delay_nobody() {
    let dir = Dir::new();
    let running: Vec<_> =
        (0..2).map(|number| Counting::start(&dir, &format!("p{number}"), usize::MAX)).collect();
    let files = dir.open();
    let mut mine = 0;
    for round in 0..40 {
        let victim = &running[round % 2];
        let before = victim.added.load(Ordering::Relaxed);
        eventually("an addition", || (victim.added.load(Ordering::Relaxed) > before).then_some(()));
        thread::sleep(Duration::from_micros(fastrand::u64(0..3_000)));
        victim.signal("-STOP");
        for _ in 0..100 {
            let started = Instant::now();
            add(&files, &Key::new("counter"), 1_000);
            mine += 1;
            assert!(started.elapsed() < Duration::from_secs(5), "delayed by a stopped process");
        }
        victim.signal("-CONT");
    }
    let mut sum = mine;
    for process in running {
        process.signal("-KILL");
        let (name, added) = process.ended();
        let counted = counted(&files, &name);
        assert!((added..=added + 1).contains(&counted), "{name}: {counted} of {added}");
        sum += added;
    }
    let total = counted(&files, "counter");
    assert!((sum..=sum + 2).contains(&total), "{total} of {sum}");
}
