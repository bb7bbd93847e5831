//! A test that runs in a process of its own, to be stopped or killed.

use crate::{Signal, signals};
use rustix::process::Pid;
use std::{
    env, io,
    process::{Child, Command, ExitStatus, Stdio},
};

/// A process of the running test program that runs one of its tests. Dropping it kills the process.
#[derive(Debug)]
pub struct TestProcess(Child);

impl TestProcess {
    /// Starts the test with this name. It finds `argument` in the environment variable `variable`, and does nothing
    /// without that.
    ///
    /// # Panics
    /// If the process does not start.
    #[must_use]
    pub fn start(test: &str, variable: &str, argument: &str) -> Self {
        let command = Command::new(env::current_exe().expect("the test program"))
            .args(["--exact", test, "--nocapture"])
            .env(variable, argument)
            .stdout(Stdio::null())
            .spawn();
        Self(command.expect("a process of the test program"))
    }

    /// Stops all threads of the process, until it is told to go on.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }

    fn signal(&self, signal: Signal) {
        signals::send(Some(Pid::from_child(&self.0)), signal);
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
