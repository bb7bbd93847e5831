//! TLS, with and without certificates of clients.

use super::*;
use std::fs;

const TLS: [&str; 4] = ["--cert-file", "{dir}/cert.pem", "--key-file", "{dir}/key.pem"];

#[tokio::test]
async fn authority_comes_from_the_url_or_from_the_options() {
    let Some(server) = EtcdServer::with(&TLS) else { return };
    let ca = server.directory().join("cert.pem");
    let (one, other) = {
        let url = format!("{}?ca={}", server.url(), ca.display());
        (party(&url).await, party(&url.replace("etcds:", "etcd:").replace("?ca", "?tls=true&ca")).await)
    };
    contract::messages_are_heard(&one, &other).await;
    contract::large_values_are_kept(&one, &other).await;

    let mut opening = Opening::default();
    opening.network.tls_ca = Some(fs::read(ca).unwrap());
    in_time("a store", Etcd::open(&server.url(), &opening)).await.unwrap();
}

#[tokio::test]
async fn servers_that_nobody_vouches_for_are_refused() {
    let Some(server) = EtcdServer::with(&TLS) else { return };
    // The server may be slow at first.
    until("the reason", async || {
        let error = open(&server.url()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, true));
        error.message().contains("invalid peer certificate")
    })
    .await;
    let plain = server.url().replace("etcds:", "etcd:");
    let error = open(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn clients_have_certificates() {
    let arguments = [&TLS[..], &["--client-cert-auth", "--trusted-ca-file", "{dir}/cert.pem"]].concat();
    let Some(server) = EtcdServer::with(&arguments) else { return };
    let file = |name: &str| server.directory().join(name).display().to_string();
    let (url, cert, key) = (server.url(), file("cert.pem"), file("key.pem"));
    let one = party(&format!("{url}?ca={cert}&cert={cert}&key={key}")).await;
    one.write(contract::write(&contract::fresh("x"), 0, b"x")).await;
    let error = open(&format!("{url}?ca={cert}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn wrong_files_are_misused() {
    let Some(server) = EtcdServer::with(&TLS) else { return };
    let file = |name: &str| server.directory().join(name).display().to_string();
    let (cert, key, none) = (file("cert.pem"), file("key.pem"), file("none.pem"));
    for parameters in [format!("ca={none}"), format!("ca={cert}&cert={key}&key={cert}"), format!("ca={key}")]
    {
        let error = open(&format!("{}?{parameters}", server.url())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{parameters}: {error}");
        assert!(error.message().contains("etcd URL"), "{parameters}: {error}");
    }
}
