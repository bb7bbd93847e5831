//! Real etcd clusters on free ports of this machine.

use crate::{
    Fault, Proxy,
    ensemble::{Ensemble, Kind, Single, certify, directory},
    eventually, free_port, keeper, missing,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

/// Members of an etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    arguments: Vec<String>,
    has_tls: bool,
    /// Whether members reach each other through proxies.
    has_proxies: bool,
}

/// How the other members reach a member.
#[derive(Debug)]
pub struct Reached {
    peer: u16,
    /// Where they do, if not at `peer`.
    proxy: Option<Proxy>,
}

/// A running cluster.
pub type EtcdCluster = Ensemble<Etcd>;

/// A cluster of one member.
pub type EtcdServer = Single<Etcd>;

impl Kind for Etcd {
    type Own = Reached;

    fn own(&self) -> Reached {
        let peer = free_port();
        Reached { peer, proxy: self.has_proxies.then(|| Proxy::to(peer)) }
    }

    fn shell(ensemble: &Ensemble<Self>, index: usize) -> Command {
        let name = |index: usize| format!("m{index}");
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let reached = |own: &Reached| local(own.proxy.as_ref().map_or(own.peer, Proxy::port));
        let members = ensemble.members.iter().enumerate();
        let all: Vec<_> =
            members.map(|(index, member)| format!("{}={}", name(index), reached(&member.own))).collect();
        let (member, kind) = (&ensemble.members[index], &ensemble.kind);
        let client = format!("{}://127.0.0.1:{}", if kind.has_tls { "https" } else { "http" }, member.client);
        let mut shell = keeper::shell(&ensemble.log(index));
        shell.args([&program(), "--name", &name(index), "--data-dir"]).arg(ensemble.data(index));
        shell.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        shell.args(["--listen-peer-urls", &local(member.own.peer)]);
        shell.args(["--initial-advertise-peer-urls", &reached(&member.own)]);
        shell.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        // Leaders are elected within a fraction of a second.
        shell.args(["--heartbeat-interval", "20", "--election-timeout", "200"]).args(&kind.arguments);
        shell
    }

    fn leads(ensemble: &Ensemble<Self>, member: usize) -> bool {
        ensemble.status(member).is_some_and(|status| {
            status.leader.is_some_and(|leader| leader != 0 && status.id == Some(leader))
        })
    }

    fn serves(ensemble: &Ensemble<Self>) -> bool {
        if ensemble.kind.has_tls {
            return TcpStream::connect(("127.0.0.1", ensemble.port(0))).is_ok();
        }
        (0..ensemble.size()).any(|member| Self::leads(ensemble, member))
    }

    fn address(&self, client: u16, _: &Reached) -> (&'static str, u16) {
        (if self.has_tls { "etcds" } else { "etcd" }, client)
    }
}

impl Ensemble<Etcd> {
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
        let has_tls = arguments.iter().any(|argument| argument == "--cert-file");
        if has_tls && !certify(directory.path()) {
            return missing("there is no openssl");
        }
        Some(Self::of(size, Etcd { arguments, has_tls, has_proxies }, directory))
    }

    /// Ends all connections between a member and the others, until [`unite`](Self::unite). Clients reach it as before.
    ///
    /// # Panics
    /// If the cluster is not [`divisible`](Self::divisible), or the member does not answer.
    pub fn cut_off(&self, member: usize) {
        let id = eventually("the member's id", || self.status(member)?.id);
        for (index, other) in self.members.iter().enumerate() {
            let proxy = other.own.proxy.as_ref().expect("a divisible cluster");
            if index == member {
                proxy.set(Fault::Reset);
            } else {
                proxy.set_for_member(id, Fault::Reset);
            }
        }
    }

    /// Lets all members reach each other.
    pub fn unite(&self) {
        let proxies = self.members.iter().filter_map(|member| member.own.proxy.as_ref());
        proxies.for_each(|proxy| proxy.set(Fault::None));
    }

    /// Sends a request to a member's gateway, such as `("kv/range", r#"{"key":"YQ=="}"#)`, and returns the answer:
    /// `None` if there is none within ten seconds.
    #[must_use]
    pub fn ask(&self, member: usize, path: &str, body: &str) -> Option<String> {
        self.http(member, &format!("POST /v3/{path}"), body, Duration::from_secs(10))
    }

    fn status(&self, member: usize) -> Option<Status> {
        // Shorter than other calls, because a member may be stopped.
        let limit = Duration::from_millis(500);
        let answer = self.http(member, "POST /v3/maintenance/status", "{}", limit)?;
        let number = |name: &str| {
            let (_, rest) = answer.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next()?.parse().ok()
        };
        Some(Status { id: number("member_id"), leader: number("leader") })
    }

    fn http(&self, member: usize, method_and_path: &str, body: &str, limit: Duration) -> Option<String> {
        let address = ([127, 0, 0, 1], self.port(member)).into();
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

/// What a member says of itself and of its leader.
struct Status {
    id: Option<u64>,
    leader: Option<u64>,
}

impl Single<Etcd> {
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
        self.0.http(0, "GET /metrics", "", Duration::from_secs(10)).expect("a reply")
    }
}

fn program() -> String {
    std::env::var("LOCKER_TEST_ETCD").unwrap_or_else(|_| "etcd".into())
}
