//! The command itself: how it is started, signalled and ended.

use super::exit_code;
use crate::signals::Signals;
use humantime::format_rfc3339;
use locker_runtime::Guard;
use rustix::{
    io,
    process::{Pid, Signal, getpgid, kill_process, kill_process_group, test_kill_process_group},
    termios::tcgetpgrp,
};
use std::{ffi::OsString, fs::File, pin::pin, time::Duration};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

/// The interval of checks whether a process group has ended. The system does not report its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A running command.
///
/// Without a terminal it has its own process group, so that all its children can be ended with it. With a terminal it
/// stays in the group of `locker`, because only the foreground group may read and gets Ctrl-C and Ctrl-Z.
#[derive(Debug)]
pub(in crate::commands) struct ChildCommand {
    child: Child,
    pid: Option<Pid>,
    terminal: Option<File>,
    /// The signal that has asked the command to end.
    asked_by: Option<Signal>,
}

impl ChildCommand {
    pub(super) fn start(line: &[OsString], guard: &Guard) -> std::io::Result<Self> {
        // Some supervisors leave SIGCHLD ignored, and the exit status of a child is then lost. A caught signal is not
        // ignored.
        drop(signal(SignalKind::child())?);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        command.env("LOCKER_KEY", guard.key()).env("LOCKER_FENCE", guard.fence().to_string());
        if let Some(slot) = guard.slot() {
            command.env("LOCKER_SLOT", format_rfc3339(slot).to_string());
            command.env("LOCKER_MISSED", guard.missed().to_string());
        } else {
            // Those of a run around this one.
            command.env_remove("LOCKER_SLOT").env_remove("LOCKER_MISSED");
        }
        // Any error means that there is no terminal.
        let terminal = File::open("/dev/tty").ok();
        if terminal.is_none() {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Ok(Self { child, pid, terminal, asked_by: None })
    }

    /// Waits for the end of the command and returns its exit code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::commands) async fn exit_code(&mut self) -> u8 {
        exit_code(self.child.wait().await)
    }

    /// Returns whether a signal to this program has asked the command to end.
    pub(in crate::commands) fn is_asked_to_end(&self) -> bool {
        self.asked_by.is_some()
    }

    /// Forwards a signal, unless the terminal has sent it to the command as well. Signals that end the command go to
    /// its whole group, as from a terminal.
    pub(super) fn forward(&mut self, signal: Signal) {
        let from_keyboard = matches!(signal, Signal::INT | Signal::QUIT);
        let ends = from_keyboard || matches!(signal, Signal::TERM | Signal::HUP);
        if ends && !self.is_asked_otherwise() {
            self.asked_by = Some(signal);
        }
        if from_keyboard && self.is_in_foreground() {
            return;
        }
        if ends {
            self.send_to_all(signal);
        } else {
            self.send(kill_process, signal);
        }
    }

    /// Ends the command, and its whole group if it has its own. `reason` is for the log.
    pub(in crate::commands) async fn end(
        &mut self,
        reason: &str,
        kill_after: Duration,
        signals: &mut Signals,
    ) {
        // A command that goes on after SIGHUP has only read its configuration again.
        if !self.is_asked_otherwise() {
            self.asked_by = None;
        }
        self.send_to_all(Signal::TERM);
        tracing::error!("{reason}: sending SIGTERM to the command");
        self.ended_or_killed(kill_after, signals).await;
    }

    /// Waits for the end of the command, and of its whole group if it has its own. Forwards `signals` until the command
    /// is killed.
    pub(in crate::commands) async fn ended_or_killed(&mut self, kill_after: Duration, signals: &mut Signals) {
        let mut kill_timer = pin!(tokio::time::sleep(kill_after));
        loop {
            tokio::select! {
                biased;
                () = self.all_ended() => return,
                Some(signal) = signals.recv() => self.forward(signal),
                () = &mut kill_timer => break,
            }
        }
        self.send_to_all(Signal::KILL);
        tracing::error!("the command did not end in time: sending SIGKILL");
        if let Err(error) = self.child.wait().await {
            tracing::error!(%error, "cannot wait for the killed command");
        }
    }

    /// # Cancel safety
    /// Cancel safe.
    async fn all_ended(&mut self) {
        if let Err(error) = self.child.wait().await {
            tracing::debug!(%error, "the exit status of the command is unknown");
        }
        while self.terminal.is_none() && self.pid.is_some_and(|pid| test_kill_process_group(pid).is_ok()) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns whether another signal than SIGHUP has asked the command to end.
    pub(in crate::commands) fn is_asked_otherwise(&self) -> bool {
        self.asked_by.is_some_and(|signal| signal != Signal::HUP)
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
            tracing::debug!(%error, "cannot send a signal to the command");
        }
    }
}
