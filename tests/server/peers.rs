//! Servers without a shared store that publish their grants to each other.

use crate::support::{Python, Server, free_port, until};
use locker_harness::{Fault, Proxy, eventually};
use std::io::Write;

const MOST: u32 = 50;

/// Sends this many requests and counts the `go`s; one more request goes first.
fn ask(server: &Server, number: u32) -> u32 {
    let mut client = Python::start(&["counts", &server.zmq(), &number.to_string()]);
    assert_eq!(client.line(), "ready");
    client.tell("go on");
    client.finish().trim().parse().unwrap()
}

async fn count(server: &Server, slot: &str) -> u32 {
    let metrics = server.get("/metrics").await.body;
    let start = format!("locker_slots_total{{slot=\"{slot}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_go_of_one_server_counts_at_the_others() {
    let own: Vec<_> = (0..3).map(|_| format!("tcp://127.0.0.1:{}", free_port())).collect();
    let (most, peers) = (MOST.to_string(), own.join(","));
    let options = |own| ["--max-requests", &most, "--in-seconds", "3600", "--publish", own, "--peer", &peers];
    let servers: Vec<_> = own.iter().map(|own| Server::start(&options(own))).collect();
    // Grants before the subscription has reached the publisher are not delivered.
    for (speaker, listener) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let before = count(&servers[listener], "peer").await;
        until("one hears the other", async || {
            ask(&servers[speaker], 0);
            count(&servers[listener], "peer").await > before
        })
        .await;
    }
    for server in &servers {
        ask(server, MOST);
        for listener in &servers {
            until("all that was granted is counted", async || {
                count(listener, "go").await + count(listener, "peer").await == MOST
            })
            .await;
        }
    }
    let mut granted = 0;
    for server in &servers {
        assert_eq!(ask(server, MOST), 0, "the slot is full everywhere");
        granted += count(server, "go").await;
    }
    assert!(granted >= MOST, "{granted}");
}

/// The second socket file is not there yet when the first server starts.
#[tokio::test]
async fn peers_meet_at_socket_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("ipc://{}", directory.path().join(name).display());
    let start = |own: &str, other: &str| {
        Server::start(&["--max-requests", "1000000", "--publish", &at(own), "--peer", &at(other)])
    };
    let servers = [start("first", "second"), start("second", "first")];
    for (speaker, listener) in [(0, 1), (1, 0)] {
        until("one hears the other", async || {
            ask(&servers[speaker], 0);
            count(&servers[listener], "peer").await > 0
        })
        .await;
    }
}

#[test]
fn own_peer_counts_nothing_twice() {
    let own = format!("tcp://127.0.0.1:{}", free_port());
    let server =
        Server::start(&["--max-requests", "20", "--in-seconds", "3600", "--publish", &own, "--peer", &own]);
    assert_eq!(ask(&server, 100), 19);
}

/// Host names of containers are unknown until the containers run.
#[test]
fn unknown_peer_host_does_not_delay_the_start() {
    let keys = Python::run(&["curve_keys"]);
    let mut own = tempfile::NamedTempFile::new().unwrap();
    own.write_all(keys.split_whitespace().nth(1).unwrap().as_bytes()).unwrap();
    let key = own.path().to_str().unwrap();
    let server = Server::start(&["--curve-key-file", key, "--peer", "tcp://nowhere.invalid:7778"]);
    eventually("it is told", || server.errors().contains("nowhere.invalid").then_some(()));
}

/// The network between the peers was cut for long, and neither side closed the connection.
#[tokio::test]
async fn silent_peer_is_reconnected() {
    let most = ["--max-requests", "1000000", "--in-seconds", "3600"];
    let speaker = Server::start(&[&most[..], &["--publish", "tcp://127.0.0.1:0"]].concat());
    let port = speaker.publish().rsplit_once(':').unwrap().1.parse().unwrap();
    let network = Proxy::to(port);
    let peer = network.url().replace("redis", "tcp");
    let listener = Server::start(&[&most[..], &["--peer", &peer]].concat());
    let is_heard = async || {
        let before = count(&listener, "peer").await;
        until("one hears the other", async || {
            ask(&speaker, 0);
            count(&listener, "peer").await > before
        })
        .await;
    };
    is_heard().await;
    network.set_for_open(Fault::DropReplies);
    is_heard().await;
}

/// The peer has two addresses, such as a name and the address behind it.
#[tokio::test]
async fn a_server_that_is_a_peer_twice_counts_once() {
    let most = ["--max-requests", "1000000", "--in-seconds", "3600"];
    let speaker = Server::start(&[&most[..], &["--publish", "tcp://127.0.0.1:0"]].concat());
    let publish = speaker.publish();
    let port = publish.rsplit_once(':').unwrap().1.parse().unwrap();
    let ways = [Proxy::to(port), Proxy::to(port)];
    let peers = ways.each_ref().map(|way| way.url().replace("redis", "tcp"));
    let listener = Server::start(&[&most[..], &["--peer", &peers.join(",")]].concat());
    until("it listens twice", async || {
        speaker.get("/metrics").await.body.contains("\nlocker_zmq_connections 2\n")
    })
    .await;
    until("one hears the other", async || {
        ask(&speaker, 0);
        count(&listener, "peer").await > 0
    })
    .await;
    let before = count(&listener, "peer").await;
    (0..20).for_each(|_| assert_eq!(ask(&speaker, 0), 0));
    until("all is counted", async || count(&listener, "peer").await >= before + 20).await;
    assert!(count(&listener, "peer").await <= count(&speaker, "go").await);
}
