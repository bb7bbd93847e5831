//! Which directories are refused, and what a full disk, a reboot or the end of a resource does.

use super::{Dir, exchange, processes::command, read, sweep};
use crate::{Files, folder::Host};
use locker_cas::{Backend, Outcome, Write, contract::write};
use locker_core::{blocking::block_on, error::ErrorKind, key::Key, store::opening::Opening};
use locker_harness::{eventually, missing};
use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Output},
};

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

fn time(files: &Files) -> u64 {
    files.time().now.as_micros()
}

fn another_boot(wall_is_later: i64) -> Host {
    let host = Host::this().unwrap();
    Host {
        boot: "01234567-89ab-cdef-0123-456789abcdef".into(),
        wall: host.wall.saturating_add_signed(wall_is_later * 1_000_000),
        ..host
    }
}

/// Opens a directory after its last process has ended, which is noticed by the background thread.
fn reopened(dir: &Dir, host: &Host) -> Files {
    eventually("the directory to be free", || dir.open_as(host).ok())
}

#[test]
fn a_reboot_ends_all_values_and_fences_rise() {
    for wall_is_later in [3_600, -3_600] {
        let (dir, key) = (Dir::new(), Key::new("key"));
        let files = dir.open();
        exchange(&files, &key, 0, b"x");
        let (version, before) = (read(&files, &key).0, files.fence_floor());
        drop(files);
        let files = reopened(&dir, &another_boot(wall_is_later));
        assert_eq!(read(&files, &key), (0, None));
        assert!(files.fence_floor() > before && time(&files) > before, "{wall_is_later}");
        assert!(matches!(exchange(&files, &key, version, b"y"), Outcome::Differs { version: 0, .. }));
        let other = dir.open_as(&another_boot(7_200)).unwrap();
        assert!(time(&other).abs_diff(time(&files)) < 60_000_000, "two clocks of one boot");
        sweep(&files).unwrap();
        let boots = fs::read_dir(&dir.0).unwrap();
        let boots = boots.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count();
        assert_eq!(boots, 1, "the files of the boot before are left");
    }
}

/// The floor rises while a store is open, and one file of it is left.
#[test]
fn floors_rise() {
    let dir = Dir::new();
    let files = dir.open();
    let floors = || {
        let names =
            fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter_map(|name| name.strip_prefix("floor.").map(|floor| floor.parse::<u64>().unwrap()))
            .collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let (floors, now) = (floors(), time(&files));
        assert!(floors.len() == 1 && floors[0] > now, "{floors:?} at {now}");
        files.folder.pauses.ahead.fetch_add(100_000_000, std::sync::atomic::Ordering::Relaxed);
        sweep(&files).unwrap();
    }
}

#[test]
fn processes_of_two_kernels_or_clocks_are_refused() {
    let dir = Dir::new();
    let files = dir.open();
    let error = dir.open_as(&another_boot(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.message().contains("boot id"), "{error}");
    let host = Host { time_namespace: "time:[1]".into(), ..Host::this().unwrap() };
    let error = dir.open_as(&host).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.message().contains("time namespace"), "{error}");
    drop(files);
}

#[test]
fn unsuitable_directories_are_refused() {
    let dir = Dir::new();
    fs::write(&dir.0, "").unwrap();
    let refused = |path: &Path| {
        let error =
            block_on(Files::open(&format!("file://{}", path.display()), &Opening::default())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        error.message().to_owned()
    };
    assert!(refused(&dir.0).contains("not a directory"), "{}", refused(&dir.0));
    assert!(refused(&dir.0.join("sub")).contains("not a directory"));
    assert!(refused(Path::new("relative/dir")).starts_with("the host in the file URL"));
    fs::remove_file(&dir.0).unwrap();
    fs::create_dir(&dir.0).unwrap();
    fs::set_permissions(&dir.0, Permissions::from_mode(0o555)).unwrap();
    let mut opening = command("open", &dir.0);
    if is_root() {
        // A user that may not write there, started by one that may everywhere.
        opening.uid(65_534);
    }
    let (_, text) = output(&mut opening);
    assert!(text.contains("refused misused") && text.contains("permissions"), "{text}");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn files_have_the_permissions_of_the_directory() {
    for (of_directory, folders, files) in
        [(None, 0o700, 0o600), (Some(0o2770), 0o770, 0o660), (Some(0o755), 0o750, 0o640)]
    {
        let dir = Dir::new();
        if let Some(mode) = of_directory {
            fs::create_dir(&dir.0).unwrap();
            fs::set_permissions(&dir.0, Permissions::from_mode(mode)).unwrap();
        }
        let opened = dir.open();
        exchange(&opened, &Key::new("key"), 0, b"x");
        let boot = dir.0.join(Host::this().unwrap().boot);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = ["", "logs", "inbox", "new"].map(|name| mode(&boot.join(name)));
        assert_eq!(modes, [folders; 4], "{of_directory:?}");
        let socket = format!("inbox/{:08x}", opened.inbox());
        let modes =
            [format!("logs/{}", dir.logs()[0]), socket, "clock".into()].map(|name| mode(&boot.join(name)));
        assert_eq!(modes, [files; 3], "{of_directory:?}");
        assert_eq!(mode(&dir.0), of_directory.map_or(0o700, |mode| mode & 0o777));
    }
}

#[test]
fn a_removed_directory_is_noticed() {
    let (dir, key) = (Dir::new(), Key::new("key"));
    let files = dir.open();
    exchange(&files, &key, 0, b"x");
    // The first sweep may create a file there meanwhile.
    while let Err(error) = fs::remove_dir_all(&dir.0) {
        assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
    }
    for value in [None, Some(b"y".to_vec()), None] {
        let mut written = write(&key, 0, b"");
        written.value = value;
        let error = block_on(files.exchange(written)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("removed"), "{error}");
    }
}

/// Two processes with one path had two stores, and each held what the other one held.
#[test]
fn a_moved_directory_is_noticed() {
    for point in [None, Some("before the write"), Some("after the write")] {
        let (dir, key) = (Dir::new(), Key::new("key"));
        let (files, moved) = (dir.open(), Dir(dir.0.with_extension("moved")));
        exchange(&files, &key, 0, b"held by one");
        let (from, to) = (dir.0.clone(), moved.0.clone());
        let act = move || fs::rename(&from, &to).unwrap();
        match point {
            Some(point) => drop(files.folder.pauses.once(point, act)),
            None => act(),
        }
        let error = block_on(files.exchange(write(&Key::new("next"), 0, b"x"))).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Unavailable && error.message().contains("moved"),
            "{point:?} {error}"
        );
        assert!(!error.is_certain(), "{point:?} {error}");
        let second = dir.open();
        exchange(&second, &key, 0, b"held by another");
        for value in [None, Some(b"y".to_vec())] {
            let renewal = Write { value, ..write(&key, 0, b"") };
            let error = block_on(files.exchange(renewal)).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unavailable && error.message().contains("another one"),
                "{error}"
            );
        }
        assert!(sweep(&files).is_err());
        drop(second);
        fs::remove_dir_all(&dir.0).unwrap();
        fs::rename(&moved.0, &dir.0).unwrap();
        assert_eq!(
            read(&files, &key).1.as_deref(),
            Some(&b"held by one"[..]),
            "a directory that was moved back"
        );
    }
}

/// Fills a file system of 1 MiB.
pub(super) fn fill(files: &Files) {
    let key = Key::new("kept");
    exchange(files, &key, 0, b"former");
    for round in 0..100 {
        // Replaced values fill no disk.
        let version = read(files, &Key::new("replaced")).0;
        let outcome = exchange(files, &Key::new("replaced"), version, &vec![round; 100_000]);
        assert!(matches!(outcome, Outcome::Matched { .. }));
    }
    let mut added = 0;
    let error = loop {
        match block_on(files.exchange(write(&Key::new(&format!("filler {added}")), 0, &vec![1; 50_000]))) {
            Ok(outcome) => assert!(matches!(outcome, Outcome::Matched { .. })),
            Err(error) => break error,
        }
        added += 1;
        assert!(added < 100);
    };
    assert!(error.is_certain() && error.kind() == ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("free space"), "{error}");
    assert!(added > 4, "{added}");
    for number in 0..added {
        assert_eq!(read(files, &Key::new(&format!("filler {number}"))).1, Some(vec![1; 50_000]));
    }
    assert_eq!(read(files, &Key::new(&format!("filler {added}"))), (0, None));
    assert_eq!(read(files, &key).1.as_deref(), Some(&b"former"[..]));
    let version = read(files, &key).0;
    let error = block_on(files.exchange(write(&key, version, &vec![2; 500_000]))).unwrap_err();
    assert!(error.is_certain(), "{error}");
    assert_eq!(read(files, &key), (version, Some(b"former".to_vec())));
    println!("was filled");
}

#[test]
fn a_full_disk_loses_nothing() {
    let dir = Dir::new();
    fs::create_dir(&dir.0).unwrap();
    let inner = command("fill", &dir.0);
    let mut outer = Command::new("unshare");
    let script =
        format!("mount -t tmpfs -o size=1m tmpfs '{}' || exit 77; exec \"$0\" \"$@\"", dir.0.display());
    outer.args(["-Urm", "sh", "-c", &script]).arg(inner.get_program()).args(inner.get_args());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(ended) = outer.output() else { return missing("unshare").unwrap_or_default() };
    let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(77) || text.contains("unshare failed") {
        return missing("mounts in a namespace of the user").unwrap_or_default();
    }
    assert!(ended.status.success() && text.contains("was filled"), "{text}");
}

/// Opens all logs with fewer files than logs.
pub(super) fn use_up_files(files: &Files) {
    let mut refused = 0;
    for number in 0..1_000 {
        let key = Key::new(&number.to_string());
        if let Err(error) = block_on(files.exchange(write(&key, 0, b"x"))) {
            assert!(error.is_certain() && error.message().contains("open files"), "{error}");
            refused += 1;
        }
    }
    println!("refused {refused}");
    assert!((1..1_000).contains(&refused));
}

#[test]
fn too_few_files_are_an_error_that_says_so() {
    let dir = Dir::new();
    let inner = command("use files", &dir.0);
    let mut outer = Command::new("sh");
    outer.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""]).arg(inner.get_program()).args(inner.get_args());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (ended, text) = output(&mut outer);
    assert!(
        ended.status.success() && text.contains("refused "),
        "{text} {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
