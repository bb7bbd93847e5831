//! The ZeroMQ side against pyzmq.

use crate::support::{Python, Server, free_port, until};
use locker_harness::{RedisServer, Signal};
use std::time::Instant;

#[test]
fn clients_may_start_before_the_server() {
    let endpoint = format!("tcp://127.0.0.1:{}", free_port());
    let mut client = Python::start(&["starts_before_the_server", &endpoint]);
    assert_eq!(client.line(), "sent");
    let _server = Server::start_at("127.0.0.1:0", &endpoint, &[]);
    client.tell("started");
    client.finish();
}

#[test]
fn clients_outlive_a_killed_server() {
    let endpoint = format!("tcp://127.0.0.1:{}", free_port());
    let server = Server::start_at("127.0.0.1:0", &endpoint, &[]);
    let mut client = Python::start(&["outlives_a_killed_server", &endpoint]);
    assert_eq!(client.line(), "waiting");
    drop(server);
    let _server = Server::start_at("127.0.0.1:0", &endpoint, &[]);
    client.tell("restarted");
    client.finish();
}

#[test]
fn the_reference_client_gets_go_and_sorry() {
    let server = Server::start(&["--max-requests", "3", "--in-seconds", "3600"]);
    let mut client = Python::start(&["relays", &server.zmq()]);
    let answers: Vec<_> = (0..5)
        .map(|_| {
            assert_eq!(client.line(), "");
            client.tell("let me go");
            client.line()
        })
        .collect();
    assert_eq!(answers, ["go", "go", "go", "sorry", "sorry"]);
}

#[test]
fn every_primitive_answers_as_over_http() {
    let server = Server::start(&[]);
    Python::run(&["every_primitive_answers", &server.zmq()]);
}

#[test]
fn slot_starts_with_its_first_request() {
    let server = Server::start(&["--max-requests", "2", "--in-seconds", "0.4"]);
    let mut client = Python::start(&["relays", &server.zmq()]);
    let mut ask = || {
        client.line();
        client.tell("let me go");
        client.line()
    };
    let started = Instant::now();
    assert_eq!([ask(), ask()], ["go", "go"]);
    while ask() == "sorry" {}
    assert!(started.elapsed() >= std::time::Duration::from_millis(400), "three within one slot");
}

#[test]
fn grace_turns_a_sorry_into_a_go() {
    let server = Server::start(&["--max-requests", "1", "--in-seconds", "0.5", "--grace", "10s"]);
    let mut client = Python::start(&["relays", &server.zmq()]);
    let started = Instant::now();
    for _ in 0..4 {
        client.line();
        client.tell("let me go");
        assert_eq!(client.line(), "go");
    }
    assert!(started.elapsed() >= std::time::Duration::from_millis(1500), "more than one per slot");
}

#[test]
fn short_grace_does_not_delay_a_sorry() {
    let server = Server::start(&["--max-requests", "1", "--in-seconds", "3600", "--grace", "1s"]);
    let mut client = Python::start(&["relays", &server.zmq()]);
    for expected in ["go", "sorry", "sorry"] {
        client.line();
        client.tell("let me go");
        assert_eq!(client.line(), expected);
    }
}

#[test]
fn crowds_are_served() {
    let server = Server::start(&["--max-requests", "700", "--in-seconds", "3600"]);
    assert_eq!(Python::run(&["crowds_are_served", &server.zmq()]), "go 700\n");
}

#[tokio::test]
async fn clients_may_vanish() {
    let server = Server::start(&[]);
    Python::run(&["may_vanish", &server.zmq()]);
    let gone = r#"locker_requests_total{call="semaphore/acquire",status="gone",transport="zeromq"}"#;
    until("each is counted", async || server.get("/metrics").await.body.contains(&format!("{gone} 200")))
        .await;
}

#[test]
fn heartbeats_keep_a_connection() {
    let server = Server::start(&[]);
    Python::run(&["heartbeats_keep_a_connection", &server.zmq()]);
}

#[test]
fn strangers_do_no_harm() {
    let server = Server::start(&[]);
    Python::run(&["strangers_do_no_harm", &server.zmq(), &server.pid().to_string()]);
}

#[test]
fn a_huge_frame_is_refused() {
    let server = Server::start(&[]);
    Python::run(&["a_huge_frame_is_refused", &server.zmq(), &server.pid().to_string()]);
}

#[test]
fn beyond_the_cap_is_no_message() {
    let server = Server::start(&[]);
    Python::run(&["beyond_the_cap_is_no_message", &server.zmq()]);
}

#[test]
fn many_frames_are_refused() {
    let server = Server::start(&[]);
    Python::run(&["many_frames_are_refused", &server.zmq()]);
}

#[test]
fn half_open_handshakes_do_no_harm() {
    let server = Server::start(&[]);
    Python::run(&["half_open_handshakes_do_no_harm", &server.zmq()]);
}

const CONNECTIONS: &str = "locker_zmq_connections";
const REFUSED: &str = r#"locker_refused_connections_total{transport="zeromq"}"#;

async fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").await.body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn assert_warned_once_in_ten_seconds(server: &Server, started: Instant) {
    let (errors, intervals) = (server.errors(), 1 + started.elapsed().as_secs() / 10);
    let warnings = errors.matches("--max-zmq-connections is reached").count() as u64;
    assert!((1..=intervals).contains(&warnings), "in {intervals} times ten seconds: {errors}");
}

#[tokio::test]
async fn connections_are_capped() {
    let started = Instant::now();
    let server = Server::start(&["--max-zmq-connections", "3"]);
    let mut client = Python::start(&["beyond_the_cap_is_closed", &server.zmq(), &server.pid().to_string()]);
    assert_eq!(client.line(), "full");
    assert_eq!((metric(&server, CONNECTIONS).await, metric(&server, REFUSED).await), (3, 0));
    client.tell("counted");
    assert_eq!(client.line(), "one too many");
    until("the last is refused, too", async || metric(&server, REFUSED).await > 500).await;
    assert_eq!(metric(&server, CONNECTIONS).await, 3);
    client.tell("counted");
    client.finish();
    assert_warned_once_in_ten_seconds(&server, started);
}

#[tokio::test]
async fn listeners_are_capped() {
    let publisher = format!("tcp://127.0.0.1:{}", free_port());
    let most = ["--max-requests", "1000000000", "--in-seconds", "3600", "--max-zmq-connections", "3"];
    let started = Instant::now();
    let server = Server::start(&[&most[..], &["--publish", &publisher]].concat());
    let mut client = Python::start(&["listeners_beyond_the_cap_are_closed", &server.zmq(), &publisher]);
    assert_eq!(client.line(), "full");
    assert_eq!((metric(&server, CONNECTIONS).await, metric(&server, REFUSED).await), (3, 0));
    client.tell("counted");
    assert_eq!(client.line(), "refused");
    until("the last is refused, too", async || metric(&server, REFUSED).await >= 20).await;
    until("the remaining listeners are counted", async || metric(&server, CONNECTIONS).await == 3).await;
    client.tell("counted");
    client.finish();
    assert_warned_once_in_ten_seconds(&server, started);
}

#[test]
fn client_that_never_reads_does_no_harm() {
    let server = Server::start(&[]);
    Python::run(&["client_that_never_reads_does_no_harm", &server.zmq(), &server.pid().to_string()]);
}

/// Calls that arrive faster than they are carried out are not kept in memory.
#[tokio::test]
async fn calls_beyond_the_cap_are_refused() {
    let Some(redis) = RedisServer::start() else { return };
    let server = Server::start(&["--store", &redis.url(), "--max-zmq-calls", "4"]);
    let mut client = Python::start(&["calls_beyond_the_cap_are_refused", &server.zmq()]);
    assert_eq!(client.line(), "ready");
    redis.signal(Signal::STOP);
    client.tell("stopped");
    assert_eq!(client.line(), "refused");
    assert_eq!(metric(&server, r#"locker_slots_total{slot="sorry"}"#).await, 1);
    redis.signal(Signal::CONT);
    client.tell("goes on");
    client.finish();
}

/// A `sorry` that could not be delayed counts as well.
#[tokio::test]
async fn undelayed_sorry_is_counted() {
    let server = Server::start(&["--in-seconds", "3600", "--grace", "3600s", "--max-waits", "1"]);
    let mut client = Python::start(&["beyond_the_waits_is_sorry", &server.zmq()]);
    assert_eq!(client.line(), "held back");
    let line = r#"locker_waiting{kind="rate"} 1"#;
    until("it is", async || server.get("/metrics").await.body.contains(line)).await;
    client.tell("one waits");
    client.finish();
    assert_eq!(metric(&server, r#"locker_slots_total{slot="sorry"}"#).await, 1);
}

/// A client that is about to call a server with an unavailable store.
fn asking_of_a_frozen_store(client: &str) -> Option<(RedisServer, Server, Python)> {
    let redis = RedisServer::start()?;
    let server = Server::start(&["--store", &redis.url()]);
    let mut client = Python::start(&[client, &server.zmq()]);
    assert_eq!(client.line(), "ready");
    redis.signal(Signal::STOP);
    client.tell("stopped");
    Some((redis, server, client))
}

/// A new connection with the identity of another one replaces it, but gets none of its answers.
#[test]
fn answers_reach_their_client() {
    let Some((redis, _server, mut client)) = asking_of_a_frozen_store("answers_reach_their_client") else {
        return;
    };
    assert_eq!(client.line(), "replaced");
    redis.signal(Signal::CONT);
    client.tell("goes on");
    client.finish();
}

#[tokio::test]
async fn answers_reach_their_client_at_shutdown() {
    let Some((redis, mut server, mut client)) =
        asking_of_a_frozen_store("answers_go_to_who_asked_at_the_end")
    else {
        return;
    };
    assert_eq!(client.line(), "under way");
    server.signal(Signal::TERM);
    until("it is going", async || server.errors().contains("shutting down")).await;
    client.tell("going");
    assert_eq!(client.line(), "replaced");
    redis.signal(Signal::CONT);
    assert!(server.ended().success());
    client.tell("gone");
    client.finish();
}

/// Even if the next connection takes the identity immediately.
#[test]
fn reused_identity_gets_no_old_answers() {
    let server = Server::start(&[]);
    Python::run(&["a_name_changes_hands", &server.zmq()]);
}

/// Only subscriptions to the published topic are kept.
#[test]
fn subscriptions_take_no_room() {
    let publisher = format!("tcp://127.0.0.1:{}", free_port());
    let server = Server::start(&["--max-requests", "1000000000", "--publish", &publisher]);
    Python::run(&["subscriptions_take_no_room", &server.zmq(), &publisher, &server.pid().to_string()]);
}

#[test]
fn unread_long_answers_are_dropped() {
    let server = Server::start(&[]);
    Python::run(&["unread_long_answers_are_dropped", &server.zmq(), &server.pid().to_string()]);
}

/// Calls of 64 KiB on many connections could otherwise fill the memory while they wait.
#[test]
fn bytes_of_waiting_calls_are_capped() {
    let server = Server::start(&["--max-zmq-bytes", "1048576"]);
    Python::run(&["bytes_of_calls_are_capped", &server.zmq()]);
}

#[test]
fn one_socket_uses_several_servers() {
    let (first, mut second) = (Server::start(&[]), Server::start(&[]));
    let mut client = Python::start(&["asks_several_servers", &first.zmq(), &second.zmq()]);
    assert_eq!(client.line(), "four calls at two servers");
    second.signal(rustix::process::Signal::KILL);
    second.ended();
    client.tell("one is gone");
    assert_eq!(client.line(), "the other one goes on");
    client.finish();
}

#[test]
fn relaxed_clients_get_their_own_answers() {
    let server = Server::start(&[]);
    Python::run(&["relaxed_clients_get_their_own_answers", &server.zmq()]);
}

#[test]
fn later_requests_overtake_waiters() {
    let mut server = Server::start(&[]);
    let mut client = Python::start(&["later_requests_overtake", &server.zmq()]);
    assert_eq!(client.line(), "waiting");
    server.signal(Signal::TERM);
    client.tell("signalled");
    client.finish();
    assert!(server.ended().success());
}

#[tokio::test]
async fn equal_calls_get_equal_answers() {
    let server = Server::start(&[]);
    let mut client = Python::start(&["relays", &server.zmq()]);
    for (method, target) in [
        ("GET", "/v1/semaphore/same/acquire?key=k&size=1&maxwait=0"),
        ("GET", "/v1/semaphore/same/acquire?key=other&maxwait=0"),
        ("POST", "/v1/semaphore/same/release"),
        ("POST", "/v1/semaphore/same/release?key=nobody"),
        ("POST", "/v1/semaphore/same/renew?key=nobody"),
        ("POST", "/v1/tokenbucket/same/acquire?size=1000&maxwait=0"),
        ("POST", "/v1/tokenbucket/same/acquire?size=-1"),
        ("POST", "/v1/tokenbucket/same/acquire?interval=0"),
        ("POST", "/v1/event/same/wait?maxwait=0"),
        ("POST", "/v1/watchdog/same/wait?maxwait=0"),
        ("POST", "/v1/watchdog/same/kick?expires=0"),
        ("POST", "/v1/watchdog/same/kick"),
        ("GET", "/v1/event/a%2Fb/wait"),
        ("GET", "/v1/event/%00/wait"),
        ("GET", "/v1/event/same/wait?nonsense=1"),
        ("GET", "/v1/event/same/wait?size=1&size=1"),
        ("GET", "/v1/event/same/wait?size="),
        ("GET", "/v1/event/same/nothing"),
        ("POST", "/v1/event/same"),
        ("DELETE", "/v1/event/same/wait"),
        ("DELETE", "/v1/event/unknown"),
        ("GET", "/v1/event/unknown"),
        ("GET", "/v1"),
        ("POST", "/v1"),
    ] {
        let http = match method {
            "GET" => server.get(target).await,
            "POST" => server.post(target).await,
            _ => server.delete(target).await,
        };
        client.line();
        client.tell(&format!("{method} {target}"));
        assert_eq!(client.line(), format!("{}\u{1f}{}", http.status, http.body), "{method} {target}");
    }
}
