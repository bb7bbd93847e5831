//! A real `PgBouncer` in front of a PostgreSQL server.

use crate::{PostgresServer, eventually, free_port, missing};
use rustix::process::getuid;
use std::{
    fs,
    net::TcpStream,
    os::unix::{fs::chown, process::CommandExt},
    process::{Child, Command, Stdio},
};

/// A running pool of connections, which gives a connection to another client after each transaction. Dropping it kills
/// it.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

const NOBODY: u32 = 65_534;

impl PgBouncer {
    /// Starts a pool with at most `size` connections to `server`. Returns `None` if there is no `pgbouncer`.
    ///
    /// # Panics
    /// If it does not come up, or if there is no program and `CI=true`.
    #[must_use]
    pub fn start(server: &PostgresServer, size: usize) -> Option<Self> {
        let programs = ["pgbouncer", "/usr/sbin/pgbouncer"];
        let is_there =
            |program: &&str| Command::new(program).arg("-V").stdout(Stdio::null()).status().is_ok();
        let Some(program) = programs.into_iter().find(is_there) else {
            return missing("there is no pgbouncer: run scripts/setup-postgres.sh");
        };
        let directory = tempfile::tempdir().expect("a directory for the pool");
        let (port, users, settings) =
            (free_port(), directory.path().join("users"), directory.path().join("pgbouncer.ini"));
        fs::write(&users, "\"locker\" \"\"\n").expect("the file of users");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n\
             auth_type=trust\nauth_file={}\npool_mode=transaction\ndefault_pool_size={size}\nunix_socket_dir=\n",
            server.port(),
            users.display()
        );
        fs::write(&settings, text).expect("the file of settings");
        let mut command = Command::new(program);
        command.arg("-q").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if getuid().is_root() {
            for path in [directory.path(), &users, &settings] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("files of the pool's user");
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command.spawn().expect("pgbouncer");
        let pool = Self { child, port, _directory: directory };
        eventually("the pool's port", || TcpStream::connect(("127.0.0.1", port)).ok());
        Some(pool)
    }

    /// Returns the URL of the pool, without parameters.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://locker@127.0.0.1:{}/locker", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
