//! The limit on open files, and how HTTP and ZeroMQ share it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit and returns the resulting limit.
pub(crate) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// Returns caps for two kinds of connections that together fit into `files`. Each kind may use half of the files, plus
/// the files that the other kind does not want.
pub(crate) fn share(files: usize, http: usize, zmq: usize) -> (usize, usize) {
    let cap = |wanted: usize, other: usize| wanted.min(files.saturating_sub(other).max(files / 2)).max(1);
    (cap(http, zmq), cap(zmq, http))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shared() {
        assert_eq!(share(100, 60, 40), (60, 40));
        assert_eq!(share(100, 65_536, 3), (97, 3));
        assert_eq!(share(100, 65_536, 4_096), (50, 50));
        assert_eq!(share(1, 65_536, 4_096), (1, 1), "each gets one");
        assert_eq!(share(usize::MAX, usize::MAX, 1), (usize::MAX - 1, 1));
    }
}
