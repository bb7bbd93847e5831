//! `locker lead`.

use super::{
    store_option::fail,
    supervise::{
        Event, Left, exit_code_of_signal, forwarded_signals, opened, release_at_end, start, supervise,
    },
};
use crate::{cli::lead::Lead, signals::Signals};
use locker_runtime::{
    Election, Guard, Locker,
    private::bindings::{term, without_place},
};
use std::process::ExitCode;

/// Runs a command while this process is the leader.
pub(super) async fn lead(options: Lead) -> ExitCode {
    let mut signals = match forwarded_signals() {
        Ok(signals) => signals,
        Err(code) => return code.into(),
    };
    match opened(&options.store, &mut signals).await {
        Ok(locker) => campaign(&locker, &options, &mut signals).await.into(),
        Err(code) => code.into(),
    }
}

/// Runs the command in each term, until it ends by itself or after a signal. Returns the exit code.
async fn campaign(locker: &Locker, options: &Lead, signals: &mut Signals) -> u8 {
    let election = election(locker, options);
    let (code, term) = loop {
        let term = match elected(&election, signals).await {
            Ok(term) => term,
            Err(code) => break (code, None),
        };
        if let Some(code) = run_command(&term, options, signals).await {
            break (code, Some(term));
        }
    };
    // A loss that only the release finds came after the command.
    let left = Left::of(&options.name, options.min_hold);
    release_at_end(locker, term.map(Guard::release), &left, signals).await;
    code
}

fn election(locker: &Locker, options: &Lead) -> Election {
    let election = without_place(locker.elect(&options.name)).lease(options.lease).min_hold(options.min_hold);
    let election = if let Some(note) = &options.note { election.note(note) } else { election };
    let election = match options.stop_before {
        Some(stop_before) => election.stop_before(stop_before),
        None => election,
    };
    if let Some(max_hold) = options.max_hold { election.max_hold(max_hold) } else { election }
}

/// Waits until this candidate is elected, or a signal ends the wait.
async fn elected(election: &Election, signals: &mut Signals) -> Result<Guard, u8> {
    tokio::select! {
        // A signal may have come after the command has ended.
        biased;
        Some(signal) = signals.recv() => Err(exit_code_of_signal(signal)),
        term = term(election) => term.map_err(|error| fail(&error)),
    }
}

/// Runs the command for one term. Returns `None` if the term is lost, and the command has ended.
async fn run_command(term: &Guard, options: &Lead, signals: &mut Signals) -> Option<u8> {
    let (key, lost) = (term.key(), format!("{}: the term is lost", term.key()));
    // A machine that was paused may have lost the term.
    if term.check().is_err() {
        tracing::error!("{lost}: the command is not started");
        return None;
    }
    tracing::info!("{key}: elected with fence {}: starting the command", term.fence());
    let mut command = match start(&options.command, term) {
        Ok(command) => command,
        Err(code) => return Some(code),
    };
    let kill_after = options.kill_after();
    match supervise(&mut command, term, signals, true).await {
        Event::Lost => command.end(&lost, kill_after, signals).await,
        // What the command has started may still work.
        Event::Ended(code) => {
            if command.is_asked_to_end() {
                command.ended_or_killed(kill_after, signals).await;
            }
            return Some(code);
        }
        Event::Asked => command.ended_or_killed(kill_after, signals).await,
    }
    if command.is_asked_to_end() { Some(command.exit_code().await) } else { None }
}
