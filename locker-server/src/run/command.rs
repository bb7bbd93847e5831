//! The command that runs while the lock is held.

use super::Signals;
use locker_runtime::Guard;
use rustix::{
    io,
    process::{Pid, Signal, getpgid, kill_process, kill_process_group, test_kill_process_group},
    termios::tcgetpgrp,
};
use std::{ffi::OsString, fs::File, pin::pin, process::ExitStatus, time::Duration};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

/// How often the rest of a group is looked at that is to end: nobody tells when it has.
const LOOK: Duration = Duration::from_millis(20);

/// A command that was started.
///
/// It has a process group of its own, so that all it starts can be ended with it. With a terminal it stays in the
/// group of `locker`: the terminal lets only that one read, and Ctrl-C and Ctrl-Z go to that one.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    pid: Option<Pid>,
    terminal: Option<File>,
}

impl Running {
    pub(super) fn start(line: &[OsString], guard: &Guard) -> std::io::Result<Self> {
        // Where SIGCHLD is ignored, as some supervisors leave it, nobody learns how a child ends: caught, it is not.
        drop(signal(SignalKind::child())?);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        command.env("LOCKER_KEY", guard.key()).env("LOCKER_FENCE", guard.fence().to_string());
        // Whatever the error is: there is none then.
        let terminal = File::open("/dev/tty").ok();
        if terminal.is_none() {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Ok(Self { child, pid, terminal })
    }

    /// How it has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Passes on what `locker` was sent, unless the terminal has sent it to the command, too. What is to end the command
    /// is to end all that it runs, as from a terminal.
    pub(super) fn pass_on(&self, signal: Signal) {
        let from_keyboard = matches!(signal, Signal::INT | Signal::QUIT);
        if from_keyboard && self.is_in_foreground() {
            return;
        }
        if from_keyboard || matches!(signal, Signal::TERM | Signal::HUP) {
            self.send_to_all(signal);
        } else {
            self.send(kill_process, signal);
        }
    }

    /// Ends it and, where it has a group of its own, all that it has started and that is still there. Until it is
    /// killed, `signals` are passed on as before.
    pub(super) async fn end(&mut self, kill_after: Duration, lost: &str, signals: &mut Signals) {
        self.send_to_all(Signal::TERM);
        tracing::error!("{lost}: lost: ending the command");
        let mut patience = pin!(tokio::time::sleep(kill_after));
        loop {
            tokio::select! {
                () = self.all_ended() => return,
                Some(signal) = signals.recv() => self.pass_on(signal),
                () = &mut patience => break,
            }
        }
        self.send_to_all(Signal::KILL);
        tracing::error!("not all has ended after SIGTERM: killed");
        if let Err(error) = self.child.wait().await {
            tracing::error!(%error, "the command cannot be killed");
        }
    }

    /// # Cancel safety
    /// Cancel safe.
    async fn all_ended(&mut self) {
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, "how the command has ended is not known");
        }
        while self.terminal.is_none() && self.pid.is_some_and(|pid| test_kill_process_group(pid).is_ok()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn is_in_foreground(&self) -> bool {
        let foreground = self.terminal.as_ref().and_then(|terminal| tcgetpgrp(terminal).ok());
        foreground.is_some() && getpgid(self.pid).ok() == foreground
    }

    fn send_to_all(&self, signal: Signal) {
        self.send(if self.terminal.is_none() { kill_process_group } else { kill_process }, signal);
    }

    fn send(&self, kill: fn(Pid, Signal) -> io::Result<()>, signal: Signal) {
        if let Some(Err(error)) = self.pid.map(|pid| kill(pid, signal)) {
            tracing::debug!(%error, "the command has ended already");
        }
    }
}
