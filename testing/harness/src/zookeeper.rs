//! Real ZooKeeper ensembles on free ports of this machine.

use crate::{
    ensemble::{Ensemble, Kind, Single, certify, directory, run},
    eventually, free_port, keeper, missing,
};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// Where Debian has it; its manifest names the other libraries. With `netty-codec` it speaks TLS.
const LIBRARIES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar";

/// The settings of every server. It ticks four times as fast as usual.
const SETTINGS: &str = "tickTime=500\ninitLimit=20\nsyncLimit=5\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
                        admin.enableServer=false\n4lw.commands.whitelist=srvr,dump\n";

/// What a server is told that speaks TLS.
const TLS: &str = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                   secureClientPortAddress=127.0.0.1\nssl.clientAuth=none\n\
                   ssl.keyStore.location={dir}/server.p12\nssl.keyStore.password=secret\n\
                   ssl.trustStore.location={dir}/trust.p12\nssl.trustStore.password=secret\n";

/// Servers of ZooKeeper.
#[derive(Debug)]
pub struct Zookeeper {
    settings: String,
    has_tls: bool,
}

/// The further ports of a server.
#[derive(Debug)]
pub struct Ports {
    secure: u16,
    peer: u16,
    election: u16,
}

/// A running ensemble.
pub type ZookeeperCluster = Ensemble<Zookeeper>;

/// An ensemble of one server.
pub type ZookeeperServer = Single<Zookeeper>;

impl Kind for Zookeeper {
    type Own = Ports;

    fn own(&self) -> Ports {
        Ports { secure: free_port(), peer: free_port(), election: free_port() }
    }

    fn shell(ensemble: &Ensemble<Self>, index: usize) -> Command {
        let (member, data) = (&ensemble.members[index], ensemble.data(index));
        fs::create_dir_all(&data).expect("a directory for the server");
        let secure = if ensemble.kind.has_tls {
            format!("secureClientPort={}\n", member.own.secure)
        } else {
            String::new()
        };
        let (directory, port, own) = (data.display(), member.client, &ensemble.kind.settings);
        let mut settings = format!("{SETTINGS}dataDir={directory}\nclientPort={port}\n{secure}{own}");
        if ensemble.size() > 1 {
            fs::write(data.join("myid"), index.to_string()).expect("the number of the server");
            let members = ensemble.members.iter().enumerate();
            settings.extend(members.map(|(index, member)| {
                format!("server.{index}=127.0.0.1:{}:{}\n", member.own.peer, member.own.election)
            }));
        }
        let file = data.with_extension("cfg");
        fs::write(&file, settings).expect("the settings of the server");
        let mut shell = keeper::shell(&ensemble.log(index));
        // A server lives for seconds: what makes it fast in the long run makes it slow at first.
        shell.args(["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        shell.args(["-cp", &libraries(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]).arg(file);
        shell
    }

    fn leads(ensemble: &Ensemble<Self>, member: usize) -> bool {
        ensemble.mode(member).is_some_and(|mode| mode != "follower")
    }

    fn serves(ensemble: &Ensemble<Self>) -> bool {
        let port = |member: usize| {
            let member = &ensemble.members[member];
            ensemble.kind.address(member.client, &member.own).1
        };
        let listens = |member| TcpStream::connect(("127.0.0.1", port(member))).is_ok();
        (0..ensemble.size()).all(|member| ensemble.mode(member).is_some() && listens(member))
    }

    fn address(&self, client: u16, own: &Ports) -> (&'static str, u16) {
        if self.has_tls { ("zks", own.secure) } else { ("zk", client) }
    }
}

impl Ensemble<Zookeeper> {
    /// Starts an ensemble of so many servers and waits until it serves: the library of Debian, or those that the
    /// environment variable `LOCKER_TEST_ZOOKEEPER` names, in the form of a class path. Returns `None` if there is
    /// none.
    ///
    /// # Panics
    /// If the ensemble does not come up, or if there is no library and `CI=true`.
    #[must_use]
    pub fn start(size: usize) -> Option<Self> {
        Self::build(size, "", false)
    }

    fn build(size: usize, settings: &str, has_tls: bool) -> Option<Self> {
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let libraries = libraries();
        let (library, _) = libraries.split_once(':').unwrap_or((&*libraries, ""));
        if java.is_err() || !Path::new(library).exists() {
            return missing(&format!("there is no java or no {library}: run scripts/setup-zookeeper.sh"));
        }
        let directory = directory();
        if has_tls && !(certify(directory.path()) && convert(directory.path())) {
            return missing("there is no openssl or no keytool");
        }
        let settings = settings.replace("{dir}", &directory.path().to_string_lossy());
        Some(Self::of(size, Zookeeper { settings, has_tls }, directory))
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
        let answer = self.say(member, "srvr")?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Sends one of the words of four letters, such as `dump`, and returns the answer. `None` if there is none soon.
    #[must_use]
    pub fn say(&self, member: usize, word: &str) -> Option<String> {
        let limit = Duration::from_millis(500);
        let address = ([127, 0, 0, 1], self.port(member)).into();
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Single<Zookeeper> {
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
        ZookeeperCluster::build(1, settings, false).map(Self)
    }

    /// Starts a server that speaks TLS. In its [`directory`](Self::directory) there is `cert.pem`, a certificate for
    /// 127.0.0.1 that is its own authority.
    ///
    /// # Panics
    /// As [`ZookeeperCluster::start`].
    #[must_use]
    pub fn secure() -> Option<Self> {
        ZookeeperCluster::build(1, TLS, true).map(Self)
    }
}

/// Writes the certificate in the forms that Java reads. Returns `false` if there is no program for it.
fn convert(directory: &Path) -> bool {
    let mut pack = vec!["pkcs12", "-export", "-in", "cert.pem", "-inkey", "key.pem"];
    pack.extend(["-out", "server.p12", "-passout", "pass:secret"]);
    let mut trust = vec!["-importcert", "-noprompt", "-alias", "test", "-file", "cert.pem"];
    trust.extend(["-keystore", "trust.p12", "-storetype", "PKCS12", "-storepass", "secret"]);
    run("openssl", &pack, directory) && run("keytool", &trust, directory)
}

fn libraries() -> String {
    std::env::var("LOCKER_TEST_ZOOKEEPER").unwrap_or_else(|_| LIBRARIES.into())
}
