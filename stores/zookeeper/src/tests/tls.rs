//! TLS.

use super::*;
use std::fs;

#[tokio::test]
async fn authority_comes_from_the_url_or_from_the_options() {
    let Some(server) = ZookeeperServer::secure() else { return };
    let ca = server.directory().join("cert.pem");
    let url = format!("{}?ca={}", server.url(), ca.display());
    let (one, other) = (party(&url).await, party(&url).await);
    contract::messages_are_heard(&one, &other).await;
    contract::large_values_are_kept(&one, &other).await;

    let mut opening = Opening::default();
    opening.network.command_timeout = Duration::from_secs(4);
    opening.network.tls_ca = Some(fs::read(ca).unwrap());
    patiently(&server.url(), &opening).await;
}

#[tokio::test]
async fn servers_that_nobody_vouches_for_are_refused() {
    let Some(server) = ZookeeperServer::secure() else { return };
    // The server may be slow at first.
    until("the reason", async || {
        let error = open(&server.url()).await.unwrap_err();
        assert!(error.is_certain(), "{error}");
        error.message().contains("invalid peer certificate") || error.message().contains("no certificates")
    })
    .await;
    let plain = server.url().replace("zks:", "zk:");
    let error = open(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn wrong_files_are_misused() {
    let Some(server) = ZookeeperServer::secure() else { return };
    for name in ["none.pem", "key.pem"] {
        let file = server.directory().join(name);
        let error = open(&format!("{}?ca={}", server.url(), file.display())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
        assert!(error.message().contains("ZooKeeper URL"), "{error}");
    }
}
