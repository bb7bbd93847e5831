//! `locker run`.

mod report;

use super::{
    store_option::fail,
    supervise::{
        Event, Left, exit_code_of_signal, forwarded_signals, opened, release_at_end, start, supervise,
    },
};
use crate::{
    cli::{Run, once::AfterCrash},
    exit_code::{NOT_HELD, SUCCESS},
    signals::Signals,
};
use locker_runtime::{
    Error, ErrorKind, Guard, LockRequest, Locker, OncePer,
    private::{AsyncRun, begin, bindings::slots, end_certainly},
};
use report::{Outcome, Report};
use std::{process::ExitCode, time::Duration};

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

/// What the command runs under.
#[derive(Debug)]
enum Held {
    Lock(Guard),
    Run(AsyncRun),
}

impl Held {
    fn guard(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Run(run) => run.guard(),
        }
    }

    /// Ends it. Success matters to a run.
    async fn end(self, is_success: bool) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Run(run) => end_certainly(run, is_success).await,
        }
    }
}

async fn hold(locker: &Locker, options: &Run, signals: &mut Signals, report: &mut Report) -> u8 {
    let (ended, held) = match enter(locker, options, signals).await {
        Ok(held) => {
            report.granted(held.guard());
            (run_command(held.guard(), options, signals, report).await, Some(held))
        }
        Err((outcome, code)) => {
            report.ended(outcome);
            (code.into(), None)
        }
    };
    let held = held.filter(|held| !(matches!(held, Held::Run(_)) && is_unknown(options, ended, report)));
    let left = left_at_end(options, held.as_ref(), ended);
    if release_at_end(locker, held.map(|held| held.end(ended.is_success())), &left, signals).await {
        report.ended(Outcome::Lost);
        return NOT_HELD;
    }
    ended.code
}

/// Whether nobody knows how a run ended, which is then left to its lease: it is lost, or a signal has ended it and it
/// must not be repeated.
fn is_unknown(options: &Run, ended: Ended, report: &Report) -> bool {
    let refuses = options.once.after_crash == Some(AfterCrash::Refuse);
    if refuses && ended.is_by_signal() && !report.is_lost() {
        let name = &options.name;
        tracing::warn!("{name}: a signal has ended the command: further calls in this slot are refused");
        return true;
    }
    report.is_lost()
}

/// How a command has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    code: u8,
    /// Whether a signal had asked it to end.
    was_asked: bool,
}

impl Ended {
    /// Returns whether it has done its work: one that was asked to end may have left some.
    fn is_success(self) -> bool {
        self.code == SUCCESS && !self.was_asked
    }

    /// Returns whether a signal has ended it, or a part of it, as shells report it.
    fn is_by_signal(self) -> bool {
        self.was_asked || (129..=192).contains(&self.code)
    }
}

impl From<u8> for Ended {
    fn from(code: u8) -> Self {
        Self { code, was_asked: false }
    }
}

/// Returns what others get if the store does not answer at the end.
fn left_at_end<'a>(options: &'a Run, held: Option<&Held>, ended: Ended) -> Left<'a> {
    let left = Left::of(&options.name, options.min_hold);
    match held {
        Some(Held::Run(_)) if ended.is_success() => Left {
            what: "the success of the command is not certain: the next call may run it again",
            patience: Duration::MAX,
            ..left
        },
        _ => left,
    }
}

/// Waits for the lock, or for the turn of this process in its slot.
async fn enter(locker: &Locker, options: &Run, signals: &mut Signals) -> Result<Held, (Outcome, u8)> {
    let entered = tokio::select! {
        entered = acquire_or_begin(locker, options) => entered,
        Some(signal) = signals.recv() => return Err((Outcome::Busy, exit_code_of_signal(signal))),
    };
    match entered {
        Ok(Some(held)) => Ok(held),
        Ok(None) => {
            tracing::info!("{}: has run in this slot: the command is not started", options.name);
            Err((Outcome::Skipped, options.once.skip_exit_code()))
        }
        Err(error) => Err(refused(options, &error)),
    }
}

fn refused(options: &Run, error: &Error) -> (Outcome, u8) {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::RetriesExhausted => {
            if options.timeout().is_zero() {
                let what = match options.kind() {
                    "once" => "another command runs in this slot".to_owned(),
                    kind => format!("the {kind} is held"),
                };
                tracing::info!("{}: {what}: the command is not started", options.name);
            } else {
                tracing::error!("{error}");
            }
            (Outcome::Busy, options.conflict_exit_code)
        }
        ErrorKind::Lost => (Outcome::Lost, fail(error)),
        _ => (Outcome::Unavailable, fail(error)),
    }
}

/// Returns `None` if the command is skipped.
async fn acquire_or_begin(locker: &Locker, options: &Run) -> Result<Option<Held>, Error> {
    match options.once.once_per {
        Some(every) => Ok(begin(record(locker, options, every)?).await?.map(Held::Run)),
        None => Ok(Some(Held::Lock(request(locker, options).acquire().await?))),
    }
}

fn record(locker: &Locker, options: &Run, every: Duration) -> Result<OncePer, Error> {
    let once = &options.once;
    let record =
        locker.once(&options.name).per(every).slots(slots(every, once.from, once.early)?).without_place();
    let record = record.lease(options.lease).timeout(options.timeout());
    let record = record.stop_before(options.stop_before).min_hold(options.min_hold);
    let record = if let Some(max_hold) = options.max_hold { record.max_hold(max_hold) } else { record };
    let refuses = once.after_crash == Some(AfterCrash::Refuse);
    Ok(if refuses { record.refuse_after_crash() } else { record })
}

fn request(locker: &Locker, options: &Run) -> LockRequest {
    let request = match options.permits {
        Some(size) => locker.semaphore(&options.name, size),
        None if options.read => locker.read_lock(&options.name),
        None => locker.lock(&options.name),
    };
    let request = request.lease(options.lease).timeout(options.timeout()).without_place();
    let request = request.stop_before(options.stop_before).min_hold(options.min_hold);
    if let Some(max_hold) = options.max_hold { request.max_hold(max_hold) } else { request }
}

async fn run_command(guard: &Guard, options: &Run, signals: &mut Signals, report: &mut Report) -> Ended {
    // A machine that was paused may have lost the lock.
    if guard.check().is_err() {
        report.ended(Outcome::Lost);
        tracing::error!("{}: the lock is lost: the command is not started", guard.key());
        return NOT_HELD.into();
    }
    let mut command = match start(&options.command, guard) {
        Ok(command) => command,
        Err(code) => return code.into(),
    };
    if let Event::Ended(code) = supervise(&mut command, guard, signals, false).await {
        report.ended(Outcome::Held);
        return Ended { code, was_asked: command.is_asked_otherwise() };
    }
    report.ended(Outcome::Lost);
    let reason = format!("{}: the lock is lost", guard.key());
    command.end(&reason, options.kill_after, signals).await;
    NOT_HELD.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{StoreOptions, once::Once},
        commands::unlock::force_release,
    };
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_lost_lock_starts_no_command() {
        let locker = Locker::memory();
        let options = Run {
            name: "a".into(),
            permits: None,
            read: false,
            lease: Duration::from_secs(3),
            timeout: Some(Duration::ZERO),
            max_hold: None,
            stop_before: Duration::ZERO,
            min_hold: Duration::ZERO,
            kill_after: Duration::ZERO,
            conflict_exit_code: 1,
            once: Once::default(),
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
        let ended = run_command(&guard, &options, &mut signals, &mut report).await;
        assert_eq!((ended.code, ended.is_success()), (NOT_HELD, false));
    }
}
