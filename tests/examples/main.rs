//! The examples, run as programs.

mod leader_page;
mod nightly_report;
mod on_stores;
mod payment;
#[cfg(feature = "tower")]
mod rate_limited_api;
mod tutorial;
mod web_handler;
mod withdraw;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

/// The program that `cargo test` has built beside this one.
fn example(name: &str) -> Command {
    let mut folder = std::env::current_exe().expect("a test runs from a file");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is missing: `cargo build --examples` makes it", program.display());
    Command::new(program)
}

/// A program that is stopped when its test ends.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).spawn().expect("the example starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("the program can be stopped");
        self.0.wait().expect("the program has ended");
    }
}

/// Returns the address that a server prints when it starts.
fn listening(running: &mut Running) -> String {
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().strip_prefix("listening on http://").expect("the address in the output").to_owned()
}

/// Sends one request, of which `head` is the first lines, and returns the whole response.
fn exchange(address: &str, head: &str) -> String {
    send(address, head, "")
}

fn send(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{head}host: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}
