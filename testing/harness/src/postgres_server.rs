//! A real PostgreSQL server on a free port of this machine.

use crate::{GENEROUS, Signal, eventually, eventually_within, free_port, keeper, keeper::Kept, missing};
use rustix::process::{Pid, getuid};
use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The user `nobody`: the programs of PostgreSQL refuse to run as root.
const NOBODY: u32 = 65_534;

/// A running server, with the superuser `locker` and the database `locker`. Dropping it stops the server and deletes
/// its files.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    kept: Kept,
    port: u16,
    settings: Vec<String>,
    directory: tempfile::TempDir,
}

/// The server may be stopped by a signal. `QUIT` is an immediate stop, which a start recovers from as from a crash.
const STOPPED: &str = "kill -CONT $! 2>/dev/null; kill -QUIT $! 2>/dev/null";

impl PostgresServer {
    /// Starts a server without `fsync`: with the newest programs in `/usr/lib/postgresql`, in the `PATH`, or in the
    /// folder that the environment variable `LOCKER_TEST_POSTGRES_BIN` names. Returns `None` if there are none.
    ///
    /// # Panics
    /// If the server does not come up, or if there are no programs and `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&["fsync=off"])
    }

    /// Starts a server with further settings, such as `["fsync=on", "max_connections=20"]`. In them, `{dir}` stands
    /// for the server's directory.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn with(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            return missing("there is no initdb: run scripts/setup-postgres.sh");
        };
        let mut server = Self::new(programs, settings.iter().map(ToString::to_string).collect());
        let initdb = server
            .program("initdb")
            .args([
                "-D",
                "data",
                "-U",
                "locker",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ])
            .output();
        succeeded("initdb", &initdb.expect("initdb"));
        server.launch();
        server.wait_until_up(true);
        let _ = server.run_psql("postgres", "CREATE DATABASE locker");
        Some(server)
    }

    /// Starts a standby of this server, with the same settings: it repeats the writes of this server, a moment later.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn standby(&self) -> Self {
        let mut standby = Self::new(self.programs.clone(), self.settings.clone());
        let copy = standby
            .program("pg_basebackup")
            .args(["-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "locker"])
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .output();
        succeeded("pg_basebackup", &copy.expect("pg_basebackup"));
        standby.launch();
        standby.wait_until_up(true);
        standby
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    /// If it is none.
    pub fn promote(&self) {
        assert_eq!(self.psql("SELECT pg_promote()"), "t");
    }

    fn new(programs: PathBuf, settings: Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the server");
        if getuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("a directory of the server's user");
        }
        Self { programs, kept: Kept::default(), port: free_port(), settings, directory }
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server, without parameters.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://locker@127.0.0.1:{}/locker", self.port)
    }

    /// Returns the server's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs statements with a connection of their own. Returns the rows as lines, with `|` between columns.
    ///
    /// # Panics
    /// If a statement fails.
    #[expect(clippy::must_use_candidate, reason = "most statements have no rows")]
    pub fn psql(&self, sql: &str) -> String {
        succeeded(sql, &self.run_psql("locker", sql))
    }

    /// Runs statements, which may fail. Returns the error messages of the first that does.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        let output = self.run_psql("locker", sql);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Returns a `psql` that reads statements from its standard input.
    #[must_use]
    pub fn psql_command(&self) -> Command {
        let mut psql = self.program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d"])
            .arg(self.url());
        psql
    }

    /// Stops the server and starts it again, on the same port and files. All connections end.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.stop(Signal::INT);
        self.start_again();
    }

    /// Starts a server that was stopped or killed.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_again(&mut self) {
        self.launch();
        self.wait_until_up(false);
    }

    /// Stops the server without a checkpoint, as a crash does.
    pub fn stop_immediately(&mut self) {
        self.stop(Signal::QUIT);
    }

    /// Kills the server. Its connections end shortly after.
    pub fn kill_nine(&mut self) {
        self.stop(Signal::KILL);
    }

    /// Sends a signal to the main process of the server, such as `Signal::STOP`. The connections continue.
    pub fn signal(&self, signal: Signal) {
        self.kept.signal(signal);
    }

    /// Returns the processes of the server: the main one, and those that it has started so far.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        // A server that recovers refuses the question.
        let others = self.try_psql("SELECT pid FROM pg_stat_activity").unwrap_or_default();
        let others = others.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        self.kept.pid().into_iter().chain(others).collect()
    }

    fn stop(&mut self, signal: Signal) {
        self.signal(Signal::CONT);
        self.signal(signal);
        if signal == Signal::INT && self.kept.pid().is_some() {
            // The shell would stop the server at once.
            eventually("the server's end", || (!self.file("data/postmaster.pid").exists()).then_some(()));
        }
        self.kept.end();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        if getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
    }

    fn run_psql(&self, database: &str, sql: &str) -> Output {
        let url = format!("postgres://locker@127.0.0.1:{}/{database}", self.port);
        let mut psql = self.program("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "VERBOSITY=verbose",
            "-d",
            &url,
            "-c",
            sql,
        ]);
        psql.output().expect("psql")
    }

    fn launch(&mut self) {
        let mut command = keeper::shell_with(&self.file("server.log"), STOPPED);
        self.prepare(&mut command);
        command.arg(self.programs.join("postgres")).args(["-D", "data", "-k", ""]);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        // Files in the directory of the server, which a killed server leaves nowhere else.
        command.args(["-c", "dynamic_shared_memory_type=mmap"]);
        let directory = self.directory.path().to_string_lossy().into_owned();
        for setting in &self.settings {
            command.arg("-c").arg(setting.replace("{dir}", &directory));
        }
        self.kept.start(command);
    }

    /// A killed server leaves connections behind that hinder the next start for some milliseconds. The port of a new
    /// server may have been taken meanwhile.
    fn wait_until_up(&mut self, is_new: bool) {
        // It recovers first, with all the disk's other work in its way.
        eventually_within(4 * GENEROUS, "the server's reply", || {
            if self.run_psql("postgres", "SELECT 1").status.success() {
                return Some(());
            }
            if self.kept.has_ended() {
                self.stop(Signal::QUIT);
                if is_new {
                    self.port = free_port();
                }
                self.launch();
            }
            None
        });
    }
}

/// Returns the folder of the server's programs.
fn programs() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("LOCKER_TEST_POSTGRES_BIN") {
        return Some(folder.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, folder)| folder.join("initdb").exists())
        .max();
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
    };
    newest.map(|(_, folder)| folder).or_else(in_path)
}

fn succeeded(what: &str, output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    #[test]
    fn server_that_could_not_start_at_first_is_started_again() {
        let Some(mut server) = PostgresServer::start() else { return };
        server.stop_immediately();
        let log = server.file("server.log");
        let port = TcpListener::bind(("127.0.0.1", server.port())).expect("the server's port");
        thread::scope(|scope| {
            let start = scope.spawn(|| server.start_again());
            eventually("a failed start", || {
                fs::read_to_string(&log).ok()?.contains("could not create any TCP/IP sockets").then_some(())
            });
            drop(port);
            start.join().expect("a second start");
        });
        assert_eq!(server.psql("SELECT 1"), "1");
    }
}
