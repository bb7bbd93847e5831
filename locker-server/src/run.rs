//! `locker run`, `locker ls` and `locker unlock`.

mod command;

use crate::{
    calls,
    carry_out::LONGEST,
    cli::{Ls, MISUSED, Run, Unlock, Where},
    signals, store,
};
use command::Running;
use locker_runtime::{Error, ErrorKind, Guard, Locker};
use rustix::process::Signal;
use std::{
    borrow::Cow,
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::sync::mpsc;

/// `EX_TEMPFAIL`: the lock was lost.
const LOST: u8 = 75;
/// `EX_UNAVAILABLE`: the store does not answer.
const UNAVAILABLE: u8 = 69;

/// The command has ended, nobody knows how.
const UNKNOWN: u8 = 1;

/// How long the end waits for what is given back: a hold, a place in the queue.
const GIVING_BACK: Duration = Duration::from_secs(2);
/// How long it still does after a signal.
const HURRIED: Duration = Duration::from_millis(200);

type Signals = mpsc::Receiver<Signal>;

/// Holds a lock while a command runs.
pub async fn run(options: Run) -> ExitCode {
    match open(&options.store).await {
        Ok(locker) => under(&locker, &options).await.into(),
        Err(error) => fail(&error).into(),
    }
}

/// As [`run`], on a locker that is open; returns the exit code.
pub async fn under(locker: &Locker, options: &Run) -> u8 {
    let mut signals = match passed_on() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signals cannot be passed on");
            return UNAVAILABLE;
        }
    };
    let (mut code, guard) = match acquired(locker, options, &mut signals).await {
        Ok(guard) => (hold(&guard, options, &mut signals).await, Some(guard)),
        Err(code) => (code, None),
    };
    let given_back = async {
        if let Some(guard) = guard
            && is_lost(guard.release().await)
        {
            code = LOST;
        }
        // The background ends with the process.
        locker.settled().await;
    };
    tokio::select! {
        () = given_back => {}
        () = patience(&mut signals) => {
            tracing::warn!("{}: not given back, others wait until the lease is over", options.name);
        }
    }
    code
}

async fn acquired(locker: &Locker, options: &Run, signals: &mut Signals) -> Result<Guard, u8> {
    let request = locker.lock(&options.name).lease(options.lease).timeout(options.timeout).max_hold(LONGEST);
    let guard = tokio::select! {
        guard = request.acquire() => guard,
        Some(signal) = signals.recv() => return Err(ended_by(signal)),
    };
    guard.map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::RetriesExhausted => {
            tracing::error!("{error}");
            options.conflict_exit_code
        }
        _ => fail(&error),
    })
}

async fn hold(guard: &Guard, options: &Run, signals: &mut Signals) -> u8 {
    // A machine that stood still meanwhile learns it only now.
    if guard.check().is_err() {
        tracing::error!("{}: lost: the command is not started", guard.key());
        return LOST;
    }
    match Running::start(&options.command, guard) {
        Ok(command) => attend(command, guard, options.kill_after, signals).await,
        Err(error) => {
            tracing::error!("{}: {error}", options.command[0].display());
            if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
        }
    }
}

/// Passes signals on until the command ends; one whose lock is lost is ended.
async fn attend(mut command: Running, guard: &Guard, kill_after: Duration, signals: &mut Signals) -> u8 {
    loop {
        tokio::select! {
            status = command.ended() => return exit_code(status),
            Some(signal) = signals.recv() => command.pass_on(signal),
            () = guard.lost() => break,
        }
    }
    command.end(kill_after, guard.key(), signals).await;
    LOST
}

/// Over when nobody is to wait any longer for what is given back. A signal only shortens it: it may be the very one
/// that has ended the command.
async fn patience(signals: &mut Signals) {
    let hurried = async {
        signals.recv().await;
        tokio::time::sleep(HURRIED).await;
    };
    // Which of the two was shorter does not matter.
    tokio::time::timeout(GIVING_BACK, hurried).await.ok();
}

fn is_lost(released: Result<(), Error>) -> bool {
    match released {
        Ok(()) => false,
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::error!("{error}");
            true
        }
        Err(error) => {
            tracing::warn!("not released, others wait until the lease is over: {error}");
            false
        }
    }
}

fn exit_code(status: std::io::Result<ExitStatus>) -> u8 {
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            tracing::error!(%error, "how the command has ended is not known");
            return UNKNOWN;
        }
    };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(UNKNOWN)
}

fn ended_by(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(1)
}

/// Those that are passed on. What is ignored stays ignored, here and, since nothing is set for it, in the command.
fn passed_on() -> std::io::Result<Signals> {
    let all = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    signals::caught(all.into_iter().filter(|signal| !signals::is_ignored(*signal)))
}

async fn open(options: &Where) -> Result<Locker, Error> {
    let misused = |reason: &str| Err(Error::new(ErrorKind::Misused, reason));
    match options.store.as_deref() {
        None => misused("no store: give --store redis://host or set LOCKER_URL"),
        Some(url) if url.starts_with("memory:") => misused(
            "memory:// is the memory of one process and would exclude nobody else: give --store redis://host",
        ),
        Some(url) if url.starts_with("http:") || url.starts_with("https:") => misused(
            "a running server is not a store yet: give the redis:// URL that the server has as --store",
        ),
        Some(url) => store::open(url, options.eviction).await,
    }
}

fn fail(error: &Error) -> u8 {
    tracing::error!("{error}");
    if error.kind() == ErrorKind::Misused { MISUSED } else { UNAVAILABLE }
}

/// Lists the locks.
pub async fn ls(options: Ls) -> ExitCode {
    let listed = async { list(&open(&options.store).await?).await };
    match listed.await {
        Ok(lines) => match std::io::stdout().write_all(lines.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => fail(&error).into(),
    }
}

/// One line per lock: fence, time left, number of waiters, name.
///
/// # Errors
/// As [`locker_runtime::Door::names`].
pub async fn list(locker: &Locker) -> Result<String, Error> {
    let door = locker.admin();
    let line = |fence: &str, left: &str, waiting: &str, name: &str| {
        format!("{fence:>20}  {left:>16}  {waiting:>7}  {}\n", shown(name))
    };
    let mut lines = line("FENCE", "TIME LEFT", "WAITING", "NAME");
    for (kind, name) in door.names().await?.into_iter().filter(|(kind, _)| kind == "lock") {
        let Some(seen) = door.inspect(&door.key(&kind, &name)).await? else { continue };
        let (fence, left) = seen.holders.first().map_or(("-".into(), "-".into()), |held| {
            let left = held
                .time_left
                .map(|left| Duration::from_millis(left.as_millis().try_into().unwrap_or(u64::MAX)));
            let left = left.map_or("-".into(), |left| humantime::format_duration(left).to_string());
            (held.fence.to_string(), left)
        });
        lines.push_str(&line(&fence, &left, &seen.waiting.to_string(), &name));
    }
    Ok(lines)
}

/// On one line, and as `unlock` takes it where that takes it at all.
fn shown(name: &str) -> Cow<'_, str> {
    if calls::name::check(name).is_ok() { name.into() } else { name.escape_debug().to_string().into() }
}

/// Ends a lock.
pub async fn unlock(options: Unlock) -> ExitCode {
    let ended = async { force(&open(&options.store).await?, &options.name).await };
    match ended.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            tracing::error!("{:?} is not held", options.name);
            ExitCode::FAILURE
        }
        Err(error) => fail(&error).into(),
    }
}

/// Ends the hold of a lock whoever has it, for the next in line; `false`: nobody held it.
///
/// # Errors
/// As [`locker_runtime::Door::evict`].
pub async fn force(locker: &Locker, name: &str) -> Result<bool, Error> {
    let door = locker.admin();
    let ended = door.evict(&door.key("lock", name)).await?;
    if ended {
        tracing::warn!(name, "unlocked by force: its holder has lost it, the next in line has it");
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_that_is_lost_already_starts_nothing() {
        let locker = Locker::memory();
        let options = Run {
            name: "a".into(),
            lease: Duration::from_millis(100),
            timeout: Duration::ZERO,
            kill_after: Duration::ZERO,
            conflict_exit_code: 1,
            store: Where::default(),
            // The attempt to start it would be told by the exit code.
            command: vec!["/nowhere/at/all".into()],
        };
        let (_sender, mut signals) = mpsc::channel(1);
        let guard = locker.lock("a").lease(options.lease).acquire().await.unwrap();
        assert!(force(&locker, "a").await.unwrap());
        guard.lost().await;
        assert_eq!(hold(&guard, &options, &mut signals).await, LOST);
    }
}
