//! The log of a worker.

use super::Orders;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

/// One step of the work under the lock.
const STEP: Duration = Duration::from_millis(10);

/// How often a worker that does nothing under the lock takes it at most.
const ENTRIES: u32 = 50_000;

/// Returns the nanoseconds of `CLOCK_BOOTTIME`, which all processes of a host share.
pub(crate) fn now() -> u128 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u128::try_from(value).expect("a time after the start");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// A file with a line for each event: nanoseconds of `CLOCK_BOOTTIME`, the event, a text.
pub(crate) struct Log {
    lines: BufWriter<File>,
    /// While this file exists the work under the lock goes on.
    stay: PathBuf,
    steps: u32,
    entries: u32,
}

impl Log {
    pub(crate) fn create(orders: &Orders, number: u32) -> Self {
        let path = |extension| PathBuf::from(format!("{}/{number}.{extension}", orders.folder));
        let lines = BufWriter::new(File::create(path("log")).expect("a log"));
        Self { lines, stay: path("stay"), steps: orders.steps, entries: 0 }
    }

    /// Without work under the lock the lines stay in memory: the time to write them would be measured, too.
    fn is_hot(&self) -> bool {
        self.steps == 0
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.is_hot() || self.entries < ENTRIES
    }

    pub(crate) fn write(&mut self, event: &str, text: &str) {
        let text = text.replace('\n', " ");
        writeln!(self.lines, "{} {event} {text}", now()).expect("a line");
        if !self.is_hot() {
            self.lines.flush().expect("a line");
        }
    }

    /// Does the work under the lock, as long as `is_held` says so before each step.
    pub(crate) async fn section(&mut self, fence: Option<i128>, is_held: impl Fn() -> bool) {
        self.entries += 1;
        self.write("in", &fence.map(|fence| fence.to_string()).unwrap_or_default());
        let mut done = 0;
        while done < self.steps || (!self.is_hot() && self.stay.exists()) {
            tokio::time::sleep(STEP).await;
            if !is_held() {
                return self.write("lost", "");
            }
            self.write("work", "");
            done += 1;
        }
        self.write("out", "");
    }
}
