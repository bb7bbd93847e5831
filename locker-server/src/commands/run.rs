//! `locker run`.

mod report;

use super::{
    store_option::fail,
    supervise::{Event, exit_code_of_signal, forwarded_signals, opened, release_at_end, start, supervise},
};
use crate::{cli::Run, exit_code::NOT_HELD, signals::Signals};
use locker_runtime::{ErrorKind, Guard, LockRequest, Locker};
use report::{Outcome, Report};
use std::process::ExitCode;

/// Holds a lock while a command runs.
pub(super) async fn run(options: Run) -> ExitCode {
    let report = Report::new();
    let mut signals = match forwarded_signals() {
        Ok(signals) => signals,
        Err(code) => return report.print(&options, code).into(),
    };
    match opened(&options.store, &mut signals).await {
        Ok(locker) => reported(&locker, &options, &mut signals).await.into(),
        Err(code) => report.print(&options, code).into(),
    }
}

/// Holds a lock of `locker` while the command runs, and returns the exit code.
pub async fn run_under_lock(locker: &Locker, options: &Run) -> u8 {
    match forwarded_signals() {
        Ok(mut signals) => reported(locker, options, &mut signals).await,
        Err(code) => Report::new().print(options, code),
    }
}

async fn reported(locker: &Locker, options: &Run, signals: &mut Signals) -> u8 {
    let mut report = Report::new();
    let code = hold(locker, options, signals, &mut report).await;
    report.print(options, code)
}

async fn hold(locker: &Locker, options: &Run, signals: &mut Signals, report: &mut Report) -> u8 {
    let (code, guard) = match acquire(locker, options, signals).await {
        Ok(guard) => {
            report.granted(&guard);
            (run_command(&guard, options, signals, report).await, Some(guard))
        }
        Err((outcome, code)) => {
            report.ended(outcome);
            (code, None)
        }
    };
    if release_at_end(locker, guard, (&options.name, options.min_hold), signals).await {
        report.ended(Outcome::Lost);
        return NOT_HELD;
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
    let mut command = match start(&options.command, guard) {
        Ok(command) => command,
        Err(code) => return code,
    };
    if let Event::Ended(code) = supervise(&mut command, guard, signals, false).await {
        report.ended(Outcome::Held);
        return code;
    }
    report.ended(Outcome::Lost);
    let reason = format!("{}: the lock is lost", guard.key());
    command.end(&reason, options.kill_after, signals).await;
    NOT_HELD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::StoreOptions, commands::unlock::force_release};
    use std::time::Duration;
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
