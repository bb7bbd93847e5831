//! `locker run`.

mod child;
mod report;

use super::store_option::{fail, open};
use crate::{
    cli::Run,
    exit_code::{NOT_HELD, UNAVAILABLE},
    signals::{self, Signals},
};
use child::ChildCommand;
use locker_runtime::{Error, ErrorKind, Guard, LockRequest, Locker};
use report::{Outcome, Report};
use rustix::process::Signal;
use std::{
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

/// The exit code if the status of the command is unknown.
const UNKNOWN: u8 = 1;

/// How long the program waits at its end until its hold or its place in the queue is released.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same after a signal.
const RELEASE_TIMEOUT_AFTER_SIGNAL: Duration = Duration::from_millis(200);

/// Holds a lock while a command runs.
pub(super) async fn run(options: Run) -> ExitCode {
    let report = Report::new();
    let mut signals = match forwarded_signals() {
        Ok(signals) => signals,
        Err(error) => return report.print(&options, no_signals(&error)).into(),
    };
    let opened = tokio::select! {
        opened = open(&options.store) => opened.map_err(|error| fail(&error)),
        Some(signal) = signals.recv() => Err(exit_code_of_signal(signal)),
    };
    match opened {
        Ok(locker) => reported(&locker, &options, &mut signals).await.into(),
        Err(code) => report.print(&options, code).into(),
    }
}

/// Holds a lock of `locker` while the command runs, and returns the exit code.
pub async fn run_under_lock(locker: &Locker, options: &Run) -> u8 {
    match forwarded_signals() {
        Ok(mut signals) => reported(locker, options, &mut signals).await,
        Err(error) => Report::new().print(options, no_signals(&error)),
    }
}

fn no_signals(error: &std::io::Error) -> u8 {
    tracing::error!(%error, "cannot catch signals");
    UNAVAILABLE
}

async fn reported(locker: &Locker, options: &Run, signals: &mut Signals) -> u8 {
    let mut report = Report::new();
    let code = hold(locker, options, signals, &mut report).await;
    report.print(options, code)
}

async fn hold(locker: &Locker, options: &Run, signals: &mut Signals, report: &mut Report) -> u8 {
    let (mut code, guard) = match acquire(locker, options, signals).await {
        Ok(guard) => {
            report.granted(&guard);
            (run_command(&guard, options, signals, report).await, Some(guard))
        }
        Err((outcome, code)) => {
            report.ended(outcome);
            (code, None)
        }
    };
    let released = async {
        if let Some(guard) = guard
            && is_lost(guard.release().await, options.min_hold)
        {
            report.ended(Outcome::Lost);
            code = NOT_HELD;
        }
        // The background thread ends with the process.
        locker.settled().await;
    };
    tokio::select! {
        () = released => {}
        () = release_timeout(signals) => {
            tracing::warn!("{}: not released: other callers wait until the lease has expired", options.name);
        }
    }
    code
}

async fn acquire(locker: &Locker, options: &Run, signals: &mut Signals) -> Result<Guard, (Outcome, u8)> {
    let request = request(locker, options).lease(options.lease).timeout(options.timeout).without_place();
    let request = request.stop_before(options.stop_before).min_hold(options.min_hold);
    let request = if let Some(max_hold) = options.max_hold { request.max_hold(max_hold) } else { request };
    let guard = tokio::select! {
        guard = request.acquire() => guard,
        Some(signal) = signals.recv() => return Err((Outcome::Busy, exit_code_of_signal(signal))),
    };
    guard.map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::RetriesExhausted => {
            if options.timeout.is_zero() {
                tracing::info!(
                    "{}: the {} is held: the command is not started",
                    options.name,
                    options.kind()
                );
            } else {
                tracing::error!("{error}");
            }
            (Outcome::Busy, options.conflict_exit_code)
        }
        ErrorKind::Lost => (Outcome::Lost, fail(&error)),
        _ => (Outcome::Unavailable, fail(&error)),
    })
}

fn request(locker: &Locker, options: &Run) -> LockRequest {
    match options.permits {
        Some(size) => locker.semaphore(&options.name, size),
        None if options.read => locker.read_lock(&options.name),
        None => locker.lock(&options.name),
    }
}

async fn run_command(guard: &Guard, options: &Run, signals: &mut Signals, report: &mut Report) -> u8 {
    // A machine that was paused may have lost the lock.
    if guard.check().is_err() {
        report.ended(Outcome::Lost);
        tracing::error!("{}: the lock is lost: the command is not started", guard.key());
        return NOT_HELD;
    }
    match ChildCommand::start(&options.command, guard) {
        Ok(command) => supervise(command, guard, options.kill_after, signals, report).await,
        Err(error) => {
            tracing::error!("{}: {error}", options.command[0].display());
            if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
        }
    }
}

/// Forwards signals until the command ends. Ends the command if the lock is lost.
async fn supervise(
    mut command: ChildCommand,
    guard: &Guard,
    kill_after: Duration,
    signals: &mut Signals,
    report: &mut Report,
) -> u8 {
    loop {
        tokio::select! {
            status = command.ended() => {
                report.ended(Outcome::Held);
                return exit_code(status);
            }
            Some(signal) = signals.recv() => command.forward(signal),
            () = guard.lost() => break,
        }
    }
    report.ended(Outcome::Lost);
    command.end(kill_after, guard.key(), signals).await;
    NOT_HELD
}

/// Completes when the release has taken too long. A signal only shortens that time, because it may be the signal that
/// ended the command.
async fn release_timeout(signals: &mut Signals) {
    let after_signal = async {
        signals.recv().await;
        tokio::time::sleep(RELEASE_TIMEOUT_AFTER_SIGNAL).await;
    };
    // Either result means that the time is over.
    tokio::time::timeout(RELEASE_TIMEOUT, after_signal).await.ok();
}

fn is_lost(released: Result<(), Error>, min_hold: Duration) -> bool {
    match released {
        Ok(()) => false,
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::error!("{error}");
            true
        }
        Err(error) if !min_hold.is_zero() => {
            tracing::warn!("--min-hold is not certain: the store did not confirm it: {error}");
            false
        }
        Err(error) => {
            tracing::warn!("not released: other callers wait until the lease has expired: {error}");
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

fn exit_code_of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(1)
}

/// Catches the signals that are forwarded. Ignored signals stay ignored, here and in the command.
fn forwarded_signals() -> std::io::Result<Signals> {
    let all = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    signals::catch(all.into_iter().filter(|signal| !signals::is_ignored(*signal)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::StoreOptions, commands::unlock::force_release};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_lost_lock_starts_no_command() {
        let locker = Locker::memory();
        let options = Run {
            name: "a".into(),
            permits: None,
            read: false,
            lease: Duration::from_secs(3),
            timeout: Duration::ZERO,
            max_hold: None,
            stop_before: Duration::ZERO,
            min_hold: Duration::ZERO,
            kill_after: Duration::ZERO,
            conflict_exit_code: 1,
            json: false,
            store: StoreOptions::default(),
            // An attempt to start it would change the exit code.
            command: vec!["/nowhere/at/all".into()],
        };
        let (_sender, mut signals) = mpsc::channel(1);
        let guard = locker.lock("a").lease(options.lease).acquire().await.unwrap();
        assert!(force_release(&locker, &locker_runtime::Key::new("lock:a"), None).await.unwrap());
        guard.lost().await;
        let mut report = Report::new();
        assert_eq!(run_command(&guard, &options, &mut signals, &mut report).await, NOT_HELD);
    }
}
