//! The limit on open files.

use crate::support::{Python, Server, binary, rest};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

#[tokio::test]
async fn the_soft_limit_on_files_is_raised() {
    let server = Server::start(&[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

/// Starts a server that may open this many files, and returns its first line.
fn with_few_files(files: usize, zmq: &str) -> (Child, String) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"]).arg(binary().get_program());
    command.args(["serve", "--http", "127.0.0.1:0", "--zmq", zmq]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (process, line)
}

fn after<'a>(line: &'a str, start: &str) -> &'a str {
    line.split_once(start).unwrap().1.split(',').next().unwrap()
}

fn connect(line: &str, start: &str) -> TcpStream {
    TcpStream::connect(after(line, start)).unwrap()
}

fn log(mut process: Child) -> String {
    process.kill().unwrap();
    String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap()
}

/// Connections beyond the cap need files while they are refused.
#[test]
fn connections_leave_files_for_other_uses() {
    let (process, line) = with_few_files(256, "off");
    let mut crowd: Vec<_> = (0..600).map(|_| connect(&line, "http://")).collect();
    rest(crowd.last_mut().unwrap());
    let log = log(process);
    assert!(log.contains("--max-connections is reached") && !log.contains("cannot accept"), "{log}");
}

/// A client that connects and sends nothing is in its handshake.
#[test]
fn handshakes_leave_files_for_other_uses() {
    let (process, line) = with_few_files(256, "tcp://127.0.0.1:0");
    let _silent: Vec<_> = (0..600).map(|_| connect(&line, "tcp://")).collect();
    for _ in 0..50 {
        let mut stream = connect(&line, "http://");
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        assert!(rest(&mut stream).contains(" 200 OK"));
    }
    let log = log(process);
    assert!(!log.contains("cannot accept"), "{log}");
}

/// HTTP takes the files that ZeroMQ does not need, except a part that stays for its clients.
#[test]
fn transports_share_the_files() {
    let (process, line) = with_few_files(400, "tcp://127.0.0.1:0");
    let wait = || {
        let mut stream = connect(&line, "http://");
        stream.write_all(b"POST /v1/event/e/wait HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    };
    let crowd: Vec<_> = (0..310).map(|_| wait()).collect();
    let mut clients = Python::start(&["crowd_beside_http_waiters", after(&line, "zmq "), "300", "16"]);
    assert_eq!(clients.line(), "served");
    drop(crowd);
    clients.tell("HTTP has gone");
    assert_eq!(clients.line(), "more");
    clients.finish();
    let log = log(process);
    assert!(!log.contains("cannot accept"), "{log}");
}
