//! `locker run`, `locker ls` and `locker unlock`.

use crate::{
    carry_out::LONGEST,
    cli::{Ls, MISUSED, Run, Unlock, Where},
    signals, store,
};
use locker_runtime::{Error, ErrorKind, Guard, Locker};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    sync::mpsc,
};

/// `EX_TEMPFAIL`: the lock was lost.
const LOST: u8 = 75;
/// `EX_UNAVAILABLE`: the store does not answer.
const UNAVAILABLE: u8 = 69;

/// How long the end waits for what is given back from the background: a hold, a place in the queue.
const GIVING_BACK: Duration = Duration::from_secs(2);

/// Holds a lock while a command runs.
pub async fn run(options: Run) -> ExitCode {
    match open(&options.store).await {
        Ok(locker) => {
            let code = under(&locker, &options).await;
            // The background ends with the process.
            if tokio::time::timeout(GIVING_BACK, locker.settled()).await.is_err() {
                tracing::warn!("{}: not given back, others wait until the lease is over", options.name);
            }
            code.into()
        }
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
    let request = locker.lock(&options.name).lease(options.lease).timeout(options.timeout).max_hold(LONGEST);
    let guard = tokio::select! {
        guard = request.acquire() => guard,
        Some(signal) = signals.recv() => return ended_by(signal),
    };
    match guard {
        Ok(guard) => hold(guard, options, signals).await,
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::RetriesExhausted) => {
            tracing::error!("{error}");
            options.conflict_exit_code
        }
        Err(error) => fail(&error),
    }
}

async fn hold(guard: Guard, options: &Run, signals: mpsc::Receiver<Signal>) -> u8 {
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    command.env("LOCKER_KEY", guard.key()).env("LOCKER_FENCE", guard.fence().to_string());
    let code = match command.spawn() {
        Ok(child) => attend(child, &guard, options.kill_after, signals).await,
        Err(error) => {
            tracing::error!("{}: {error}", options.command[0].display());
            if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
        }
    };
    match guard.release().await {
        Err(error) if error.kind() == ErrorKind::Lost => {
            tracing::error!("{error}");
            LOST
        }
        Err(error) => {
            tracing::warn!("not released, others wait until the lease is over: {error}");
            code
        }
        Ok(()) => code,
    }
}

/// Passes signals on until the command ends; one whose lock is lost is ended.
async fn attend(
    mut child: Child,
    guard: &Guard,
    kill_after: Duration,
    mut signals: mpsc::Receiver<Signal>,
) -> u8 {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let send = |signal| {
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            tracing::debug!(%error, "the command has ended already");
        }
    };
    loop {
        tokio::select! {
            status = child.wait() => return status.map_or(UNAVAILABLE, exit_code),
            Some(signal) = signals.recv() => send(signal),
            () = guard.lost() => break,
        }
    }
    tracing::error!("{}: lost: ending the command", guard.key());
    send(Signal::TERM);
    if tokio::time::timeout(kill_after, child.wait()).await.is_err() {
        tracing::error!("the command goes on after SIGTERM: killing it");
        if let Err(error) = child.kill().await {
            tracing::error!(%error, "the command cannot be killed");
        }
    }
    LOST
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn ended_by(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(1)
}

/// Those that are passed on. What is ignored stays ignored, here and, since nothing is set for it, in the command.
fn passed_on() -> std::io::Result<mpsc::Receiver<Signal>> {
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
    let door = locker.door();
    let line = |fence: &str, left: &str, waiting: &str, name: &str| {
        format!("{fence:>20}  {left:>16}  {waiting:>7}  {}\n", name.escape_debug())
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
    let door = locker.door();
    let ended = door.evict(&door.key("lock", name)).await?;
    if ended {
        tracing::warn!(name, "unlocked by force: its holder has lost it, the next in line has it");
    }
    Ok(ended)
}
