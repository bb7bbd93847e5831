//! Clusters of etcd or ZooKeeper on free ports of this machine: their members are started, stopped and killed.

use crate::{GENEROUS, eventually, free_port, keeper::Kept};
use rustix::process::{Pid, Signal};
use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// How long before the end of a wait its failure is explained.
const SHORTLY: Duration = Duration::from_secs(3);

/// What the servers of an [`Ensemble`] are.
pub trait Kind: Debug + Sized {
    /// What a member has beside its port for clients.
    type Own: Debug;

    /// Returns what a new member has.
    #[doc(hidden)]
    fn own(&self) -> Self::Own;

    /// Returns the shell that starts a member.
    #[doc(hidden)]
    fn shell(ensemble: &Ensemble<Self>, member: usize) -> Command;

    /// Returns whether a member is the leader.
    #[doc(hidden)]
    fn leads(ensemble: &Ensemble<Self>, member: usize) -> bool;

    /// Returns whether the members serve.
    #[doc(hidden)]
    fn serves(ensemble: &Ensemble<Self>) -> bool;

    /// Returns the scheme of URLs, and the port in them.
    #[doc(hidden)]
    fn address(&self, client: u16, own: &Self::Own) -> (&'static str, u16);
}

/// A running cluster. Dropping it kills its members and deletes their files.
#[derive(Debug)]
pub struct Ensemble<K: Kind> {
    pub(crate) members: Vec<Member<K::Own>>,
    directory: tempfile::TempDir,
    pub(crate) kind: K,
}

#[derive(Debug)]
pub(crate) struct Member<O> {
    kept: Kept,
    pub(crate) client: u16,
    pub(crate) own: O,
}

impl<K: Kind> Ensemble<K> {
    /// Starts so many members, and waits for them.
    pub(crate) fn of(size: usize, kind: K, directory: tempfile::TempDir) -> Self {
        let mut ensemble = Self { members: Vec::new(), directory, kind };
        while !ensemble.comes_up(size) {}
        ensemble
    }

    /// Starts the members on new ports, and waits for them. Returns `false` if another program has taken a port since.
    fn comes_up(&mut self, size: usize) -> bool {
        let member = |_| Member { kept: Kept::default(), client: free_port(), own: self.kind.own() };
        self.members = (0..size).map(member).collect();
        (0..size).for_each(|member| self.restart(member));
        let log = |member: usize| fs::read_to_string(self.log(member)).unwrap_or_default();
        let started = Instant::now();
        let is_up = eventually("the cluster", || {
            let has_ports = (0..size).all(|member| !log(member).contains("ddress already in use"));
            let is_late = started.elapsed() + SHORTLY > GENEROUS;
            let logs = || (0..size).map(log).collect::<Vec<_>>().join("\n");
            assert!(!is_late, "the cluster is not up:\n{}", logs());
            (!has_ports || K::serves(self)).then_some(has_ports)
        });
        if !is_up {
            self.members.clear();
            // A member that had no port may have written nothing.
            let files = (0..size).map(|member| (self.data(member), self.log(member)));
            files.for_each(|(data, log)| drop((fs::remove_dir_all(data), fs::remove_file(log))));
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
        let address = |member: &Member<K::Own>| self.kind.address(member.client, &member.own);
        let hosts: Vec<_> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", address(member).1)).collect();
        format!("{}://{}", address(&self.members[0]).0, hosts.join(","))
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

    /// Returns where a member keeps its files.
    pub(crate) fn data(&self, member: usize) -> PathBuf {
        self.directory.path().join(format!("m{member}"))
    }

    /// Returns where what a member prints goes.
    pub(crate) fn log(&self, member: usize) -> PathBuf {
        self.data(member).with_extension("log")
    }

    /// Returns the processes of the members that run.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        self.members.iter().filter_map(|member| member.kept.pid()).collect()
    }

    /// Ends a member at once, as a crash does.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kept.kill();
    }

    /// Stops a member until [`cont`](Self::cont).
    pub fn stop(&self, member: usize) {
        self.members[member].kept.signal(Signal::STOP);
    }

    /// Lets a stopped member go on.
    pub fn cont(&self, member: usize) {
        self.members[member].kept.signal(Signal::CONT);
    }

    /// Kills a member and starts it again, on the same ports and files. Does not wait until it is up.
    pub fn restart(&mut self, member: usize) {
        let shell = K::shell(self, member);
        self.members[member].kept.start(shell);
    }

    /// Waits until a member is the leader, and returns it.
    ///
    /// # Panics
    /// If the cluster has no leader for long.
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("a leader", || (0..self.size()).find(|member| K::leads(self, *member)))
    }
}

/// A cluster of one member.
#[derive(Debug)]
pub struct Single<K: Kind>(pub(crate) Ensemble<K>);

impl<K: Kind> Single<K> {
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

/// Returns a directory in memory if possible: the servers write every change to the disk before they answer.
/// `LOCKER_TEST_MEMORY` names another place for it.
pub(crate) fn directory() -> tempfile::TempDir {
    let memory = std::env::var_os("LOCKER_TEST_MEMORY").unwrap_or_else(|| "/dev/shm".into());
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).expect("a directory for the servers")
}

/// Makes `cert.pem`, a certificate for 127.0.0.1 that is its own authority, and `key.pem`. Returns `false` if there is
/// no program for it.
pub(crate) fn certify(directory: &Path) -> bool {
    let mut make =
        vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    make.extend(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    make.extend(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]);
    run("openssl", &make, directory)
}

/// Runs a program. Returns `false` if there is none of this name.
///
/// # Panics
/// If it fails.
pub(crate) fn run(program: &str, arguments: &[&str], directory: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(|status| assert!(status.success(), "{program} failed")).is_ok()
}
