//! Connections with TLS.

use super::*;
use locker_core::store::opening::NetworkOptions;
use std::{fs, path::Path, process::Command};

const SETTINGS: &str = "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n\
                        [name]\nCN = localhost\n\
                        [extensions]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = DNS:localhost\n";

/// Makes a certificate for `localhost`, which is its own authority, in files with this name.
fn certificate(folder: &Path, name: &str) -> Option<Vec<u8>> {
    let settings = folder.join("openssl.cnf");
    fs::write(&settings, SETTINGS).unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .arg("-config")
        .arg(settings)
        .arg("-keyout")
        .arg(folder.join(format!("{name}.key")))
        .arg("-out")
        .arg(folder.join(format!("{name}.crt")))
        .output();
    let Ok(output) = made else { return locker_harness::missing("there is no openssl") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(fs::read(folder.join(format!("{name}.crt"))).unwrap())
}

async fn open(url: &str, authority: &[u8]) -> Result<Postgres> {
    let network = NetworkOptions { tls_ca: Some(authority.to_vec()), ..NetworkOptions::default() };
    in_time("an answer", super::open(url, &Opening { network, ..Opening::default() })).await
}

#[tokio::test]
async fn certificate_and_name_are_checked() {
    let Some(server) = PostgresServer::start() else { return };
    let folder = server.directory();
    let (Some(authority), Some(other)) = (certificate(folder, "server"), certificate(folder, "other")) else {
        return;
    };
    let url = server.url().replace("127.0.0.1", "localhost");
    let without = open(&format!("{url}?sslmode=require"), &authority).await.unwrap_err();
    assert!(without.message().contains("TLS"), "{without:?}");

    let key = fs::read_to_string(folder.join("server.key")).unwrap();
    // The file belongs to the server's user, and nobody else may read it. A program that ends before it has read what
    // it is given fails the statement, if it is quick.
    server.psql(&format!(
        "COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; umask 077; cat > {}/data/server.key <<E\n{key}E'",
        folder.display()
    ));
    server.psql(&format!("ALTER SYSTEM SET ssl_cert_file = '{}/server.crt'", folder.display()));
    server.psql("ALTER SYSTEM SET ssl = on");
    server.psql("SELECT pg_reload_conf()");
    let party = Party::new(until_open(&format!("{url}?sslmode=require"), &authority).await);
    party.write(write(&fresh("tls"), 0, b"x")).await;
    let plain = server.psql(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'locker' AND NOT ssl",
    );
    assert_eq!(plain, "0");
    for (url, authority) in [(&url, &other), (&server.url(), &authority)] {
        let error = open(&format!("{url}?sslmode=require"), authority).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.message().contains("certificate"), "{error:?}");
    }
    let error = open(&format!("{url}?sslmode=require"), b"none").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error:?}");
}

async fn until_open(url: &str, authority: &[u8]) -> Postgres {
    let mut opened = None;
    until("the server with TLS", async || {
        opened = open(url, authority).await.ok();
        opened.is_some()
    })
    .await;
    opened.unwrap()
}
