//! `locker run`, `ls` and `unlock`.

use crate::support::{binary, until};
use locker_runtime::{Key, Locker};
use locker_server::internals::{Ls, Once, Run, StoreOptions, force_release, run_under_lock};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

fn options(name: &str, command: &[&str]) -> Run {
    Run {
        name: name.into(),
        permits: None,
        read: false,
        lease: Duration::from_secs(30),
        timeout: Some(Duration::from_secs(30)),
        max_hold: None,
        stop_before: Duration::ZERO,
        min_hold: Duration::ZERO,
        kill_after: Duration::from_millis(50),
        conflict_exit_code: 75,
        once: Once::default(),
        json: false,
        store: StoreOptions::default(),
        command: command.iter().map(Into::into).collect(),
    }
}

async fn list(locker: &Locker) -> Result<String, locker_runtime::Error> {
    let mut lines = Vec::new();
    locker_server::internals::list(locker, &Ls::default(), &mut lines).await?.unwrap();
    Ok(String::from_utf8(lines).unwrap())
}

fn shell(name: &str, script: &str) -> Run {
    options(name, &["sh", "-c", script])
}

#[tokio::test]
async fn the_exit_code_is_the_commands_own() {
    let locker = Locker::memory();
    assert_eq!(run_under_lock(&locker, &shell("a", "exit 0")).await, 0);
    assert_eq!(run_under_lock(&locker, &shell("a", "exit 7")).await, 7);
    assert_eq!(run_under_lock(&locker, &shell("a", "kill -9 $$")).await, 128 + 9);
    assert_eq!(run_under_lock(&locker, &options("a", &["/nowhere/at/all"])).await, 127);
    assert_eq!(run_under_lock(&locker, &options("a", &["/"])).await, 126);
    assert!(locker.lock("a").try_acquire().await.unwrap().is_some(), "released each time");
}

#[tokio::test]
async fn command_gets_key_and_fence() {
    let locker = Locker::memory();
    let fence = locker.lock("a").acquire().await.unwrap().fence();
    let script = format!("test \"$LOCKER_KEY\" = lock:a && test \"$LOCKER_FENCE\" -gt {fence}");
    assert_eq!(run_under_lock(&locker, &shell("a", &script)).await, 0);
}

#[tokio::test]
async fn a_lock_that_is_held_is_a_conflict() {
    let locker = Locker::memory();
    let _guard = locker.lock("a").acquire().await.unwrap();
    let once = Run { timeout: Some(Duration::ZERO), ..shell("a", "exit 0") };
    assert_eq!(run_under_lock(&locker, &once).await, 75);
    assert_eq!(run_under_lock(&locker, &Run { conflict_exit_code: 3, ..once }).await, 3);
}

#[tokio::test]
async fn a_command_whose_lock_is_lost_is_ended() {
    for script in ["exec sleep 600", "trap '' TERM; exec sleep 600"] {
        let locker = Locker::memory();
        let run = Run { lease: Duration::from_secs(3), ..shell("a", script) };
        let ended =
            until("a holder", async || force_release(&locker, &Key::new("lock:a"), None).await.unwrap());
        let running = run_under_lock(&locker, &run);
        assert_eq!(tokio::join!(running, ended).0, 75, "{script}");
    }
}

#[tokio::test]
async fn max_hold_ends_the_command() {
    let locker = Locker::memory();
    let (lease, max_hold) = (Duration::from_millis(100), Some(Duration::from_millis(300)));
    let run = Run { lease, max_hold, ..shell("a", "exec sleep 600") };
    assert_eq!(run_under_lock(&locker, &run).await, 75);
    assert!(locker.lock("a").try_acquire().await.unwrap().is_some(), "the lock is free for the next one");
    let too_short = Run { max_hold: Some(Duration::from_millis(50)), ..run };
    assert_eq!(run_under_lock(&locker, &too_short).await, 64);
}

#[tokio::test]
async fn stop_before_ends_the_command_before_its_lease() {
    let locker = Locker::memory();
    let (lease, stop_before) = (Duration::from_secs(6), Duration::from_secs(3));
    let max_hold = Some(Duration::from_secs(6));
    let run = Run { lease, stop_before, max_hold, ..shell("a", "exec sleep 600") };
    let asked = Instant::now();
    assert_eq!(run_under_lock(&locker, &run).await, 75);
    let next = locker.lock("a").timeout(Duration::from_secs(30)).acquire().await.unwrap();
    assert!(asked.elapsed() >= lease, "what the command has begun has until then");
    next.release().await.unwrap();
    let too_early = Run { stop_before: Duration::from_millis(3_001), ..run };
    assert_eq!(run_under_lock(&locker, &too_early).await, 64);
}

/// Each process ends at once, and its hold does not.
#[test]
fn min_hold_outlives_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let run = |lock: &[&str]| {
        let mut run = binary();
        run.args(["run", "a", "--lease", "500ms"]).args(lock).args(["--", "true"]);
        run.env("LOCKER_URL", format!("file://{}", directory.path().display()));
        run.status().unwrap().code()
    };
    let asked = Instant::now();
    assert_eq!(run(&["--min-hold", "3s"]), Some(0));
    let code = run(&["--timeout", "0s"]);
    assert!(code == Some(75) || asked.elapsed() >= Duration::from_secs(3), "{code:?}");
    assert_eq!(run(&["--timeout", "30s"]), Some(0));
    assert!(asked.elapsed() >= Duration::from_secs(3));
}

/// A command that hung blocked its job on all hosts, and nothing said so.
#[test]
fn long_run_is_warned_of_after_ten_leases() {
    let directory = tempfile::tempdir().unwrap();
    for lease in ["100ms", "500ms", "3s"] {
        let mut run = binary();
        run.args(["run", "a", "--lease", lease, "--", "sh", "-c", "while read -r line; do :; done"]);
        run.env("LOCKER_URL", format!("file://{}", directory.path().display()));
        let mut child = run.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let warning = log.find(|line| line.contains("held for"));
        drop(child.stdin.take());
        let code = child.wait().unwrap().code();
        if let Some(line) = warning {
            assert!(line.contains("WARN") && line.contains("lock:a"), "{line}");
            return assert_eq!(code, Some(0));
        }
        // On a busy machine a renewal may come too late for a short lease.
        assert_eq!(code, Some(75), "it ended without a warning");
    }
    panic!("no lease was long enough");
}

/// The column of each command in the page, and the list in its help.
#[test]
fn exit_codes_are_those_of_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split_once("\n## Exit codes\n").unwrap().1.split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let codes = |text: &str| text.split(", ").filter_map(|code| code.parse().ok()).collect::<Vec<u8>>();
    for (column, command) in [
        (1, &["serve"][..]),
        (2, &["run"]),
        (3, &["lead"]),
        (4, &["ls"]),
        (5, &["explain"]),
        (6, &["unlock"]),
        (7, &["store", "check"]),
        (9, &["health"]),
        (10, &["completions"]),
        (10, &["man"]),
    ] {
        let heading = format!("`{}`", command.join(" "));
        assert!(rows[0][column].split(", ").any(|one| one == heading), "{heading}");
        let listed = rows.iter().filter(|row| !row[column].is_empty());
        let listed: BTreeSet<u8> = listed.flat_map(|row| codes(row[0])).collect();
        let help = String::from_utf8(binary().args(command).arg("--help").output().unwrap().stdout).unwrap();
        let help = help.split_once("Exit codes:\n").unwrap().1.split("\n\n").next().unwrap();
        let helped = help.lines().filter_map(|line| line.split_whitespace().next());
        assert_eq!(helped.flat_map(codes).collect::<BTreeSet<u8>>(), listed, "{command:?}");
    }
}

#[tokio::test]
async fn the_lease_is_renewed_while_the_command_runs() {
    let locker = Locker::memory();
    let directory = tempfile::tempdir().unwrap();
    let end = directory.path().join("end");
    let script = format!("until [ -e '{}' ]; do sleep 0.02; done", end.display());
    let run = Run { lease: Duration::from_secs(6), ..shell("a", &script) };
    let (code, taken) = tokio::join!(run_under_lock(&locker, &run), async {
        let (admin, mut renewals, mut before) = (locker.admin(), 0, Duration::MAX);
        until("renewals for more than a lease", async || {
            let state = admin.inspect(&admin.key("lock", "a")).await.unwrap();
            let left = state.and_then(|state| state.holders.first()?.time_left).unwrap_or_default();
            renewals += u32::from(left > before);
            before = left;
            renewals == 4
        })
        .await;
        let taken = locker.lock("a").try_acquire().await.unwrap().is_some();
        std::fs::write(end, "").unwrap();
        taken
    });
    assert_eq!((code, taken), (0, false));
}

#[tokio::test]
async fn locks_are_listed_and_ended() {
    let locker = Locker::memory();
    let guard = locker.lock("nightly").acquire().await.unwrap();
    let lines = list(&locker).await.unwrap();
    assert!(lines.contains(&guard.fence().to_string()) && lines.contains("nightly"), "{lines}");
    let (next, lines) = tokio::join!(locker.lock("nightly").acquire(), async {
        while locker.admin().inspect(&locker.admin().key("lock", "nightly")).await.unwrap().unwrap().waiting
            == 0
        {
            tokio::task::yield_now().await;
        }
        assert!(force_release(&locker, &Key::new("lock:nightly"), None).await.unwrap());
        list(&locker).await.unwrap()
    });
    let next = next.unwrap();
    assert!(lines.contains(&next.fence().to_string()) && next.fence() > guard.fence(), "{lines}");
    next.release().await.unwrap();
    assert!(!force_release(&locker, &Key::new("lock:nightly"), None).await.unwrap());
    assert!(!list(&locker).await.unwrap().contains("nightly"));
    assert!(guard.release().await.is_err());
}

#[test]
fn wrong_arguments_have_their_own_exit_code() {
    for arguments in [
        &["run"][..],
        &["run", "a"],
        &["run", "a", "--lease", "soon", "--", "true"],
        &["run", "a", "--lease", "11y", "--", "true"],
        &["run", "a", "--nonsense", "--", "true"],
        &["run", "a", "--timeout", "-1s", "--", "true"],
        &["run", "a", "--max-hold", "0s", "--", "true"],
        &["run", "a", "--stop-before", "-1s", "--", "true"],
        &["run", "a", "--stop-before", "16s", "--", "true"],
        &["run", "a", "--min-hold", "11y", "--", "true"],
        &["run", "a", "--min-hold", "2m", "--max-hold", "1m", "--", "true"],
        &["run", "a", "--conflict-exit-code", "-1", "--", "true"],
        &["run", "a", "--permits", "0", "--", "true"],
        &["run", "a", "--permits", "-1", "--", "true"],
        &["run", "a", "--permits", "9007199254740992", "--", "true"],
        &["run", "a", "--permits", "2", "--read", "--", "true"],
        &["lead"],
        &["lead", "a"],
        &["lead", "a", "--stop-before", "-1s", "--", "true"],
        &["lead", "a", "--lease", "11y", "--", "true"],
        &["completions"],
        &["completions", "csh"],
        &["man"],
        &["nonsense"],
    ] {
        assert_eq!(binary().args(arguments).output().unwrap().status.code(), Some(64), "{arguments:?}");
    }
    assert_eq!(binary().args(["run", "--help"]).output().unwrap().status.code(), Some(0));
}

/// An unset variable leaves an empty name.
#[test]
fn invalid_lock_names_are_refused() {
    for (name, expected) in
        [("", "the name is empty"), ("a\nb", "is not printable"), ("\u{7f}", "is not printable")]
    {
        for arguments in [&["run", name, "--", "true"][..], &["lead", name, "--", "true"], &["unlock", name]]
        {
            let output = binary().args(arguments).env("LOCKER_URL", "redis://127.0.0.1:1").output().unwrap();
            let reason = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(64), "{arguments:?}: {reason}");
            assert!(reason.contains(expected), "{reason}");
        }
    }
}

#[test]
fn stores_that_protect_nothing_are_refused() {
    for (store, expected) in [
        (None, "LOCKER_URL"),
        (Some("memory://"), "one process"),
        (Some("http://127.0.0.1:5505"), "not a store yet"),
        (Some("nonsense://"), "nonsense"),
    ] {
        for arguments in [
            &["run", "a", "--", "true"][..],
            &["lead", "a", "--", "true"],
            &["ls"],
            &["unlock", "a"],
            &["store", "check"],
        ] {
            let mut command = binary();
            if let Some(store) = store {
                command.env("LOCKER_URL", store);
            }
            let output = command.args(arguments).output().unwrap();
            let reason = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(64), "{arguments:?}: {reason}");
            assert!(reason.contains(expected), "{reason}");
        }
    }
}

/// The variables are two names of one: whoever sets both differently does not know where the locks are.
#[test]
fn variables_of_the_store_must_agree() {
    let (one, other) = ("redis://:hidden@127.0.0.1:1", "redis://:hidden@127.0.0.1:2");
    for arguments in
        [&["serve"][..], &["run", "a", "--", "true"], &["ls"], &["unlock", "a"], &["store", "check"]]
    {
        let output =
            binary().args(arguments).envs([("LOCKER_URL", one), ("LOCKER_STORE", other)]).output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {reason}");
        assert!(reason.contains("LOCKER_URL") && reason.contains("LOCKER_STORE"), "{reason}");
        assert!(!reason.contains("hidden"), "{reason}");
    }
}

/// Each variable alone, both if they agree, and the option if they do not.
#[test]
fn variables_name_the_store_of_all_commands() {
    let (nonsense, other) = (Some("nonsense://"), Some("other://"));
    for arguments in [&["serve", "--zmq", "off"][..], &["run", "a", "--", "true"], &["ls"], &["unlock", "a"]]
    {
        for (url, alias, option) in [
            (nonsense, None, None),
            (None, nonsense, None),
            (nonsense, nonsense, None),
            (other, None, nonsense),
            (Some("third://"), other, nonsense),
        ] {
            let mut command = binary();
            command
                .args(&arguments[..1])
                .args(option.map(|url| format!("--store={url}")))
                .args(&arguments[1..]);
            command.envs(
                [("LOCKER_URL", url), ("LOCKER_STORE", alias)]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            let output = command.env("LOCKER_HTTP", "127.0.0.1:0").output().unwrap();
            let reason = String::from_utf8(output.stderr).unwrap();
            assert!(reason.contains("nonsense"), "{arguments:?} {url:?} {alias:?}: {reason}");
        }
    }
}
