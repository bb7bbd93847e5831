//! What a worker records: times of a clock that all processes share, and lines on its output.

use std::{
    cell::RefCell,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Where the lines of workers go that are threads of this process, with the number of the worker.
pub(crate) type Reader = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// Whether workers that are threads of this process are to end.
static ENDED: AtomicBool = AtomicBool::new(false);

static WORKERS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The reader of this thread's lines, and the number of its worker. `None` in a process of a worker's own.
    static READER: RefCell<Option<(Reader, u32)>> = const { RefCell::new(None) };
}

/// Returns the nanoseconds of a clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Prints a line of the record. Returns `None` if the output is closed.
pub(crate) fn say(line: &str) -> Option<()> {
    if let Some((read, worker)) = READER.with_borrow(Clone::clone) {
        return (!ENDED.load(Ordering::Relaxed)).then(|| read(worker, line));
    }
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).ok()
}

/// Runs a worker on this thread, whose lines go to `reader`.
pub(crate) fn into(reader: Reader, work: impl FnOnce()) {
    let worker = WORKERS.fetch_add(1, Ordering::Relaxed);
    READER.set(Some((reader, worker)));
    work();
}

/// Returns the record of this thread, for a thread of the same worker.
pub(crate) fn shared() -> impl FnOnce() + Send {
    let reader = READER.with_borrow(Clone::clone);
    move || READER.set(reader)
}

/// Ends the workers that are threads of this process.
pub(crate) fn end() {
    ENDED.store(true, Ordering::Relaxed);
}
