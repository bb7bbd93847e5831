//! 16 tasks of one process want one name all the time.
//!
//! The rivals alternate, with windows of the same length, so that tasks with many grants do not end earlier.

use super::{
    percentile,
    rivals::Rival,
    support::{median, title},
    tasks::runtime,
};
use locker_harness::RedisServer;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinSet};

const TASKS: usize = 16;
const WINDOW: Duration = Duration::from_secs(5);
const ROUNDS: usize = 5;

/// The task that released the name last, and when its release began.
type LastRelease = Arc<Mutex<Option<(usize, Instant)>>>;

/// The measurements of one task, or of all together.
#[derive(Default)]
struct Seen {
    grants: Vec<usize>,
    /// Microseconds from the start of each release to the next entry.
    free: Vec<f64>,
    /// The same, if the next holder is another task.
    handed_off: Vec<f64>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.grants.extend(other.grants);
        self.free.extend(other.free);
        self.handed_off.extend(other.handed_off);
    }
}

/// Prints grants per second, the most and the least grants of a task in a window, and hand-off times.
pub(crate) fn hot(server: &RedisServer) {
    let runtime = runtime();
    let rivals = [
        ("rslock, default retry", Rival::rslock(server)),
        ("rslock, retry every 1 ms", Rival::rslock_every_ms(server)),
        ("locker", Rival::locker(&runtime, server)),
    ];
    for section in [Duration::ZERO, Duration::from_millis(2)] {
        match section.as_millis() {
            0 => title(&format!("{TASKS} tasks on one name, empty critical section")),
            ms => {
                title(&format!("{TASKS} tasks on one name, critical section: tokio::time::sleep of {ms} ms"));
            }
        }
        compare_windows(&rivals, |rival, length| window(&runtime, rival, section, length));
    }
}

fn compare_windows(rivals: &[(&str, Rival)], run: impl Fn(&Rival, Duration) -> Seen) {
    for (_, rival) in rivals {
        run(rival, WINDOW / 5);
    }
    let mut windows: Vec<Vec<Seen>> = rivals.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((_, rival), windows) in rivals.iter().zip(&mut windows) {
            windows.push(run(rival, WINDOW));
        }
    }
    let rates = |at: usize| -> Vec<f64> {
        let total = |window: &Seen| window.grants.iter().sum::<usize>() as f64;
        windows[at].iter().map(|window| total(window) / WINDOW.as_secs_f64()).collect()
    };
    for (at, (name, _)) in rivals.iter().enumerate() {
        let of_windows = |value: fn(&Seen) -> f64| median(windows[at].iter().map(value).collect());
        let most = of_windows(|window| window.grants.iter().copied().max().unwrap_or(0) as f64);
        let least = of_windows(|window| window.grants.iter().copied().min().unwrap_or(0) as f64);
        print!(
            "  {name:<26} {:>7.0} grants/s   per task: most {most:>6}, least {least:>6}",
            median(rates(at))
        );
        for (other, (reference, _)) in rivals.iter().enumerate().take(at) {
            let ratios = rates(at).iter().zip(rates(other)).map(|(one, other)| one / other).collect();
            print!("   {:.2} x {reference}", median(ratios));
        }
        println!();
    }
    println!("  from the start of a release to the next entry");
    for ((name, _), windows) in rivals.iter().zip(windows) {
        let mut all = Seen::default();
        for window in windows {
            all.add(window);
        }
        let count = all.handed_off.len();
        let share = count as f64 / all.free.len() as f64 * 100.0;
        print!("  {name:<26} all: {}   ", percentiles(all.free));
        println!("to another task: {}   ({share:.0} % of all)", percentiles(all.handed_off));
    }
}

fn percentiles(values: Vec<f64>) -> String {
    format!("p50 {:>7.0} us p99 {:>7.0} us", percentile(values.clone(), 50), percentile(values, 99))
}

fn window(runtime: &Runtime, rival: &Rival, section: Duration, length: Duration) -> Seen {
    let (last, until) = (LastRelease::default(), Instant::now() + length);
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(contend(rival.clone(), task, Arc::clone(&last), section, until));
        }
        let mut all = Seen::default();
        while let Some(seen) = tasks.join_next().await {
            all.add(seen.expect("a task"));
        }
        all
    })
}

async fn contend(rival: Rival, task: usize, last: LastRelease, section: Duration, until: Instant) -> Seen {
    let (mut seen, mut grants) = (Seen::default(), 0);
    while Instant::now() < until {
        let held = rival.acquire("hot").await;
        let entered = Instant::now();
        if let Some((former, released)) = last.lock().expect("no panic").take()
            && entered < until
        {
            let free = (entered - released).as_secs_f64() * 1e6;
            seen.free.push(free);
            if former != task {
                seen.handed_off.push(free);
            }
        }
        grants += usize::from(entered < until);
        if !section.is_zero() {
            tokio::time::sleep(section).await;
        }
        *last.lock().expect("no panic") = Some((task, Instant::now()));
        held.release().await;
    }
    seen.grants.push(grants);
    seen
}
