//! Real etcd clusters on free ports of this machine.

use crate::{Fault, GENEROUS, Proxy, eventually, free_port, keeper::spawn, missing, signals};
use rustix::process::{Pid, Signal};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long before the end of a wait its failure is explained.
const SHORTLY: Duration = Duration::from_secs(3);

/// A running cluster. Dropping it kills its members and deletes their files.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
    scheme: &'static str,
    /// Whether members reach each other through proxies.
    has_proxies: bool,
}

#[derive(Debug)]
struct Member {
    /// A shell that kills the server when its standard input closes, which it does when this process dies. The shell
    /// ends after the server, so that the ports are free.
    keeper: Option<Child>,
    pid: Option<Pid>,
    client: u16,
    peer: u16,
    /// Where the other members reach this one, if not at `peer`.
    proxy: Option<Proxy>,
}

const KEEPER: &str =
    r#""$0" "$@" >>"$LOG" 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait $! 2>/dev/null"#;

impl EtcdCluster {
    /// Starts a cluster of so many members and waits until it has a leader: the `etcd` in the `PATH`, or the program
    /// that the environment variable `LOCKER_TEST_ETCD` names. Returns `None` if there is none.
    ///
    /// # Panics
    /// If the cluster does not come up, or if there is no program and `CI=true`.
    #[must_use]
    pub fn start(size: usize) -> Option<Self> {
        Self::with(size, &[])
    }

    /// Starts a cluster with further arguments for each member, such as `["--max-txn-ops", "10"]`. In them, `{dir}`
    /// stands for the directory of the cluster. With the argument `--cert-file` it speaks TLS, and no leader is waited
    /// for: there are `{dir}/cert.pem`, a certificate for 127.0.0.1 that is its own authority, and `{dir}/key.pem`.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn with(size: usize, arguments: &[&str]) -> Option<Self> {
        Self::build(size, arguments, false)
    }

    /// Starts a cluster whose members can be [cut off](Self::cut_off) from each other.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn divisible(size: usize) -> Option<Self> {
        Self::build(size, &[], true)
    }

    fn build(size: usize, arguments: &[&str], has_proxies: bool) -> Option<Self> {
        let version = Command::new(program()).arg("--version").stdout(Stdio::null()).status();
        if version.is_err() {
            return missing(&format!("there is no {}: run scripts/setup-etcd.sh", program()));
        }
        let directory = directory();
        let path = directory.path().to_string_lossy().into_owned();
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.replace("{dir}", &path)).collect();
        let scheme =
            if arguments.iter().any(|argument| argument == "--cert-file") { "https" } else { "http" };
        if scheme == "https" && !certify(directory.path()) {
            return missing("there is no openssl");
        }
        let mut cluster = Self { members: Vec::new(), directory, arguments, scheme, has_proxies };
        while !cluster.comes_up(size) {}
        Some(cluster)
    }

    /// Starts the members on new ports, and waits for them. Returns `false` if another program has taken a port since.
    fn comes_up(&mut self, size: usize) -> bool {
        let member = |_| {
            let (client, peer) = (free_port(), free_port());
            let proxy = self.has_proxies.then(|| Proxy::to(peer));
            Member { keeper: None, pid: None, client, peer, proxy }
        };
        self.members = (0..size).map(member).collect();
        (0..size).for_each(|index| self.launch(index));
        let is_up = || match self.scheme {
            "http" => (0..size).any(|member| self.leads(member)),
            _ => TcpStream::connect(("127.0.0.1", self.port(0))).is_ok(),
        };
        let log = |member: usize| {
            std::fs::read_to_string(self.directory().join(format!("m{member}.log"))).unwrap_or_default()
        };
        let started = Instant::now();
        let is_up = eventually("the cluster", || {
            let has_port = (0..size).all(|member| !log(member).contains("address already in use"));
            let is_late = started.elapsed() + SHORTLY > GENEROUS;
            assert!(
                !is_late,
                "the cluster is not up:\n{}",
                (0..size).map(log).collect::<Vec<_>>().join("\n")
            );
            (!has_port || is_up()).then_some(has_port)
        });
        if !is_up {
            self.members.iter_mut().for_each(Member::kill);
            for index in 0..size {
                let data = self.directory().join(format!("m{index}"));
                // A member that had no port may have written nothing.
                drop((std::fs::remove_dir_all(&data), std::fs::remove_file(data.with_extension("log"))));
            }
        }
        is_up
    }

    /// Returns the number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the URL with all members.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        format!("{}://{}", if self.scheme == "https" { "etcds" } else { "etcd" }, hosts.join(","))
    }

    /// Returns the port for clients of a member.
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client
    }

    /// Returns the directory of the cluster.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends a member at once, as a crash does.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Returns the processes of the members that run.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        self.members.iter().filter_map(|member| member.pid).collect()
    }

    /// Stops a member until [`cont`](Self::cont).
    pub fn stop(&self, member: usize) {
        self.members[member].signal(Signal::STOP);
    }

    /// Lets a stopped member go on.
    pub fn cont(&self, member: usize) {
        self.members[member].signal(Signal::CONT);
    }

    /// Kills a member and starts it again, on the same ports and files. Does not wait until it is up.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.launch(member);
    }

    /// Ends all connections between a member and the others, until [`unite`](Self::unite). Clients reach it as before.
    ///
    /// # Panics
    /// If the cluster is not [`divisible`](Self::divisible), or the member does not answer.
    pub fn cut_off(&self, member: usize) {
        let id = eventually("the member's id", || self.members[member].status()?.id);
        for (index, other) in self.members.iter().enumerate() {
            let proxy = other.proxy.as_ref().expect("a divisible cluster");
            if index == member {
                proxy.set(Fault::Reset);
            } else {
                proxy.set_for_member(id, Fault::Reset);
            }
        }
    }

    /// Lets all members reach each other.
    pub fn unite(&self) {
        self.members
            .iter()
            .filter_map(|member| member.proxy.as_ref())
            .for_each(|proxy| proxy.set(Fault::None));
    }

    /// Waits until a member is the leader, and returns it.
    ///
    /// # Panics
    /// If the cluster has no leader for long.
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("a leader", || (0..self.size()).find(|member| self.leads(*member)))
    }

    /// Sends a request to a member's gateway, such as `("kv/range", r#"{"key":"YQ=="}"#)`, and returns the answer:
    /// `None` if there is none within ten seconds.
    #[must_use]
    pub fn ask(&self, member: usize, path: &str, body: &str) -> Option<String> {
        self.members[member].ask(path, body, Duration::from_secs(10))
    }

    fn leads(&self, member: usize) -> bool {
        let status = self.members[member].status();
        status.is_some_and(|status| {
            status.leader.is_some_and(|leader| leader != 0 && status.id == Some(leader))
        })
    }

    fn launch(&mut self, index: usize) {
        let name = |index: usize| format!("m{index}");
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let reached = |member: &Member| local(member.proxy.as_ref().map_or(member.peer, Proxy::port));
        let members = self.members.iter().enumerate();
        let all: Vec<_> =
            members.map(|(index, member)| format!("{}={}", name(index), reached(member))).collect();
        let member = &self.members[index];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client);
        let data = self.directory.path().join(name(index));
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, &program(), "--name", &name(index), "--data-dir"]).arg(&data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &local(member.peer)]);
        command.args(["--initial-advertise-peer-urls", &reached(member)]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        // Leaders are elected within a fraction of a second.
        command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]).args(&self.arguments);
        command.env("LOG", data.with_extension("log"));
        let (keeper, pid) = spawn(command);
        let member = &mut self.members[index];
        (member.keeper, member.pid) = (Some(keeper), pid);
    }
}

/// What a member says of itself and of its leader.
struct Status {
    id: Option<u64>,
    leader: Option<u64>,
}

impl Member {
    fn status(&self) -> Option<Status> {
        // Shorter than other calls, because a member may be stopped.
        let answer = self.ask("maintenance/status", "{}", Duration::from_millis(500))?;
        let number = |name: &str| {
            let (_, rest) = answer.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next()?.parse().ok()
        };
        Some(Status { id: number("member_id"), leader: number("leader") })
    }

    fn signal(&self, signal: Signal) {
        signals::send(self.pid, signal);
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.pid = None;
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
    }

    fn ask(&self, path: &str, body: &str, limit: Duration) -> Option<String> {
        self.http(&format!("POST /v3/{path}"), body, limit)
    }

    fn http(&self, method_and_path: &str, body: &str, limit: Duration) -> Option<String> {
        let address = ([127, 0, 0, 1], self.client).into();
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        let len = body.len();
        let head = format!("{method_and_path} HTTP/1.0\r\nHost: e\r\nContent-Length: {len}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}

/// A cluster of one member.
#[derive(Debug)]
pub struct EtcdServer(EtcdCluster);

impl EtcdServer {
    /// Starts a server, as [`EtcdCluster::start`].
    ///
    /// # Panics
    /// As [`EtcdCluster::start`].
    #[must_use]
    pub fn start() -> Option<Self> {
        EtcdCluster::start(1).map(Self)
    }

    /// Starts a server with further arguments, as [`EtcdCluster::with`].
    ///
    /// # Panics
    /// As [`EtcdCluster::start`].
    #[must_use]
    pub fn with(arguments: &[&str]) -> Option<Self> {
        EtcdCluster::with(1, arguments).map(Self)
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port(0)
    }

    /// Returns the directory of the server.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.0.directory()
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.0.kill(0);
    }

    /// Stops the server until [`cont`](Self::cont).
    pub fn stop(&self) {
        self.0.stop(0);
    }

    /// Lets a stopped server go on.
    pub fn cont(&self) {
        self.0.cont(0);
    }

    /// Kills the server and starts it again, on the same ports and files. Does not wait until it is up.
    pub fn restart(&mut self) {
        self.0.restart(0);
    }

    /// Sends a request, as [`EtcdCluster::ask`].
    #[must_use]
    pub fn ask(&self, path: &str, body: &str) -> Option<String> {
        self.0.ask(0, path, body)
    }

    /// Returns what the server tells Prometheus.
    ///
    /// # Panics
    /// If the server does not reply.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.0.members[0].http("GET /metrics", "", Duration::from_secs(10)).expect("a reply")
    }
}

/// Makes a certificate. Returns `false` if there is no program for it.
fn certify(directory: &Path) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]);
    let status = openssl.current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.map(|status| assert!(status.success(), "openssl failed")).is_ok()
}

/// In memory if possible: etcd writes every change to the disk before it answers.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the servers")
}

fn program() -> String {
    std::env::var("LOCKER_TEST_ETCD").unwrap_or_else(|_| "etcd".into())
}
