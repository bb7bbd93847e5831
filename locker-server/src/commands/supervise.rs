//! A command that runs while something is held: what `locker run` and `locker lead` share.

mod child;

use super::store_option::{fail, open};
use crate::{
    cli::StoreOptions,
    exit_code::UNAVAILABLE,
    signals::{self, Signals},
};
pub(super) use child::ChildCommand;
use locker_runtime::{Error, ErrorKind, Guard, Locker};
use rustix::process::Signal;
use std::{ffi::OsString, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

/// The exit code if the status of the command is unknown.
const UNKNOWN: u8 = 1;

/// How long the program waits at its end until its hold or its place in the queue is released.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same after a signal.
const RELEASE_TIMEOUT_AFTER_SIGNAL: Duration = Duration::from_millis(200);

/// Catches the signals that are forwarded. Ignored signals stay ignored, here and in the command.
///
/// # Errors
/// The exit code, after the error was logged.
pub(super) fn forwarded_signals() -> Result<Signals, u8> {
    let all = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    let caught = signals::catch(all.into_iter().filter(|signal| !signals::is_ignored(*signal)));
    caught.map_err(|error| {
        tracing::error!(%error, "cannot catch signals");
        UNAVAILABLE
    })
}

/// Opens the store, unless a signal comes first.
///
/// # Errors
/// The exit code, after the error was logged.
pub(super) async fn opened(store: &StoreOptions, signals: &mut Signals) -> Result<Locker, u8> {
    tokio::select! {
        opened = open(store) => opened.map_err(|error| fail(&error)),
        Some(signal) = signals.recv() => Err(exit_code_of_signal(signal)),
    }
}

/// Starts a command, which finds the key and the fence in its environment.
///
/// # Errors
/// The exit code, after the error was logged.
pub(super) fn start(line: &[OsString], guard: &Guard) -> Result<ChildCommand, u8> {
    ChildCommand::start(line, guard).map_err(|error| {
        tracing::error!("{}: {error}", line[0].display());
        if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
    })
}

/// What has ended the supervision of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The command has ended with this exit code.
    Ended(u8),
    /// The hold is lost.
    Lost,
    /// A signal was forwarded that asks it to end.
    Asked,
}

/// Forwards signals until the command ends, the hold is lost, or a signal asks the command to end, if `stops` says so.
pub(super) async fn supervise(
    command: &mut ChildCommand,
    guard: &Guard,
    signals: &mut Signals,
    stops: bool,
) -> Event {
    loop {
        tokio::select! {
            // What a command has done counts, also if its hold is lost at that moment.
            biased;
            code = command.exit_code() => return Event::Ended(code),
            Some(signal) = signals.recv() => {
                command.forward(signal);
                if stops && command.is_asked_otherwise() {
                    return Event::Asked;
                }
            }
            () = guard.lost() => return Event::Lost,
        }
    }
}

/// What is left if the store does not answer at the end of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left<'a> {
    /// The name of what was held, for the log.
    pub(super) name: &'a str,
    /// What others get, for the log.
    pub(super) what: &'static str,
    /// How long the program waits for an answer, and 2 s after a signal or less.
    pub(super) patience: Duration,
}

impl<'a> Left<'a> {
    /// Returns that of a hold.
    pub(super) fn of(name: &'a str, min_hold: Duration) -> Self {
        let what = if min_hold.is_zero() {
            "not released: other callers wait until the lease has expired"
        } else {
            "--min-hold is not certain: the store did not confirm it"
        };
        Self { name, what, patience: RELEASE_TIMEOUT }
    }
}

/// Carries out the release of what is held at the end of the program, for a limited time. Returns whether the hold was
/// lost before.
pub(super) async fn release_at_end(
    locker: &Locker,
    release: Option<impl Future<Output = Result<(), Error>>>,
    left: &Left<'_>,
    signals: &mut Signals,
) -> bool {
    let mut lost = false;
    let released = async {
        if let Some(release) = release {
            lost = is_lost(release.await, left);
        }
        // The background thread ends with the process.
        locker.settled().await;
    };
    tokio::select! {
        () = released => {}
        () = release_timeout(signals, left.patience) => tracing::warn!("{}: {}", left.name, left.what),
    }
    lost
}

/// Completes when the release has taken too long. A signal only shortens that time, because it may be the signal that
/// ended the command.
async fn release_timeout(signals: &mut Signals, patience: Duration) {
    let after_signal = async {
        signals.recv().await;
        tokio::time::sleep(RELEASE_TIMEOUT_AFTER_SIGNAL).await;
    };
    // Either result means that the time is over.
    tokio::time::timeout(patience, after_signal).await.ok();
}

fn is_lost(released: Result<(), Error>, left: &Left<'_>) -> bool {
    match released {
        Ok(()) => false,
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::error!("{error}");
            true
        }
        Err(error) => {
            tracing::warn!("{}: {error}", left.what);
            false
        }
    }
}

fn exit_code(status: std::io::Result<ExitStatus>) -> u8 {
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            tracing::error!(%error, "the exit status of the command is unknown");
            return UNKNOWN;
        }
    };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(UNKNOWN)
}

/// Returns the exit code of a program that a signal has ended before it held anything.
pub(super) fn exit_code_of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(1)
}
