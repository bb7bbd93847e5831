//! On which processors a measurement runs.

use crate::RedisServer;

/// Measures as the scheduler places the threads, and then, on Linux, with this process on one processor and the server on
/// another: what the argument says. Where the scheduler puts a caller, the thread of its connection and the server
/// moves the time of a round trip by a third, and it puts them elsewhere for whoever comes next.
pub fn in_both_places(server: &RedisServer, mut measure: impl FnMut(&str)) {
    measure("");
    #[cfg(target_os = "linux")]
    match linux::Pinned::new(server) {
        Ok(Some(_pinned)) => measure(", callers and server on a processor each"),
        Ok(None) => eprintln!("there is no second processor to measure on"),
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
        /// `None` where there is no second processor.
        pub(super) fn new(server: &RedisServer) -> io::Result<Option<Self>> {
            let before = sched_getaffinity(None)?;
            let mut free = (0..CpuSet::MAX_CPU).filter(|number| before.is_set(*number));
            let (Some(one), Some(other)) = (free.next(), free.next()) else { return Ok(None) };
            let pinned = Self { server: server.pid, before };
            keep(Some(getpid()), &only(one))?;
            keep(pinned.server, &only(other))?;
            Ok(Some(pinned))
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            for process in [Some(getpid()), self.server] {
                if let Err(error) = keep(process, &self.before) {
                    eprintln!("still on one processor: {error}");
                }
            }
        }
    }

    fn only(processor: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(processor);
        set
    }

    /// All threads that the process has; those it starts later follow them.
    fn keep(process: Option<Pid>, set: &CpuSet) -> io::Result<()> {
        let Some(process) = process else { return Ok(()) };
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
        for thread in threads.map_err(|_| io::Errno::SRCH)?.flatten() {
            let number = thread.file_name().to_str().and_then(|number| number.parse().ok());
            match sched_setaffinity(number.and_then(Pid::from_raw), set) {
                // It has ended meanwhile.
                Ok(()) | Err(io::Errno::SRCH) => {}
                refused => return refused,
            }
        }
        Ok(())
    }
}
