//! A real MariaDB or MySQL server on a free port of this machine.

use crate::{GENEROUS, Signal, ensemble, eventually_within, free_port, keeper, keeper::Kept, missing};
use rustix::process::{Pid, getuid};
use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The user `nobody`: the server refuses to run as root.
const NOBODY: u32 = 65_534;

/// A running server, with the database `locker` and the user `locker`, who has all rights and no password. Dropping it
/// kills the server and deletes its files.
#[derive(Debug)]
pub struct MysqlServer {
    program: PathBuf,
    is_mariadb: bool,
    kept: Kept,
    port: u16,
    settings: Vec<String>,
    directory: tempfile::TempDir,
}

/// What the server runs when it starts.
const INIT: &str = "CREATE DATABASE IF NOT EXISTS locker;
CREATE USER IF NOT EXISTS 'locker'@'%';
GRANT ALL ON *.* TO 'locker'@'%' WITH GRANT OPTION;
";

impl MysqlServer {
    /// Starts a server: the `mariadbd` in the `PATH` or in `/usr/sbin`, or the program that the environment variable
    /// `LOCKER_TEST_MYSQLD` names, which may be MySQL's. Returns `None` if there is none.
    ///
    /// # Panics
    /// If the server does not come up, or if there is no program and `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// Starts a server whose files are on the disk, for measurements.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn on_disk() -> Option<Self> {
        Self::within(tempfile::tempdir().expect("a directory for the server"), &[])
    }

    /// Starts a server with further settings, such as `["--innodb-flush-log-at-trx-commit=0"]`. In them, `{dir}`
    /// stands for the server's directory.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn with(settings: &[&str]) -> Option<Self> {
        Self::within(ensemble::directory(), settings)
    }

    fn within(directory: tempfile::TempDir, settings: &[&str]) -> Option<Self> {
        let Some(program) = program() else {
            return missing("there is no mariadbd: run scripts/setup-mysql.sh");
        };
        let version = Command::new(&program).arg("--version").output().expect("the version of the server");
        let is_mariadb = String::from_utf8_lossy(&version.stdout).contains("MariaDB");
        let own = |path: &Path| {
            if getuid().is_root() {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("a file of the server's user");
            }
        };
        let init = directory.path().join("init.sql");
        fs::write(&init, INIT).expect("what the server runs");
        own(directory.path());
        own(&init);
        let settings = settings.iter().map(ToString::to_string).collect();
        let mut server =
            Self { program, is_mariadb, kept: Kept::default(), port: free_port(), settings, directory };
        server.install();
        server.launch();
        server.wait_until_up(true);
        Some(server)
    }

    /// Returns whether the server is MariaDB's.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.is_mariadb
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the database `locker`, without parameters.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("locker")
    }

    /// Returns the URL of a database.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://locker@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the server's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs statements in the database `locker`. Returns the rows as lines, with tabs between columns.
    ///
    /// # Panics
    /// If a statement fails.
    #[expect(clippy::must_use_candidate, reason = "most statements have no rows")]
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// Runs statements, which may fail.
    ///
    /// # Errors
    /// What the server says to the first that fails.
    ///
    /// # Panics
    /// If there is no client.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        let output = self.client("locker").args(["-e", statements]).output().expect("the client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Returns a client that reads statements from its standard input.
    #[must_use]
    pub fn client(&self, database: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-N", "-B", "-h", "127.0.0.1", "-u", "locker"]);
        client.args(["-P", &self.port.to_string(), database]);
        client
    }

    /// Kills the server. What it has not written to the disk is lost only if it was told not to wait for it.
    pub fn kill_nine(&mut self) {
        self.kept.kill();
    }

    /// Starts a server that was killed.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_again(&mut self) {
        self.launch();
        self.wait_until_up(false);
    }

    /// Kills the server and starts it again, on the same port and files. All connections end.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.kept.kill();
        self.start_again();
    }

    /// Returns what a crash of the machine at this moment would leave on the disk, of a server that does not wait for
    /// it.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    pub fn save_disk(&self) -> tempfile::TempDir {
        let saved = tempfile::tempdir_in(self.directory.path()).expect("a folder");
        self.signal(Signal::STOP);
        copy(&self.directory.path().join("data"), saved.path());
        self.signal(Signal::CONT);
        saved
    }

    /// Kills the server and starts it again with what was on the disk.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn crash_to(&mut self, saved: tempfile::TempDir) {
        self.kept.kill();
        let data = self.directory.path().join("data");
        fs::remove_dir_all(&data).expect("the files of the server");
        copy(saved.path(), &data);
        drop(saved);
        self.start_again();
    }

    /// Sends a signal to the server, such as `Signal::STOP`.
    pub fn signal(&self, signal: Signal) {
        self.kept.signal(signal);
    }

    /// Returns the process of the server.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        self.kept.pid().into_iter().collect()
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        if getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
    }

    fn data(&self) -> String {
        format!("--datadir={}", self.directory.path().join("data").display())
    }

    /// Makes the files of a new server.
    fn install(&self) {
        let mut install = if self.is_mariadb {
            let mut install = Command::new("mariadb-install-db");
            install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            install
        } else {
            let mut install = Command::new(&self.program);
            install.args(["--no-defaults", "--initialize-insecure", "--secure-file-priv=NULL"]);
            install
        };
        self.prepare(&mut install);
        install.arg(format!("--tmpdir={}", self.directory.path().display()));
        let output = install.arg(self.data()).output().expect("a new server");
        succeeded("a new server", &output);
    }

    fn launch(&mut self) {
        let mut command = keeper::shell(&self.directory.path().join("server.log"));
        self.prepare(&mut command);
        let directory = self.directory.path().to_string_lossy().into_owned();
        command.arg(&self.program).arg("--no-defaults").arg(self.data());
        command.args([format!("--port={}", self.port), format!("--socket={directory}/socket")]);
        command.arg(format!("--tmpdir={directory}"));
        command.args([format!("--pid-file={directory}/pid"), format!("--init-file={directory}/init.sql")]);
        command.args(["--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args([
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-method=fsync",
            "--max-connections=400",
        ]);
        if self.is_mariadb {
            command.arg("--innodb-log-file-size=16M");
        } else {
            command.args(["--innodb-redo-log-capacity=32M", "--mysqlx=OFF", "--secure-file-priv=NULL"]);
        }
        command.args(self.settings.iter().map(|setting| setting.replace("{dir}", &directory)));
        self.kept.start(command);
    }

    /// The port of a new server may have been taken meanwhile.
    fn wait_until_up(&mut self, is_new: bool) {
        let mut launched = 0;
        eventually_within(4 * GENEROUS, "the server's reply", || {
            if self.try_sql("SELECT 1").is_ok() {
                return Some(());
            }
            if self.kept.has_ended() {
                self.kept.kill();
                launched += 1;
                let log = self.directory.path().join("server.log");
                assert!(launched < 5, "no start:\n{}", fs::read_to_string(log).unwrap_or_default());
                if is_new {
                    self.port = free_port();
                }
                self.launch();
            }
            None
        });
    }
}

fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("LOCKER_TEST_MYSQLD") {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join("mariadbd")).find(|program| program.exists())
}

/// Copies files with their owners.
fn copy(from: &Path, to: &Path) {
    let (mut source, target) = (from.as_os_str().to_owned(), to);
    source.push("/.");
    fs::create_dir_all(target).expect("a folder");
    let copied = Command::new("cp").arg("-a").arg(source).arg(target).output().expect("cp");
    succeeded("cp", &copied);
}

fn succeeded(what: &str, output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
}
