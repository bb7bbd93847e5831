//! A real `redis-server` on a free port of this machine.

use crate::{eventually, free_port, keeper, keeper::Kept, missing, wall_clock};
use redis::{Client, Connection, FromRedisValue};
use rustix::process::Pid;
pub use rustix::process::Signal;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// A running server. Dropping it kills the server and deletes its files.
#[derive(Debug)]
pub struct RedisServer {
    kept: Kept,
    port: u16,
    arguments: Vec<String>,
    directory: tempfile::TempDir,
    is_sentinel: bool,
    environment: Vec<(&'static str, String)>,
}

const SENTINEL_FILE: &str = "sentinel.conf";

impl RedisServer {
    /// Starts a server: the `redis-server` in the `PATH`, or the program that the environment variable
    /// `LOCKER_TEST_REDIS_SERVER` names. Returns `None` if there is none.
    ///
    /// # Panics
    /// If the server does not come up, or if there is none and `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// Starts a server with further arguments, such as `["--appendonly", "yes"]`. In them, `{dir}` stands for the
    /// server's directory and `{port}` for its port.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn with(arguments: &[&str]) -> Option<Self> {
        Self::in_environment(Vec::new(), arguments)
    }

    /// Starts a server whose wall clock is `behind`, with further arguments. Also returns `None` if there is no
    /// faketime.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn with_clock_behind(behind: Duration, arguments: &[&str]) -> Option<Self> {
        let environment = if behind.is_zero() { Vec::new() } else { clock_behind(behind)? };
        Self::in_environment(environment, arguments)
    }

    fn in_environment(environment: Vec<(&'static str, String)>, arguments: &[&str]) -> Option<Self> {
        if Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_err() {
            return missing(&format!("there is no {}: run scripts/setup-redis.sh", program()));
        }
        let directory = tempfile::tempdir().expect("a directory for the server");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let port = free_port();
        let mut server =
            Self { kept: Kept::default(), port, arguments, directory, is_sentinel: false, environment };
        server.launch();
        server.wait_until_up();
        Some(server)
    }

    /// Starts a sentinel with these lines in its file, which it rewrites.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn sentinel(lines: &str) -> Option<Self> {
        if Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_err() {
            return missing(&format!("there is no {}: run scripts/setup-redis.sh", program()));
        }
        let directory = tempfile::tempdir().expect("a directory for the sentinel");
        let port = free_port();
        let file = format!("port {port}\nbind 127.0.0.1\n{lines}\n");
        std::fs::write(directory.path().join(SENTINEL_FILE), file).expect("the sentinel's file");
        let (arguments, environment) = (Vec::new(), Vec::new());
        let mut sentinel =
            Self { kept: Kept::default(), port, arguments, directory, is_sentinel: true, environment };
        sentinel.launch();
        sentinel.wait_until_up();
        Some(sentinel)
    }

    /// Kills the server and starts it again, on the same port and files.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.restart_unseen();
        self.wait_until_up();
    }

    /// Kills the node of a cluster and starts it again on another port, with its files.
    pub(crate) fn restart_elsewhere(&mut self) {
        self.kill();
        self.port = free_port();
        self.launch();
        self.wait_until_up();
    }

    /// Restarts the server without waiting until it is up.
    pub fn restart_unseen(&mut self) {
        self.kill();
        self.launch();
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.kept.kill();
    }

    /// Sends a signal, such as `Signal::STOP`.
    pub fn signal(&self, signal: Signal) {
        self.kept.signal(signal);
    }

    /// Returns the process of the server, while it runs.
    #[must_use]
    pub fn process(&self) -> Option<Pid> {
        self.kept.pid()
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the path of a file in the server's directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the server's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Opens a connection of the test's own.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.try_connection().expect("a connection to the test's server")
    }

    /// Sends a command, such as `server.ask("GET", &["key"])`, and returns its reply.
    ///
    /// # Panics
    /// If the server refuses it.
    #[must_use]
    pub fn ask<T: FromRedisValue>(&self, command: &str, arguments: &[&str]) -> T {
        let mut connection = self.connection();
        let reply = redis::cmd(command).arg(arguments).query(&mut connection);
        reply.unwrap_or_else(|error| panic!("{command} {arguments:?}: {error}"))
    }

    pub(crate) fn try_connection(&self) -> Option<Connection> {
        let port = self.plain_port()?;
        let client = Client::open(format!("redis://127.0.0.1:{port}")).ok()?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(5)).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        Some(connection)
    }

    /// Returns `None` for a server that speaks only TLS.
    fn plain_port(&self) -> Option<u16> {
        (!is_set(&self.arguments, "--port", "0")).then_some(self.port)
    }

    fn launch(&mut self) {
        let port = self.port.to_string();
        let directory = self.directory.path().to_string_lossy().into_owned();
        let mut command = keeper::shell(&self.directory.path().join("server.log"));
        command.current_dir(self.directory.path()).arg(program());
        if self.is_sentinel {
            command.args([SENTINEL_FILE, "--sentinel"]);
        } else {
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
        }
        command.envs(self.environment.iter().cloned());
        let fill = |argument: &String| argument.replace("{dir}", &directory).replace("{port}", &port);
        command.args(self.arguments.iter().map(fill));
        self.kept.start(command);
    }

    fn wait_until_up(&self) {
        if self.plain_port().is_none() {
            eventually("the server's port", || std::net::TcpStream::connect(("127.0.0.1", self.port)).ok());
            return;
        }
        eventually("the server's reply", || {
            let reply = redis::cmd("PING").query::<String>(&mut self.try_connection()?);
            // A server that wants a password is up as well.
            reply
                .map_or_else(|error| error.code().map(|code| code != "LOADING"), |_| Some(true))
                .filter(|up| *up)
        });
    }
}

fn is_set(arguments: &[String], name: &str, value: &str) -> bool {
    arguments.windows(2).any(|pair| pair[0] == name && pair[1] == value)
}

/// Returns the environment that sets the wall clock of a server back by `behind`.
fn clock_behind(behind: Duration) -> Option<Vec<(&'static str, String)>> {
    let mut environment = wall_clock(-behind.as_secs().cast_signed())?;
    // The allocator of the C library: the server's own one asks for the time before the library is ready.
    environment[0].1 += " libc.so.6";
    Some(environment)
}

fn program() -> String {
    std::env::var("LOCKER_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
