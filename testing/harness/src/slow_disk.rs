//! A disk that takes its time.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// While this value lives, some processes wait for their disk whenever they ask that their writes are on it.
#[derive(Debug)]
pub struct SlowDisk(Child);

impl SlowDisk {
    /// Makes each `fsync` of these processes take longer by `delay`. Returns `None`, and says why on the standard
    /// error, if there is no `strace` or the system does not let it work.
    #[must_use]
    pub fn of(processes: &[Pid], delay: Duration) -> Option<Self> {
        let tracer = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync,sync_file_range"])
            .args(["-e", &format!("inject=fsync,fdatasync:delay_enter={}", delay.as_micros())])
            .args(processes.iter().flat_map(|pid| ["-p".into(), pid.as_raw_pid().to_string()]))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut tracer) = tracer else {
            eprintln!("skipped: a slow disk: there is no strace, run scripts/setup-server-tests.sh");
            return None;
        };
        let mut said = BufReader::new(tracer.stderr.take()?).lines().map_while(Result::ok);
        let mut attached = processes.len();
        while attached > 0 {
            let Some(line) = said.next() else {
                eprintln!("skipped: a slow disk: strace may not attach to processes here");
                drop(tracer.wait());
                return None;
            };
            // A process that has ended meanwhile writes nothing.
            attached -= usize::from(line.contains(" attached") || line.contains("No such process"));
        }
        thread::spawn(move || said.for_each(drop));
        Some(Self(tracer))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A tracer that is killed would leave its processes stopped.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        drop(self.0.wait());
    }
}
