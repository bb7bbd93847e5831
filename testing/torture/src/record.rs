//! What a worker records: times of a clock that all processes share, and lines on its output.

use std::io::Write;

/// Returns the nanoseconds of a clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Prints a line of the record. Returns `None` if the output is closed.
pub(crate) fn say(line: &str) -> Option<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).ok()
}
