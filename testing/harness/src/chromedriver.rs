//! A driver that starts browsers for tests.

use crate::{eventually, free_port, keeper, keeper::Kept, missing};
use std::{
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

/// A running `chromedriver`. Dropping it kills the driver, and with it the browsers that it has started with
/// `--remote-debugging-pipe`.
#[derive(Debug)]
pub struct Chromedriver {
    _kept: Kept,
    port: u16,
}

impl Chromedriver {
    /// Starts the `chromedriver` in the `PATH` on a free port, and waits until it listens. Returns `None` if there is
    /// none.
    ///
    /// # Panics
    /// If it does not come up, or if there is no program and `CI=true`.
    #[must_use]
    pub fn start() -> Option<Self> {
        if Command::new("chromedriver").arg("--version").stdout(Stdio::null()).status().is_err() {
            return missing("there is no chromedriver: run scripts/setup-browser.sh");
        }
        let port = free_port();
        let mut shell = keeper::shell(Path::new("/dev/null"));
        shell.arg("chromedriver").arg(format!("--port={port}"));
        let mut kept = Kept::default();
        kept.start(shell);
        let driver = Self { _kept: kept, port };
        eventually("the driver of browsers", || TcpStream::connect(("127.0.0.1", port)).ok());
        Some(driver)
    }

    /// Returns the URL at which it takes commands.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
