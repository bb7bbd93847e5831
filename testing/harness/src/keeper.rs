//! The shells that run servers, and end them when the tests do.

use rustix::process::Pid;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// Starts a shell that prints the process id of the server that it starts, and returns the shell and that id.
pub(crate) fn spawn(mut shell: Command) -> (Child, Option<Pid>) {
    let spawned = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut keeper = spawned.expect("a shell to start the server");
    let mut line = String::new();
    let output = keeper.stdout.take().expect("the shell's output");
    BufReader::new(output).read_line(&mut line).expect("the server's process id");
    (keeper, line.trim().parse().ok().and_then(Pid::from_raw))
}
