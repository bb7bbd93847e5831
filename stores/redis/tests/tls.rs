//! TLS, with a certificate that the test makes.

use crate::support::{builder, hold, holder, until};
use locker::{Error, ErrorKind, LockerBuilder};
use locker_harness::{RedisServer, free_port};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use std::{fs, time::Duration};
use tempfile::TempDir;

const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

/// The files of a certificate, and the authority that has signed it.
struct Certificate {
    directory: TempDir,
    ca: String,
}

impl Certificate {
    fn new(names: &[&str]) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // Another name than the server's: servers that check each other would take that one for its own authority.
        authority.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let (directory, ca) = (tempfile::tempdir().unwrap(), authority.pem());
        let files =
            [("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem()), ("ca.pem", ca.clone())];
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Self { directory, ca }
    }

    /// The settings of a server, by name and value.
    fn settings(&self, port: &str) -> [(&'static str, String); 5] {
        let file = |name: &str| self.directory.path().join(name).to_string_lossy().into_owned();
        [
            ("tls-port", port.to_owned()),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-cert-file", file("cert.pem")),
            ("tls-key-file", file("key.pem")),
            ("tls-ca-cert-file", file("ca.pem")),
        ]
    }

    fn arguments(&self, port: &str) -> Vec<String> {
        self.settings(port).into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }
}

fn start(arguments: &[String], more: &[&str]) -> Option<RedisServer> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    RedisServer::with(&arguments)
}

/// Starts a server that speaks only TLS, and returns it with its certificate authority.
fn server() -> Option<(RedisServer, String)> {
    let certificate = Certificate::new(&HERE);
    let server = start(&certificate.arguments("{port}"), &["--port", "0"])?;
    Some((server, certificate.ca))
}

/// Two servers and their sentinel, which also have ports without TLS for this test.
struct Watched {
    servers: [RedisServer; 2],
    sentinel: RedisServer,
    url: String,
    ca: String,
}

impl Watched {
    fn start() -> Option<Self> {
        let certificate = Certificate::new(&HERE);
        let ports = [free_port(), free_port(), free_port()];
        let more = ["--tls-replication", "yes", "--repl-diskless-sync-delay", "0"];
        let one = |port: u16| start(&certificate.arguments(&port.to_string()), &more);
        let servers = [one(ports[0])?, one(ports[1])?];
        let _: String = servers[1].ask("REPLICAOF", &["127.0.0.1", &ports[0].to_string()]);
        let settings = certificate.settings(&ports[2].to_string());
        let lines: Vec<_> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let master = format!("sentinel monitor main 127.0.0.1 {} 1", ports[0]);
        let sentinel =
            RedisServer::sentinel(&format!("{}\ntls-replication yes\n{master}", lines.join("\n")))?;
        let url = format!("rediss+sentinel://127.0.0.1:{}/main", ports[2]);
        Some(Self { servers, sentinel, url, ca: certificate.ca })
    }
}

async fn refused(builder: LockerBuilder) -> Error {
    builder.timeout(Duration::from_secs(2)).build().await.unwrap_err()
}

#[tokio::test]
async fn rediss_works_with_a_named_authority() {
    let Some((server, ca)) = server() else { return };
    let url = server.url().replace("redis://", "rediss://");
    for url in [url.clone(), url.replace("127.0.0.1", "localhost")] {
        let locker = builder(&url).tls_ca(ca.clone()).build().await.unwrap();
        hold(&locker, "a").await.release().await.unwrap();
    }
    let error = refused(builder(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().to_lowercase().contains("issuer"), "a stranger's certificate: {error}");
    let error = refused(builder(&server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "plain to a TLS port: {error}");
    let error = refused(builder(&url).tls_ca("no certificate")).await;
    assert_eq!(error.kind(), ErrorKind::Misused, "no authority in it: {error}");
}

#[tokio::test]
async fn tls_to_a_plain_port_is_reported() {
    let Some(server) = RedisServer::start() else { return };
    let error = refused(builder(&server.url().replace("redis://", "rediss://"))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("rediss://"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_masters_speak_tls() {
    let Some(Watched { servers, sentinel, url, ca }) = Watched::start() else { return };
    let error = refused(builder(&url)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a stranger's certificate: {error}");
    assert!(error.to_string().contains("no sentinel names the master"), "{error}");
    let plain = url.replace("rediss+", "redis+") + "?sentinel_tls=yes";
    let error = refused(builder(&plain).tls_ca(ca.clone())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "plain to a TLS port: {error}");
    let locker = builder(&url).tls_ca(ca.clone()).build().await.unwrap();
    let guard = hold(&locker, "a").await;
    until("the hold at the replica", async || holder(&servers[1], "lock:a").as_deref() == Some(guard.id()))
        .await;
    let ordered =
        || redis::cmd("SENTINEL").arg(&["FAILOVER", "main"]).query::<String>(&mut sentinel.connection());
    until("a failover", async || ordered().is_ok()).await;
    until("a grant of the new master", async || {
        let probe = hold(&locker, "b").await;
        let is_there = holder(&servers[1], "lock:b").as_deref() == Some(probe.id());
        drop(probe.release().await);
        is_there
    })
    .await;
    assert!(guard.is_held() && holder(&servers[1], "lock:a").as_deref() == Some(guard.id()));
    guard.release().await.unwrap();
}

/// The node says its port for TLS and its name, which its certificate is for.
#[tokio::test]
async fn nodes_of_a_cluster_are_reached_by_their_names() {
    let port = free_port().to_string();
    let more = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let named = ["--cluster-announce-hostname", "localhost", "--cluster-announce-ip", "127.0.0.1"];
    let certificate = Certificate::new(&["localhost"]);
    let Some(server) = start(&certificate.arguments(&port), &[&more[..], &named].concat()) else { return };
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let slots: Vec<_> = ["ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
    let _: String = server.ask("CLUSTER", &slots);
    until("the cluster to be up", async || {
        server.ask::<String>("CLUSTER", &["INFO"]).contains("cluster_state:ok")
    })
    .await;
    let url = format!("rediss+cluster://localhost:{port}");
    let locker = builder(&url).tls_ca(certificate.ca.clone()).build().await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
    let error = refused(builder(&url.replace("localhost", "127.0.0.1")).tls_ca(certificate.ca)).await;
    assert!(error.to_string().contains("certificate"), "the seed has no such name: {error}");
}
