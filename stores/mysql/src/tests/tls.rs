//! TLS, with certificates of an authority of the test.

use super::*;
use locker_core::store::opening::NetworkOptions;
use std::{fs, process::Command};

/// A server with a certificate for 127.0.0.1, and the certificate.
fn server() -> Option<(MysqlServer, Vec<u8>)> {
    let files = tempfile_in_shm();
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&files)
        .stderr(std::process::Stdio::null())
        .status();
    assert!(status.expect("openssl").success());
    let path = |name: &str| files.join(name).display().to_string();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(path("key.pem"), readable).unwrap();
    let (certificate, key) =
        (format!("--ssl-cert={}", path("cert.pem")), format!("--ssl-key={}", path("key.pem")));
    let server = MysqlServer::with(&[&certificate, &key])?;
    let pem = fs::read(path("cert.pem")).unwrap();
    fs::remove_dir_all(files).unwrap();
    Some((server, pem))
}

/// A folder that the user of the server may enter.
fn tempfile_in_shm() -> std::path::PathBuf {
    let folder = std::path::Path::new("/dev/shm").join(format!("locker-tls-{}", Id::random()));
    fs::create_dir(&folder).unwrap();
    folder
}

async fn open_with(url: &str, authority: Option<Vec<u8>>) -> Result<Mysql> {
    let network = NetworkOptions { tls_ca: authority, ..NetworkOptions::default() };
    in_time("an answer", super::open(url, &Opening { network, ..Opening::default() })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_checked() {
    let Some((server, pem)) = server() else { return };
    let url = format!("{}?sslmode=require", server.url());
    let party = Party::new(open_with(&url, Some(pem.clone())).await.unwrap());
    party.write(write(&fresh("tls"), 0, b"x")).await;
    let ciphers =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user='locker' AND command='Sleep'";
    assert_ne!(block_in_place(|| server.sql(ciphers)), "0");
    for (url, authority) in [
        (url.clone(), None),
        (url.replace("127.0.0.1", "localhost"), Some(pem.clone())),
        (url.clone(), Some(b"no certificate".to_vec())),
    ] {
        let error = open_with(&url, authority).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Misused), "{url}: {error:?}");
    }
}
