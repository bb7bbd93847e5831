//! The real binary, started for a test and stopped by its pid.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

pub(crate) use locker_harness::{GENEROUS, free_port, in_time, until};

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locker"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKER_")) {
        command.env_remove(name);
    }
    command
}

/// A running server, killed on drop.
pub(crate) struct Server {
    process: Child,
    pub(crate) line: String,
    errors: PathBuf,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Starts a server on free ports of the loopback interface.
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", "tcp://127.0.0.1:0", more)
    }

    pub(crate) fn start_at(http: &str, zmq: &str, more: &[&str]) -> Self {
        Self::launch(http, zmq, more, "info")
    }

    pub(crate) fn launch(http: &str, zmq: &str, more: &[&str], log: &str) -> Self {
        let mut command = binary();
        command.args(["serve", "--http", http, "--zmq", zmq]).args(more).env("LOCKER_LOG", log);
        Self::started(command)
    }

    pub(crate) fn started(mut command: Command) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let errors = directory.path().join("errors");
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&errors).unwrap());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Self { process, line, errors, _directory: directory };
        assert!(server.line.starts_with("locker "), "not started: {}", server.errors());
        server
    }

    fn after(&self, start: &str) -> &str {
        let rest = self.line.split_once(start).unwrap_or_else(|| panic!("no {start} in {}", self.line)).1;
        rest.split([',', '\n', ' ']).next().unwrap()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.after("http://").parse().unwrap()
    }

    pub(crate) fn zmq(&self) -> String {
        self.after("zmq ").to_owned()
    }

    pub(crate) fn publish(&self) -> String {
        self.after("publish ").to_owned()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the exit status.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        ended(&mut self.process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(crate) fn ended(process: &mut Child) -> ExitStatus {
    locker_harness::eventually("the end of the process", || process.try_wait().unwrap())
}

/// The status, headers and body of an answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(GENEROUS).build().unwrap()
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    Answer { status, headers, body: response.text().await.unwrap() }
}

impl Server {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(client().get(self.url(path))).await
    }

    pub(crate) async fn post(&self, path: &str) -> Answer {
        answer(client().post(self.url(path))).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        answer(client().delete(self.url(path))).await
    }

    /// Starts a waiting call in its own task. Returns when the call waits at `name` behind `before` others.
    pub(crate) async fn queue(&self, path: &str, name: &str, before: u64) -> tokio::task::JoinHandle<Answer> {
        let url = self.url(path);
        let waiter = tokio::spawn(async move { answer(client().post(url)).await });
        self.until_waiting(name, before + 1).await;
        waiter
    }

    pub(crate) async fn until_waiting(&self, name: &str, number: u64) {
        until(&format!("{number} waiting at {name}"), async || {
            let state = self.get(&format!("/v1/{name}")).await.body;
            state.contains(&format!("\"waiting\":{number},"))
                || state.contains(&format!("\"waiting\":{number}}}"))
        })
        .await;
    }

    /// Sends raw bytes and reads until the server closes the connection.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        rest(&mut stream)
    }

    /// Makes the list of names some 800 KB long.
    pub(crate) fn fill_the_list(&self) {
        let mut stream = self.connect();
        let name = "%22".repeat(190);
        let send =
            |number| format!("POST /v1/event/{name}{number:03}/send HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // Without a pause: these servers close a connection after a short idle time.
        stream.write_all((0..1000).map(send).collect::<String>().as_bytes()).unwrap();
        assert_eq!(rest(&mut stream).matches("HTTP/1.1 204 ").count(), 1000);
    }

    /// Requests the list of names this many times, often enough to fill all buffers of the system.
    pub(crate) fn asking_for_much(&self, times: usize) -> TcpStream {
        self.asking_for("/v1", times)
    }

    /// Requests a page this many times, without reading the answers.
    pub(crate) fn asking_for(&self, page: &str, times: usize) -> TcpStream {
        let mut asking = self.connect();
        let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asking.write_all(request.repeat(times).as_bytes()).unwrap();
        asking
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http()).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        stream
    }
}

/// Reads until the other side closes.
pub(crate) fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection stays open"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// A Python program beside these tests, in the environment of `scripts/setup-python.sh`.
pub(crate) fn python(program: &str) -> Command {
    let made = Path::new(env!("CARGO_BIN_EXE_locker")).ancestors().nth(2).unwrap().join("python/bin/python");
    let python = std::env::var_os("LOCKER_TEST_PYTHON").map_or(made, PathBuf::from);
    assert!(python.exists(), "no {}: run scripts/setup-python.sh", python.display());
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/server").join(program));
    command
}

/// The clients in `clients.py`.
pub(crate) struct Python {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = python("clients.py");
        command.args(arguments);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    /// Runs the program, which must succeed, and returns its output.
    pub(crate) fn run(arguments: &[&str]) -> String {
        Self::start(arguments).finish()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn finish(mut self) -> String {
        let mut output = String::new();
        self.output.read_to_string(&mut output).unwrap();
        assert!(ended(&mut self.process).success(), "the client failed, see above");
        output
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
