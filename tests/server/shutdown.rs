//! Start and end of a server.

use crate::support::{Server, binary, ended, free_port, rest};
use locker_harness::RedisServer;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

#[tokio::test]
async fn signals_end_the_server_in_order() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = Server::start(&[]);
        let waiters = [
            server.queue("/v1/event/e/wait", "event/e", 0).await,
            server.queue("/v1/watchdog/w/wait", "watchdog/w", 0).await,
        ];
        let mut idle = server.connect();
        let started = std::time::Instant::now();
        server.signal(signal);
        for waiter in waiters {
            let answer = waiter.await.unwrap();
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        }
        assert_eq!(server.ended().code(), Some(0));
        assert!(started.elapsed().as_secs() < 5);
        assert_eq!(rest(&mut idle), "");
        assert!(std::net::TcpStream::connect(server.http()).is_err());
    }
}

#[test]
fn closed_outputs_do_not_end_the_server() {
    let (log, writer) = std::io::pipe().unwrap();
    let (announced, announcing) = std::io::pipe().unwrap();
    drop((log, announced));
    let http = format!("127.0.0.1:{}", free_port());
    let mut command = binary();
    command.args(["serve", "--http", &http, "--zmq", "off", "--max-connections", "1"]);
    let mut process = command.stdout(announcing).stderr(writer).spawn().unwrap();
    let connect = || std::net::TcpStream::connect(&http).ok();
    let first = locker_harness::eventually("a connection", connect);
    let mut beyond = connect().unwrap();
    assert!(rest(&mut beyond).contains(" 503 "), "logged, and then refused");
    drop(first);
    locker_harness::eventually("room for another one", || {
        let mut next = connect()?;
        next.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        rest(&mut next).contains(" 200 ").then_some(())
    });
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert_eq!(ended(&mut process).code(), Some(0));
}

/// Started as `nohup` does it.
#[test]
fn ignored_sighup_does_not_end_the_server() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(binary().get_program());
    command
        .args(["serve", "--http", "127.0.0.1:0", "--zmq", "off"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    for signal in [Signal::HUP, Signal::TERM] {
        kill_process(Pid::from_child(&process), signal).unwrap();
    }
    assert_eq!(ended(&mut process).code(), Some(0), "{line}");
    let log = String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap();
    assert!(log.contains("SIGTERM: shutting down") && !log.contains("SIGHUP"), "{log}");
}

#[tokio::test]
async fn half_sent_requests_do_not_delay_the_end() {
    let mut server = Server::start(&[]);
    let head = "POST /v1/event/e/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab";
    let mut stuck = [&head[..30], head].map(|sent| {
        let mut stream = server.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        stream
    });
    let _waiter = server.queue("/v1/event/e/wait", "event/e", 0).await;
    let started = std::time::Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    assert!(started.elapsed().as_secs() < 3, "they were given up after 4 s");
    assert_eq!(rest(&mut stuck[0]), "");
    let answer = rest(&mut stuck[1]);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("connection: close\r\n"), "{answer}");
}

/// The first one waits for a client that does not read its answers.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&[]);
    server.fill_the_list();
    let _stuck = server.asking_for_much(150);
    let _waiter = server.queue("/v1/event/e/wait", "event/e", 0).await;
    server.signal(Signal::TERM);
    crate::support::until("the first signal is heard", async || server.errors().contains("shutting down"))
        .await;
    server.signal(Signal::INT);
    assert_eq!(server.ended().code(), Some(1));
}

/// The store accepts the connection and never replies.
#[test]
fn signal_ends_a_server_during_startup() {
    for signal in [Signal::TERM, Signal::INT] {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let store = format!("redis://{}", silent.local_addr().unwrap());
        let mut process = binary();
        process.args(["serve", "--http", "127.0.0.1:0", "--zmq", "off", "--store", &store]);
        let mut process = process.spawn().unwrap();
        let _connected = silent.accept().unwrap();
        kill_process(Pid::from_child(&process), signal).unwrap();
        assert_eq!(ended(&mut process).code(), Some(0));
    }
}

/// No server at the port, a server that never replies, and a wrong password.
#[test]
fn unavailable_store_prevents_the_start() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(redis) = RedisServer::with(&["--requirepass", "right"]) else { return };
    let cases = [
        (free_port(), "refused", "start the store first"),
        (silent.local_addr().unwrap().port(), "within", "start the store first"),
        (redis.port(), "WRONGPASS", "pass user and password in the URL"),
    ];
    for (port, cause, hint) in cases {
        let store = format!("redis://me:hidden@127.0.0.1:{port}/0");
        let output = binary()
            .args(["serve", "--http", "127.0.0.1:0", "--zmq", "off", "--store", &store])
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{message}");
        for part in [&format!("redis://..@127.0.0.1:{port}/0"), cause, hint] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("hidden"), "{message}");
    }
}

#[test]
fn evicting_store_is_refused_unless_allowed() {
    let Some(redis) = RedisServer::with(&["--maxmemory-policy", "volatile-lru"]) else { return };
    let serve = ["serve", "--http", "127.0.0.1:0", "--zmq", "off"];
    let run = ["run", "a", "--", "true"];
    let start = |arguments: &[&str]| {
        let mut command = binary();
        command.args(arguments).env("LOCKER_STORE", redis.url()).env("LOCKER_URL", redis.url());
        command
    };
    for (arguments, code) in [(&serve[..], 1), (&run, 64), (&["ls"], 64), (&["unlock", "a"], 64)] {
        let output = start(arguments).output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{reason}");
        assert!(reason.contains("volatile-lru") && reason.contains("--allow-eviction"), "{reason}");
        assert!(!reason.contains("in the URL"), "{reason}");
    }
    let _server = Server::start(&["--store", &redis.url(), "--allow-eviction"]);
    let allowed = start(&["run", "--allow-eviction", "a", "--", "true"]).status().unwrap();
    assert!(allowed.success());
    assert!(start(&run).env("LOCKER_ALLOW_EVICTION", "1").status().unwrap().success());
}

#[test]
fn a_port_in_use_is_an_error() {
    let server = Server::start(&[]);
    for (option, address) in [("--http", server.http().to_string()), ("--zmq", server.zmq())] {
        let other = if option == "--http" { ["--zmq", "off"] } else { ["--http", "off"] };
        let output = binary().args(["serve", option, &address]).args(other).output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{reason}");
        assert!(reason.contains(&address) && reason.to_lowercase().contains("in use"), "{reason}");
    }
}

#[test]
fn first_line_names_addresses_and_store() {
    let server = Server::start_at(
        &format!("127.0.0.1:{}", free_port()),
        "tcp://127.0.0.1:0",
        &["--publish", "tcp://127.0.0.1:0"],
    );
    let expected = format!(
        "http://{}, zmq {}, publish {}, store memory://\n",
        server.http(),
        server.zmq(),
        server.publish()
    );
    assert!(server.line.ends_with(&expected), "{}", server.line);
}

#[test]
fn wrong_options_are_named() {
    for (arguments, expected) in [
        (&["--http", "nonsense"][..], "nonsense"),
        (&["--http", "off", "--zmq", "http://127.0.0.1:1"], "give tcp://host:port"),
        (&["--store", "nonsense://"], "nonsense"),
        (&["--max-requests", "0"], "--max-requests"),
        (&["--max-requests", "9007199254740992"], "--max-requests"),
        (&["--in-seconds", "0"], "--in-seconds"),
        (&["--in-seconds", "1e9"], "--in-seconds"),
        (&["--grace", "soon"], "--grace"),
        (&["--grace", "11y"], "--grace"),
        (&["--grace", "18446744073709551615s 1000ms"], "--grace"),
        (&["--max-requests", "-1"], "'-1' for '--max-requests <N>'"),
        (&["--max-names", "-1"], "'-1' for '--max-names <N>'"),
        (&["--in-seconds", "-1"], "greater than 0"),
        (&["--grace", "-1s"], "a time cannot be negative"),
        (&["--event-ttl", "-1s"], "a time cannot be negative"),
        (&["--event-ttl", "11y"], "--event-ttl"),
        (&["--event-ttl", "999us"], "--event-ttl"),
        (&["--header-timeout", "10000000000y"], "--header-timeout"),
        (&["--header-timeout", "25h"], "--header-timeout"),
        (&["--http", "off", "--zmq", "off"], "--http off and --zmq off"),
        (&["--zmq", "off", "--publish", "tcp://127.0.0.1:0"], "--publish"),
        (&["--zmq", "off", "--peer", "tcp://127.0.0.1:1"], "--peer"),
        (&["--config", "/nowhere/file"], "/nowhere/file"),
        (&["--curve-clients-file", "x"], "--curve-key-file"),
        (&["--restart-grace", "60s"], "use --store file:///DIR"),
    ] {
        let mut process = binary();
        // The default ports may be in use on this machine.
        let ports = [("LOCKER_HTTP", "127.0.0.1:0"), ("LOCKER_ZMQ", "tcp://127.0.0.1:0")];
        process.arg("serve").args(arguments).envs(ports).stdout(Stdio::piped());
        let mut process = process.stderr(Stdio::piped()).spawn().unwrap();
        ended(&mut process);
        let output = process.wait_with_output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && reason.contains(expected), "{arguments:?}: {reason}");
    }
}

#[test]
fn variables_and_the_file_configure_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "zmq = \"off\"\nmax-names = 7\n").unwrap();
    let mut command = binary();
    command.args(["serve", "--config"]).arg(file.path()).env("LOCKER_HTTP", "127.0.0.1:0");
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(process.stdout.take().unwrap()), &mut line)
        .unwrap();
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert!(ended(&mut process).success());
    assert!(line.contains("http://127.0.0.1:") && !line.contains("zmq"), "{line}");
}

#[test]
fn help_has_examples() {
    for (arguments, expected) in [
        (&["--help"][..], "LOCKER_URL"),
        (&["serve", "--help"], "LOCKER_MAX_REQUESTS"),
        (&["run", "--help"], "LOCKER_FENCE"),
        (&["unlock", "--help"], "the holder is told"),
    ] {
        let output = binary().args(arguments).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains(expected), "{help}");
    }
}
