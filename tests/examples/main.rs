//! The examples do what they say, run as programs.

mod web_handler;
mod withdraw;

use std::process::{Child, Command, Stdio};

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
