//! TLS, with a certificate that the test makes.

use crate::support::{builder, hold};
use locker::{Error, ErrorKind, LockerBuilder};
use locker_harness::RedisServer;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use std::{fs, time::Duration};

/// Starts a server that speaks only TLS, and returns it with the path of its certificate authority.
fn server() -> Option<(RedisServer, String)> {
    let directory = tempfile::tempdir().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (certificate, key) = (file("cert.pem", &certificate.pem()), file("key.pem", &key.serialize_pem()));
    let ca = file("ca.pem", &authority.pem());
    let server = RedisServer::with(&[
        "--tls-port",
        "{port}",
        "--port",
        "0",
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ])?;
    Some((server, authority.pem()))
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
