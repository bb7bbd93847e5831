//! A client vanishes without closing the connection, for example because its host has lost power.

use crate::support::{Server, rest};
use locker_harness::missing;
use socket2::{Domain, Socket, Type};
use std::{
    env,
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

/// Set for the test inside of the namespace.
const INSIDE: &str = "LOCKER_TEST_NAMESPACE";

/// The address of clients, which vanishes.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 2);

/// Longer than the server takes, and shorter than keep-alive with other settings or the retries of TCP, some 15
/// minutes.
const NOTICED: Duration = Duration::from_secs(45);

/// In a network namespace, where the address of clients can be removed.
#[test]
fn vanished_clients_stop_waiting() {
    let script =
        format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo || exit 77; exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-Urn", "sh", "-c", &script]).arg(env::current_exe().unwrap());
    command.args(["--exact", "vanished::inside_of_the_namespace", "--nocapture"]).env(INSIDE, "1");
    let Ok(ended) = command.output() else { return missing("unshare").unwrap_or_default() };
    let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(77) || text.contains("unshare failed") {
        return missing("network namespaces of the user").unwrap_or_default();
    }
    assert!(ended.status.success() && text.contains("all has been noticed"), "{text}");
}

/// Connects from the address that vanishes.
fn connect(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::V4(ADDRESS), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

async fn is_waiting(server: &Server, event: &str) -> bool {
    server.get(&format!("/v1/event/{event}")).await.body.contains("\"waiting\":1")
}

#[tokio::test]
async fn inside_of_the_namespace() {
    if env::var_os(INSIDE).is_none() {
        return;
    }
    let server = Server::start(&[]);
    let wait = |event| format!("GET /v1/event/{event}/wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut present = server.connect();
    present.write_all(wait("present").as_bytes()).unwrap();
    let mut idle = connect(server.http());
    idle.write_all(wait("idle").as_bytes()).unwrap();
    // It vanishes while an answer is on its way.
    let mut answered = connect(server.http());
    answered.write_all((wait("first") + &wait("second")).as_bytes()).unwrap();
    for event in ["present", "idle", "first"] {
        server.until_waiting(&format!("event/{event}"), 1).await;
    }
    let removed =
        Command::new("ip").args(["address", "delete", &format!("{ADDRESS}/32"), "dev", "lo"]).status();
    assert!(removed.unwrap().success());
    assert_eq!(server.post("/v1/event/first/send").await.status, 204);
    server.until_waiting("event/second", 1).await;
    let both = async {
        while is_waiting(&server, "idle").await || is_waiting(&server, "second").await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(NOTICED, both).await.expect("the server notices");
    assert!(is_waiting(&server, "present").await);
    assert_eq!(server.post("/v1/event/present/send").await.status, 204);
    assert_eq!(rest(&mut present).matches("HTTP/1.1 20").count(), 1);
    println!("all has been noticed");
}
