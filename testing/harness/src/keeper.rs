//! Servers that end when the tests do, however those end.

use crate::signals;
use rustix::process::{Pid, Signal};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Kills a server also if a signal has stopped it.
const KILLED: &str = "kill -9 $! 2>/dev/null";

/// Returns a shell for [`Kept::start`], to which the program and its arguments are to be added. What the program prints
/// goes to the end of the file.
pub(crate) fn shell(log: &Path) -> Command {
    shell_with(log, KILLED)
}

/// As [`shell`], with the commands that end the server `$!`.
pub(crate) fn shell_with(log: &Path, ending: &str) -> Command {
    let script =
        format!(r#""$0" "$@" >>"$LOG" 2>&1 & echo $!; read -r _; {ending}; wait $! 2>/dev/null; true"#);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("LOG", log);
    shell
}

/// A server below a shell, which ends it when the standard input of the shell closes: that is when this process dies,
/// or drops this value. The shell ends after the server, so that its ports are free.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    shell: Option<Child>,
    pid: Option<Pid>,
}

impl Kept {
    /// Starts the server of a [`shell`]. One that runs is ended first.
    pub(crate) fn start(&mut self, mut shell: Command) {
        self.end();
        let spawned = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = spawned.expect("a shell to start the server");
        let mut line = String::new();
        let output = shell.stdout.take().expect("the shell's output");
        BufReader::new(output).read_line(&mut line).expect("the server's process id");
        (self.shell, self.pid) = (Some(shell), line.trim().parse().ok().and_then(Pid::from_raw));
    }

    /// Returns the process of the server, while it was not ended.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signals::send(self.pid, signal);
    }

    /// Ends the server at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.end();
    }

    /// Returns whether the server has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.pid.is_some_and(signals::has_ended)
    }

    /// Has the shell end the server, and waits for both.
    pub(crate) fn end(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            drop(shell.wait());
        }
        self.pid = None;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}
