//! Real ZooKeeper ensembles on free ports of this machine.

use crate::{GENEROUS, eventually, free_port, keeper::spawn, missing, signals};
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

/// Where Debian has it; its manifest names the other libraries. With `netty-codec` it speaks TLS.
const LIBRARIES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar";

/// A running ensemble. Dropping it kills its servers and deletes their files.
#[derive(Debug)]
pub struct ZookeeperCluster {
    members: Vec<Member>,
    directory: tempfile::TempDir,
    settings: String,
    scheme: &'static str,
}

#[derive(Debug, Default)]
struct Member {
    /// A shell that kills the server when its standard input closes, which it does when this process dies. The shell
    /// ends after the server, so that the ports are free.
    keeper: Option<Child>,
    pid: Option<Pid>,
    client: u16,
    secure: u16,
    peer: u16,
    election: u16,
}

const KEEPER: &str =
    r#""$0" "$@" >>"$LOG" 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait $! 2>/dev/null"#;

/// What every server is told. It ticks four times as fast as usual.
const SETTINGS: &str = "tickTime=500\ninitLimit=20\nsyncLimit=5\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
                        admin.enableServer=false\n4lw.commands.whitelist=srvr\n";

/// What a server is told that speaks TLS.
const TLS: &str = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                   secureClientPortAddress=127.0.0.1\nssl.clientAuth=none\n\
                   ssl.keyStore.location={dir}/server.p12\nssl.keyStore.password=secret\n\
                   ssl.trustStore.location={dir}/trust.p12\nssl.trustStore.password=secret\n";

impl ZookeeperCluster {
    /// Starts an ensemble of so many servers and waits until it serves: the library of Debian, or those that the
    /// environment variable `LOCKER_TEST_ZOOKEEPER` names, in the form of a class path. Returns `None` if there is none.
    ///
    /// # Panics
    /// If the ensemble does not come up, or if there is no library and `CI=true`.
    #[must_use]
    pub fn start(size: usize) -> Option<Self> {
        Self::build(size, "", "zk")
    }

    fn build(size: usize, settings: &str, scheme: &'static str) -> Option<Self> {
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let libraries = libraries();
        let (library, _) = libraries.split_once(':').unwrap_or((&*libraries, ""));
        if java.is_err() || !Path::new(library).exists() {
            return missing(&format!("there is no java or no {library}: run scripts/setup-zookeeper.sh"));
        }
        let directory = directory();
        let path = directory.path().to_string_lossy().into_owned();
        let settings = settings.replace("{dir}", &path);
        let mut cluster = Self { members: Vec::new(), directory, settings, scheme };
        if scheme == "zks" && !certify(cluster.directory()) {
            return missing("there is no openssl or no keytool");
        }
        while !cluster.comes_up(size) {}
        Some(cluster)
    }

    /// Starts the servers on new ports, and waits for them. Returns `false` if another program has taken a port since.
    fn comes_up(&mut self, size: usize) -> bool {
        let member = |_| Member {
            client: free_port(),
            secure: free_port(),
            peer: free_port(),
            election: free_port(),
            ..Member::default()
        };
        self.members = (0..size).map(member).collect();
        (0..size).for_each(|index| self.launch(index));
        let log = |member: usize| {
            std::fs::read_to_string(self.directory().join(format!("m{member}.log"))).unwrap_or_default()
        };
        let started = Instant::now();
        let is_up = eventually("the ensemble", || {
            let has_port = (0..size).all(|member| !log(member).contains("Address already in use"));
            let is_late = started.elapsed() + SHORTLY > GENEROUS;
            let logs = || (0..size).map(log).collect::<Vec<_>>().join("\n");
            assert!(!is_late, "the ensemble is not up:\n{}", logs());
            let is_up = || (0..size).all(|member| self.mode(member).is_some() && self.listens(member));
            (!has_port || is_up()).then_some(has_port)
        });
        if !is_up {
            self.members.iter_mut().for_each(Member::kill);
            for index in 0..size {
                let data = self.directory().join(format!("m{index}"));
                drop((std::fs::remove_dir_all(&data), std::fs::remove_file(data.with_extension("log"))));
            }
        }
        is_up
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the URL with all servers.
    #[must_use]
    pub fn url(&self) -> String {
        let port = |member: &Member| if self.scheme == "zks" { member.secure } else { member.client };
        let hosts: Vec<_> = self.members.iter().map(|member| format!("127.0.0.1:{}", port(member))).collect();
        format!("{}://{}", self.scheme, hosts.join(","))
    }

    /// Returns the port for clients of a server.
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client
    }

    /// Returns the directory of the ensemble.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends a server at once, as a crash does.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Stops a server until [`cont`](Self::cont).
    pub fn stop(&self, member: usize) {
        self.members[member].signal(Signal::STOP);
    }

    /// Lets a stopped server go on.
    pub fn cont(&self, member: usize) {
        self.members[member].signal(Signal::CONT);
    }

    /// Kills a server and starts it again, on the same ports and files. Does not wait until it is up.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.launch(member);
    }

    /// Waits until a server is the leader, and returns it.
    ///
    /// # Panics
    /// If the ensemble has no leader for long.
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("a leader", || {
            (0..self.size()).find(|member| self.mode(*member).is_some_and(|mode| mode != "follower"))
        })
    }

    /// Waits until all servers serve.
    ///
    /// # Panics
    /// If one does not for long.
    pub fn settle(&self) {
        eventually("all servers", || {
            (0..self.size()).all(|member| self.mode(member).is_some()).then_some(())
        });
    }

    /// Returns what a server is, if it serves: `leader`, `follower` or `standalone`.
    #[must_use]
    pub fn mode(&self, member: usize) -> Option<String> {
        let limit = Duration::from_millis(500);
        let address = ([127, 0, 0, 1], self.members[member].client).into();
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        stream.write_all(b"srvr").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Returns whether a server takes connections where clients make them.
    fn listens(&self, member: usize) -> bool {
        let Member { client, secure, .. } = self.members[member];
        TcpStream::connect(("127.0.0.1", if self.scheme == "zks" { secure } else { client })).is_ok()
    }

    fn launch(&mut self, index: usize) {
        let member = &self.members[index];
        let data = self.directory.path().join(format!("m{index}"));
        std::fs::create_dir_all(&data).expect("a directory for the server");
        let secure = if self.scheme == "zks" {
            format!("secureClientPort={}\n", member.secure)
        } else {
            String::new()
        };
        let (directory, port, own) = (data.display(), member.client, &self.settings);
        let mut settings = format!("{SETTINGS}dataDir={directory}\nclientPort={port}\n{secure}{own}");
        if self.members.len() > 1 {
            std::fs::write(data.join("myid"), index.to_string()).expect("the number of the server");
            let line = |(index, member): (usize, &Member)| {
                format!("server.{index}=127.0.0.1:{}:{}\n", member.peer, member.election)
            };
            settings.extend(self.members.iter().enumerate().map(line));
        }
        let file = data.with_extension("cfg");
        std::fs::write(&file, settings).expect("the settings of the server");
        let mut command = Command::new("sh");
        // A server lives for seconds: what makes it fast in the long run makes it slow at first.
        command.args(["-c", KEEPER, "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-cp", &libraries(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]).arg(file);
        command.env("LOG", data.with_extension("log"));
        let (keeper, pid) = spawn(command);
        let member = &mut self.members[index];
        (member.keeper, member.pid) = (Some(keeper), pid);
    }
}

impl Member {
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
}

impl Drop for ZookeeperCluster {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}

/// An ensemble of one server.
#[derive(Debug)]
pub struct ZookeeperServer(ZookeeperCluster);

impl ZookeeperServer {
    /// Starts a server, as [`ZookeeperCluster::start`].
    ///
    /// # Panics
    /// As [`ZookeeperCluster::start`].
    #[must_use]
    pub fn start() -> Option<Self> {
        ZookeeperCluster::start(1).map(Self)
    }

    /// Starts a server with further lines in its file of settings.
    ///
    /// # Panics
    /// As [`ZookeeperCluster::start`].
    #[must_use]
    pub fn with(settings: &str) -> Option<Self> {
        ZookeeperCluster::build(1, settings, "zk").map(Self)
    }

    /// Starts a server that speaks TLS. In its [`directory`](Self::directory) there is `cert.pem`, a certificate for
    /// 127.0.0.1 that is its own authority.
    ///
    /// # Panics
    /// As [`ZookeeperCluster::start`].
    #[must_use]
    pub fn secure() -> Option<Self> {
        ZookeeperCluster::build(1, TLS, "zks").map(Self)
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
}

/// Makes a certificate, also in the forms that Java reads. Returns `false` if there is no program for it.
fn certify(directory: &Path) -> bool {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().map(|status| assert!(status.success(), "{program} failed")).is_ok()
    };
    let mut make =
        vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    make.extend(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    make.extend(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]);
    let mut pack = vec!["pkcs12", "-export", "-in", "cert.pem", "-inkey", "key.pem"];
    pack.extend(["-out", "server.p12", "-passout", "pass:secret"]);
    let mut trust = vec!["-importcert", "-noprompt", "-alias", "test", "-file", "cert.pem"];
    trust.extend(["-keystore", "trust.p12", "-storetype", "PKCS12", "-storepass", "secret"]);
    run("openssl", &make) && run("openssl", &pack) && run("keytool", &trust)
}

/// In memory if possible: ZooKeeper writes every change to the disk before it answers.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the servers")
}

fn libraries() -> String {
    std::env::var("LOCKER_TEST_ZOOKEEPER").unwrap_or_else(|_| LIBRARIES.into())
}
