//! What packages contain: completions, manual pages, the unit of systemd, and the health check of the image.

use crate::support::{GENEROUS, Server, binary, ended, free_port};
use locker_harness::until;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// A supervisor that listens for notifications.
struct Supervisor {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Supervisor {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(GENEROUS)).unwrap();
        Self { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    fn told(&self) -> String {
        let mut bytes = [0; 100];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn was_told_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        self.socket.recv(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

fn serve(http: &str) -> Command {
    let mut command = binary();
    command.args(["serve", "--http", http, "--zmq", "off"]);
    command
}

#[tokio::test]
async fn supervisor_learns_of_start_and_end() {
    let supervisor = Supervisor::new();
    let mut command = serve("127.0.0.1:0");
    command.env("NOTIFY_SOCKET", supervisor.path());
    let mut server = Server::started(command);
    assert_eq!(supervisor.told(), "READY=1\n");
    assert_eq!(server.get("/readyz").await.status, 200);
    let waiter = server.queue("/v1/event/e/wait", "event/e", 0).await;
    server.signal(Signal::TERM);
    assert_eq!(supervisor.told(), "STOPPING=1\n");
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(waiter.await.unwrap().status, 503);
    assert!(supervisor.was_told_nothing());
}

#[test]
fn failed_start_is_not_announced() {
    let taken = Server::start(&[]);
    let supervisor = Supervisor::new();
    let mut command = serve(&taken.http().to_string());
    command.env("NOTIFY_SOCKET", supervisor.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(supervisor.was_told_nothing());
}

#[tokio::test]
async fn supervisor_that_is_gone_does_not_end_the_server() {
    let mut command = serve("127.0.0.1:0");
    command.env("NOTIFY_SOCKET", "/nowhere/at/all");
    let server = Server::started(command);
    assert_eq!(server.get("/readyz").await.status, 200);
    until("a warning", async || server.errors().contains("NOTIFY_SOCKET")).await;
}

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The values of a setting in the unit.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// Its command line and its variables, in the folders that systemd would have made.
#[test]
fn unit_starts_the_server() {
    let unit = file("packaging/locker.service");
    assert_eq!(settings(&unit, "Type"), ["notify"]);
    assert_eq!(settings(&unit, "LoadCredential"), ["tokens:/etc/locker/tokens"]);
    let supervisor = Supervisor::new();
    let (folder, http) = (supervisor.folder.path(), format!("127.0.0.1:{}", free_port()));
    fs::write(folder.join("tokens"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::create_dir(folder.join("locker")).unwrap();
    let placed = |text: &str| {
        ["%d", "%S"].iter().fold(text.to_owned(), |text, place| text.replace(place, folder.to_str().unwrap()))
    };
    let [line] = settings(&unit, "ExecStart")[..] else { panic!("{unit}") };
    let line = placed(line.strip_prefix("/usr/bin/locker ").unwrap());
    let mut command = binary();
    command.args(line.split(' ')).args(["--http", &http, "--zmq", "off"]);
    for variable in settings(&unit, "Environment") {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, placed(value));
    }
    let mut process = command.env("NOTIFY_SOCKET", supervisor.path()).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(supervisor.told(), "READY=1\n");
    let healthy = binary().args(["health", "--http", &http]).status().unwrap();
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert_eq!((ended(&mut process).code(), healthy.code()), (Some(0), Some(0)));
    let files = fs::read_dir(folder.join("locker")).unwrap().count();
    assert!(files > 0, "the state is in the folder of the unit");
}

/// The commands of the image are those of the program.
#[test]
fn image_runs_and_checks_the_server() {
    let dockerfile = file("Dockerfile");
    let command = |start: &str| -> Vec<String> {
        let line = dockerfile.lines().find_map(|line| line.trim().strip_prefix(start));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no {start}"))).unwrap()
    };
    assert_eq!(command("ENTRYPOINT "), ["/usr/local/bin/locker"]);
    assert_eq!(command("CMD "), ["serve"]);
    let check = dockerfile.split_once("HEALTHCHECK ").unwrap().1.split_once("CMD ").unwrap().1;
    let check: Vec<String> = serde_json::from_str(check.lines().next().unwrap()).unwrap();
    assert_eq!(check, ["/usr/local/bin/locker", "health"]);
    assert!(dockerfile.lines().any(|line| line.starts_with("USER ")), "it does not run as root");
}

/// Generates the completions of a shell into a file.
fn completions(shell: &str) -> (TempDir, PathBuf) {
    let output = binary().args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("_locker");
    fs::write(&path, output.stdout).unwrap();
    (folder, path)
}

/// Runs a script of a shell, which must succeed, and returns its lines.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && log.is_empty(), "{command:?}: {log}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    let (_folder, path) = completions("bash");
    let complete = |words: &[&str]| {
        let script = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            [ "$(complete -p locker)" ] && _locker locker "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        lines(bash.args(["--norc", "-c", script, "bash"]).arg(&path).args(words))
    };
    assert_eq!(complete(&["locker", "comp"]), ["completions"]);
    assert_eq!(complete(&["locker", "completions", ""]).iter().filter(|word| *word == "bash").count(), 1);
    assert_eq!(complete(&["locker", "run", "--perm"]), ["--permits"]);
    assert_eq!(complete(&["locker", "store", "c"]), ["check"]);
    assert_eq!(complete(&["locker", "health", "--u"]), ["--url"]);
}

#[test]
fn zsh_accepts_the_completions() {
    let (folder, path) = completions("zsh");
    assert_eq!(lines(Command::new("zsh").arg("-nf").arg(&path)), [""; 0]);
    let script = r#"fpath=("$1" $fpath); autoload -Uz compinit; compinit -u -d "$1/dump"; echo ${_comps[locker]}
        autoload +X _locker; echo $+functions[_locker]"#;
    let loaded = lines(Command::new("zsh").args(["-f", "-c", script, "zsh"]).arg(folder.path()));
    assert_eq!(loaded, ["_locker", "1"]);
}

#[test]
fn fish_completes_commands_and_options() {
    let (folder, path) = completions("fish");
    let complete = |line: &str| {
        let mut fish = Command::new("fish");
        fish.env("HOME", folder.path())
            .env("XDG_CONFIG_HOME", folder.path())
            .env("XDG_DATA_HOME", folder.path());
        fish.args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]).arg(&path).arg(line);
        let words = lines(&mut fish).into_iter();
        words.map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(complete("locker comp"), ["completions"]);
    assert_eq!(complete("locker run --perm"), ["--permits"]);
    assert_eq!(complete("locker store ch"), ["check"]);
}

#[test]
fn closed_output_is_a_failure_of_completions() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let code = binary().args(["completions", "bash"]).stdout(writer).status().unwrap().code();
    assert_eq!(code, Some(1));
}

/// Every command has a page, and a formatter finds no error in it.
#[test]
fn manual_pages_describe_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made/man");
    let mut man = binary();
    man.arg("man").arg(&made).env("LOCKER_URL", "redis://:sekret@127.0.0.1");
    assert_eq!(lines(&mut man), [""; 0]);
    let mut names: Vec<_> =
        fs::read_dir(&made).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let commands = [
        "completions",
        "explain",
        "health",
        "lead",
        "ls",
        "man",
        "run",
        "serve",
        "store-check",
        "store-sql",
        "store",
        "unlock",
    ];
    let expected = commands.map(|command| format!("locker-{command}.1"));
    let mut expected: Vec<_> = expected.into_iter().chain(["locker.1".to_owned()]).collect();
    expected.sort();
    assert_eq!(names, expected);
    for name in &names {
        let lint =
            Command::new("mandoc").args(["-T", "lint", "-W", "error"]).arg(made.join(name)).output().unwrap();
        assert!(lint.status.success(), "{name}: {}", String::from_utf8_lossy(&lint.stdout));
        let page = fs::read_to_string(made.join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && !page.contains("sekret"), "{page}");
    }
    let page = |name: &str| fs::read_to_string(made.join(name)).unwrap();
    assert!(page("locker-run.1").contains("LOCKER_PERMITS"), "options have variables");
    assert!(page("locker-serve.1").contains("LOCKER_TOKEN_FILE"));
    let below_a_file = made.join("locker.1/below");
    let output = binary().arg("man").arg(&below_a_file).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && log.contains("locker.1/below"), "{log}");
}
