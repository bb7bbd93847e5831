//! The processors that a measurement runs on.

use crate::RedisServer;

/// Measures with the threads where the scheduler puts them, and on Linux again with a processor each for this process
/// and the server.
///
/// The argument of `measure` describes the placement. The placement changes the time of a round trip by a third, and it
/// differs from subject to subject.
pub fn in_both_places(server: &RedisServer, mut measure: impl FnMut(&str)) {
    measure("");
    #[cfg(target_os = "linux")]
    match linux::Pinned::new(server) {
        Ok(Some(_pinned)) => measure(", callers and server on a processor each"),
        Ok(None) => eprintln!("not measured with a processor each: there is only one"),
        Err(error) => eprintln!("not measured with callers and server on a processor each: {error}"),
    }
    #[cfg(not(target_os = "linux"))]
    let _ = server;
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::RedisServer;
    use rustix::{
        io,
        process::{Pid, getpid},
        thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    };

    /// This process on one processor and a server on another one, until it is dropped.
    pub(super) struct Pinned {
        server: Option<Pid>,
        before: CpuSet,
    }

    impl Pinned {
        /// Returns `None` if there is no second processor.
        pub(super) fn new(server: &RedisServer) -> io::Result<Option<Self>> {
            let before = sched_getaffinity(None)?;
            let mut free = (0..CpuSet::MAX_CPU).filter(|number| before.is_set(*number));
            let (Some(one), Some(other)) = (free.next(), free.next()) else { return Ok(None) };
            let pinned = Self { server: server.process(), before };
            keep(Some(getpid()), &only(one))?;
            keep(pinned.server, &only(other))?;
            Ok(Some(pinned))
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            for process in [Some(getpid()), self.server] {
                if let Err(error) = keep(process, &self.before) {
                    eprintln!("process still pinned to one processor: {error}");
                }
            }
        }
    }

    fn only(processor: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(processor);
        set
    }

    /// Pins all threads of the process. The threads that it starts later inherit the setting.
    fn keep(process: Option<Pid>, set: &CpuSet) -> io::Result<()> {
        let Some(process) = process else { return Ok(()) };
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
        for thread in threads.map_err(|_| io::Errno::SRCH)?.flatten() {
            let number = thread.file_name().to_str().and_then(|number| number.parse().ok());
            match sched_setaffinity(number.and_then(Pid::from_raw), set) {
                // The thread has ended.
                Ok(()) | Err(io::Errno::SRCH) => {}
                refused => return refused,
            }
        }
        Ok(())
    }
}
