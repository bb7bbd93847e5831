//! A real `redis-server` on a free port of this machine, gone with its value.

use crate::{eventually, missing};
use redis::{Client, Connection, FromRedisValue};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A running server; dropping it kills it and deletes its files.
#[derive(Debug)]
pub struct RedisServer {
    /// A shell that kills the server when its standard input closes, as it does when this process dies. It ends after
    /// the server, so that the port is free.
    keeper: Option<Child>,
    pub(crate) pid: Option<Pid>,
    port: u16,
    arguments: Vec<String>,
    directory: tempfile::TempDir,
}

const KEEPER: &str =
    r#""$0" "$@" >>server.log 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait $! 2>/dev/null"#;

impl RedisServer {
    /// A fresh server: the `redis-server` in the `PATH`, or what the environment variable `LOCKER_TEST_REDIS_SERVER`
    /// names. `None` (or a failure, with `CI=true`) when there is none.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// The same with further arguments, as `["--appendonly", "yes"]`. A `{dir}` in them stands for the server's
    /// directory, a `{port}` for its port.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn with(arguments: &[&str]) -> Option<Self> {
        if Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_err() {
            return missing(&format!("there is no {}: run scripts/setup-redis.sh", program()));
        }
        let directory = tempfile::tempdir().expect("a directory for the server");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let port = if is_set(&arguments, "--cluster-enabled", "yes") { free_pair() } else { free_port() };
        let mut server = Self { keeper: None, pid: None, port, arguments, directory };
        server.launch();
        server.wait_until_up();
        Some(server)
    }

    /// Starts it again, on the same port and files.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.restart_unseen();
        self.wait_until_up();
    }

    /// The same without waiting until it is up.
    pub fn restart_unseen(&mut self) {
        self.kill();
        self.launch();
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.pid = None;
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
    }

    /// Sends a signal, as `Signal::STOP`.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // One that has gone needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A file in its directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.try_connection().expect("a connection to the test's server")
    }

    /// One command, as `server.ask("GET", &["key"])`.
    ///
    /// # Panics
    /// When the server refuses it.
    #[must_use]
    pub fn ask<T: FromRedisValue>(&self, command: &str, arguments: &[&str]) -> T {
        let mut connection = self.connection();
        let answer = redis::cmd(command).arg(arguments).query(&mut connection);
        answer.unwrap_or_else(|error| panic!("{command} {arguments:?}: {error}"))
    }

    fn try_connection(&self) -> Option<Connection> {
        let port = self.plain_port()?;
        let client = Client::open(format!("redis://127.0.0.1:{port}")).ok()?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(5)).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        Some(connection)
    }

    /// A server that speaks only TLS is not asked.
    fn plain_port(&self) -> Option<u16> {
        (!is_set(&self.arguments, "--port", "0")).then_some(self.port)
    }

    fn launch(&mut self) {
        let port = self.port.to_string();
        let directory = self.directory.path().to_string_lossy().into_owned();
        let mut command = Command::new("sh");
        command.current_dir(self.directory.path()).args(["-c", KEEPER, &program()]);
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
        let fill = |argument: &String| argument.replace("{dir}", &directory).replace("{port}", &port);
        command.args(self.arguments.iter().map(fill));
        let mut keeper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell to start the server");
        let mut line = String::new();
        let output = keeper.stdout.take().expect("the shell's output");
        BufReader::new(output).read_line(&mut line).expect("the server's process id");
        self.pid = line.trim().parse().ok().and_then(Pid::from_raw);
        self.keeper = Some(keeper);
    }

    fn wait_until_up(&self) {
        if self.plain_port().is_none() {
            eventually("the server's port", || std::net::TcpStream::connect(("127.0.0.1", self.port)).ok());
            return;
        }
        eventually("the server to answer", || {
            let answer = redis::cmd("PING").query::<String>(&mut self.try_connection()?);
            // One that wants a password has answered as well.
            answer
                .map_or_else(|error| error.code().map(|code| code != "LOADING"), |_| Some(true))
                .filter(|up| *up)
        });
    }
}

fn is_set(arguments: &[String], name: &str, value: &str) -> bool {
    arguments.windows(2).any(|pair| pair[0] == name && pair[1] == value)
}

fn program() -> String {
    std::env::var("LOCKER_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port nobody listens on.
///
/// # Panics
/// When the system has none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A port for a node of a cluster, whose other port is 10,000 higher.
fn free_pair() -> u16 {
    eventually("two free ports", || {
        let port = free_port();
        let other = port.checked_add(10_000)?;
        TcpListener::bind(("127.0.0.1", other)).is_ok().then_some(port)
    })
}
