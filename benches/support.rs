//! Side-by-side timing. The subjects alternate round after round, so that a drift of the machine's speed affects all of
//! them alike. Ratios are medians over the rounds.

use std::{
    process::Command,
    sync::LazyLock,
    time::{Duration, Instant},
};

pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    /// Does the work this many times and returns how long that took.
    pub(crate) run: Box<dyn FnMut(u32) -> Duration + 'a>,
}

pub(crate) fn subject<'a>(name: &'a str, run: impl FnMut(u32) -> Duration + 'a) -> Subject<'a> {
    Subject { name, run: Box::new(run) }
}

/// Times a loop around `work`.
#[allow(dead_code, reason = "not in every benchmark")]
pub(crate) fn timed(mut work: impl FnMut()) -> impl FnMut(u32) -> Duration {
    move |times| {
        let started = Instant::now();
        (0..times).for_each(|_| work());
        started.elapsed()
    }
}

/// Returns the resident memory in bytes.
#[allow(dead_code, reason = "not in every benchmark")]
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

/// Prints the title of a table, with the commit and the day, which figures in the docs name.
pub(crate) fn title(text: &str) {
    static ORIGIN: LazyLock<String> = LazyLock::new(|| {
        let first_line = |program: &str, arguments: &[&str]| {
            let output =
                Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
            let text = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
            text.and_then(|text| text.lines().next().map(str::to_owned))
                .unwrap_or_else(|| "unknown".to_owned())
        };
        let commit = first_line("git", &["describe", "--always", "--dirty", "--exclude=*"]);
        format!("{commit}, {}", first_line("date", &["-u", "+%F"]))
    });
    println!("\n{text}   ({})", *ORIGIN);
}

/// Prints the time of each subject for one piece of work, and its ratio to each subject before it.
pub(crate) fn compare(name: &str, times: u32, rounds: usize, mut subjects: Vec<Subject<'_>>) {
    title(name);
    for subject in &mut subjects {
        (subject.run)(times / 4 + 1);
    }
    let mut nanos = vec![Vec::with_capacity(rounds); subjects.len()];
    for _ in 0..rounds {
        for (subject, nanos) in subjects.iter_mut().zip(&mut nanos) {
            nanos.push((subject.run)(times).as_secs_f64() * 1e9 / f64::from(times));
        }
    }
    for (at, subject) in subjects.iter().enumerate() {
        print!("  {:<44} {:>10.0} ns", subject.name, median(nanos[at].clone()));
        for (other, reference) in subjects.iter().enumerate().take(at) {
            let ratios = nanos[at].iter().zip(&nanos[other]).map(|(one, other)| one / other).collect();
            print!("   {:.2} x {}", median(ratios), reference.name);
        }
        println!();
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
