//! The limit on open files.

use crate::support::{Server, binary, rest};
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

/// Starts a server that may open 256 files, and returns its log.
fn with_few_files(zmq: &str) -> (Child, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(binary().get_program());
    command.args(["serve", "--http", "127.0.0.1:0", "--zmq", zmq]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (process, line)
}

fn connect(line: &str, start: &str) -> TcpStream {
    TcpStream::connect(line.split_once(start).unwrap().1.split(',').next().unwrap()).unwrap()
}

fn log(mut process: Child) -> String {
    process.kill().unwrap();
    String::from_utf8(process.wait_with_output().unwrap().stderr).unwrap()
}

/// Connections beyond the cap need files while they are refused.
#[test]
fn connections_leave_files_for_other_uses() {
    let (process, line) = with_few_files("off");
    let mut crowd: Vec<_> = (0..600).map(|_| connect(&line, "http://")).collect();
    rest(crowd.last_mut().unwrap());
    let log = log(process);
    assert!(log.contains("--max-connections is reached") && !log.contains("cannot accept"), "{log}");
}

/// A client that connects and sends nothing is in its handshake.
#[test]
fn handshakes_leave_files_for_other_uses() {
    let (process, line) = with_few_files("tcp://127.0.0.1:0");
    let _silent: Vec<_> = (0..600).map(|_| connect(&line, "tcp://")).collect();
    for _ in 0..50 {
        let mut stream = connect(&line, "http://");
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        assert!(rest(&mut stream).contains(" 200 OK"));
    }
    let log = log(process);
    assert!(!log.contains("cannot accept"), "{log}");
}
