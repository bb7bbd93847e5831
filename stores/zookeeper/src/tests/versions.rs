//! Servers that lack what the store needs.

use super::{
    super::{health, hosts::Servers, url},
    *,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
};

const ADD_WATCH: u32 = 106;

/// An operation that no server knows.
const UNKNOWN: u32 = 199;

/// Passes requests on, as a server gets them that does not know `addWatch`.
async fn pass_on(mut client: OwnedReadHalf, mut server: impl AsyncWriteExt + Unpin) {
    let mut is_first = true;
    while let Ok(len) = client.read_u32().await {
        let mut frame = vec![0; len as usize];
        client.read_exact(&mut frame).await.unwrap();
        // The first one begins the session, and has no operation.
        if !is_first && frame[4..8] == ADD_WATCH.to_be_bytes() {
            frame[4..8].copy_from_slice(&UNKNOWN.to_be_bytes());
        }
        is_first = false;
        if server.write_u32(len).await.is_err() || server.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Returns the port of a server that behaves as one before 3.6.
async fn old_server(server: &ZookeeperServer) -> u16 {
    let (listener, port) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), server.port());
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut answers, requests) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
            let (client, mut to_client) = client.into_split();
            tokio::spawn(pass_on(client, requests));
            tokio::spawn(async move { drop(copy(&mut answers, &mut to_client).await) });
        }
    });
    own
}

#[tokio::test]
async fn old_server_is_refused_by_name() {
    let Some(server) = ZookeeperServer::start() else { return };
    let port = old_server(&server).await;
    let error = open(&format!("zk://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.message().contains("ZooKeeper 3.6 or newer"), "{error}");
}

#[tokio::test]
async fn server_tells_its_release() {
    let Some(server) = ZookeeperServer::start() else { return };
    let mut url = url::read(&server.url()).unwrap();
    let servers = Servers::new(&mut url, None).unwrap();
    let answer = health::ask(&servers).await.unwrap();
    assert!(health::release(&answer) >= Some([3, 6, 0]), "{answer}");
    assert!(!health::loses_writes(&answer), "{answer}");
    let of_three = answer.replace("standalone", "leader");
    assert_eq!(health::warning(&of_three).is_some(), health::loses_writes(&of_three));
}
