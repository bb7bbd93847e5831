//! Processes on one etcd whose wall clocks are minutes apart.

use crate::{
    run_shared::{Killed, output, saying},
    support::{binary, ended},
};
use locker_harness::{EtcdServer, eventually, wall_clock};
use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime},
};

const MINUTES: [i64; 3] = [5, 0, -5];

struct Clocks(EtcdServer);

impl Clocks {
    /// Returns `None` if the test is skipped.
    fn new() -> Option<Self> {
        wall_clock(0)?;
        Some(Self(EtcdServer::start()?))
    }

    /// Returns a command of `locker` with a wall clock that is so many minutes ahead of the system's.
    fn program(&self, minutes: i64, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.args(arguments).env("LOCKER_URL", self.0.url()).envs(wall_clock(60 * minutes).unwrap());
        command
    }

    /// Waits until a process waits for the lock.
    fn until_waiting(&self, name: &str) {
        eventually("a waiter", || {
            let lines = String::from_utf8(output(self.program(0, &["ls"])).stdout).unwrap();
            lines.lines().any(|line| line.split_whitespace().rev().take(2).eq([name, "1"])).then_some(())
        });
    }
}

fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed()
}

#[test]
fn processes_exclude_each_other_whatever_their_wall_clocks() {
    const EACH: usize = 8;
    let Some(clocks) = Clocks::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let run = |minutes: i64| {
        let script = "mkdir inside && echo \"$LOCKER_FENCE\" $(date +%s) >>log && rmdir inside";
        let line = ["run", "a", "--timeout", "60s", "--", "sh", "-c", script];
        let before = now();
        let status = clocks.program(minutes, &line).current_dir(directory.path()).status().unwrap();
        assert!(status.success(), "{minutes} minutes ahead: {status}");
        before
    };
    let log = || {
        let text = fs::read_to_string(directory.path().join("log")).unwrap();
        let lines = text.lines().map(|line| line.split_once(' ').unwrap());
        lines
            .map(|(fence, time)| (fence.parse().unwrap(), time.parse().unwrap()))
            .collect::<Vec<(i64, i64)>>()
    };
    // Fences count from the first process's clock, which shows that its clock is another one.
    let before = run(5);
    let ahead = log()[0].0 / 1_000_000 - before;
    assert!((299..330).contains(&ahead), "{ahead} s");
    thread::scope(|scope| {
        for minutes in MINUTES {
            let run = &run;
            scope.spawn(move || {
                for _ in 0..EACH {
                    run(minutes);
                }
            });
        }
    });
    let log = log();
    assert_eq!(log.len(), 1 + MINUTES.len() * EACH);
    assert!(log.is_sorted_by(|(one, _), (next, _)| one < next), "{log:?}");
    // The three took turns, and their commands saw their clocks.
    let times = log.iter().map(|(_, time)| time - before);
    let changes = times.collect::<Vec<_>>().windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > 200).count();
    assert!(changes > 2, "{log:?}");
}

/// Neither five minutes earlier nor later, also if the next process sees the lock for the first time.
#[test]
fn lease_of_a_killed_process_has_its_length_whatever_the_wall_clocks() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(clocks) = Clocks::new() else { return };
    let measure = |holder: i64, next: i64, waits_before: bool| {
        let name = &format!("from_{holder}_to_{next}_{waits_before}");
        let script = "echo held; exec cat >/dev/null";
        let line = ["run", name, "--lease", "4s", "--", "sh", "-c", script];
        let mut holder = Killed(saying(clocks.program(holder, &line), "held").0);
        let start = || {
            clocks
                .program(next, &["run", name, "--timeout", "60s", "--", "true"])
                .spawn()
                .map(Killed)
                .unwrap()
        };
        let waiter = waits_before.then(start);
        if waits_before {
            clocks.until_waiting(name);
        }
        holder.0.kill().unwrap();
        let killed = Instant::now();
        let mut next = waiter.unwrap_or_else(start);
        assert!(ended(&mut next.0).success(), "{name}");
        // The hold was renewed after a third of its lease, or will never be.
        let took = killed.elapsed();
        assert!(took > LEASE / 2 && took < LEASE + Duration::from_secs(16), "{name}: {took:?}");
    };
    thread::scope(|scope| {
        for (holder, next) in [(5, -5), (-5, 5), (0, 5), (-5, 0)] {
            for waits_before in [true, false] {
                let measure = &measure;
                scope.spawn(move || measure(holder, next, waits_before));
            }
        }
    });
}
