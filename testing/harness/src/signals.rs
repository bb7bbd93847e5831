//! Signals to servers.

use crate::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::Path};

/// Sends a signal. A server that is gone needs none. After `Signal::STOP` no thread of the server runs any more: the
/// system only begins to stop them when it takes the signal.
pub(crate) fn send(pid: Option<Pid>, signal: Signal) {
    let Some(pid) = pid else { return };
    let _ = kill_process(pid, signal);
    if signal == Signal::STOP {
        eventually("the stop of a server", || is_stopped(pid).then_some(()));
    }
}

/// Returns whether all threads of a process are stopped or over. Systems without `/proc` do not tell.
fn is_stopped(pid: Pid) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())) else { return true };
    threads.flatten().all(|thread| is_in_state(&thread.path(), &['T', 't', 'Z', 'X']))
}

/// Returns whether a process has ended, also if its parent has not yet asked for its status.
pub(crate) fn has_ended(pid: Pid) -> bool {
    is_in_state(Path::new(&format!("/proc/{}", pid.as_raw_pid())), &['Z', 'X'])
}

fn is_in_state(directory: &Path, states: &[char]) -> bool {
    let Ok(stat) = fs::read_to_string(directory.join("stat")) else { return true };
    // The name of the program, in parentheses, may have any character.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(states))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn stopped_process_is_stopped_at_once() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = Pid::from_child(&busy);
        for _ in 0..20 {
            send(Some(pid), Signal::STOP);
            assert!(is_stopped(pid));
            send(Some(pid), Signal::CONT);
            eventually("the process going on", || (!is_stopped(pid)).then_some(()));
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
    }
}
