//! A driver that starts browsers for tests.

use crate::{eventually, free_port, keeper::spawn, missing};
use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
};

/// A running `chromedriver`. Dropping it kills the driver, and with it the browsers that it has started with
/// `--remote-debugging-pipe`.
#[derive(Debug)]
pub struct Chromedriver {
    /// A shell that kills the driver when its standard input closes, which it does when this process dies.
    keeper: Child,
    port: u16,
}

const KEEPER: &str =
    r#"chromedriver --port="$0" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $!; wait $! 2>/dev/null"#;

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
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, &port.to_string()]);
        let (keeper, _) = spawn(command);
        let driver = Self { keeper, port };
        eventually("the driver of browsers", || TcpStream::connect(("127.0.0.1", port)).ok());
        Some(driver)
    }

    /// Returns the URL at which it takes commands.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().ok();
    }
}
