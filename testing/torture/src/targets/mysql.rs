//! One MariaDB or MySQL server.

use super::{Disk, Pauses, Target, network};
use locker_checker::format::Losses;
use locker_harness::{MysqlServer, Proxy, Signal, eventually};

pub(super) struct Mysql {
    server: MysqlServer,
    proxy: Proxy,
}

/// The connections of the workers.
const CLIENTS: &str = "FROM information_schema.processlist WHERE user = 'locker' AND id <> CONNECTION_ID()";

impl Mysql {
    pub(super) fn start() -> Option<Self> {
        let server = MysqlServer::start()?;
        let proxy = Proxy::to(server.port());
        Some(Self { server, proxy })
    }

    /// Kills connections, or their statements.
    fn kill(&self, what: &str, limit: usize) {
        let some = format!("SELECT id {CLIENTS} ORDER BY RAND() LIMIT {limit}");
        // A server that has just started may refuse the question, and a connection may be gone.
        for id in self.server.try_sql(&some).unwrap_or_default().lines() {
            drop(self.server.try_sql(&format!("{what} {id}")));
        }
    }
}

impl Target for Mysql {
    fn losses(&self) -> Losses {
        Losses::Nothing
    }

    fn disk(&self) -> Disk {
        Disk::OfServers(self.server.processes())
    }

    fn url(&self) -> String {
        format!("mysql://locker@{}/locker", network::address(&self.proxy))
    }

    fn direct_url(&self) -> String {
        self.server.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &["kill-connection", "kill-statement", "kill-all", "stop-mysql", "kill-mysql"]
    }

    fn faults_of_network(&self) -> &'static [&'static str] {
        &network::FAULTS
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        match fault {
            "kill-connection" => self.kill("KILL", 1),
            "kill-statement" => self.kill("KILL QUERY", 3),
            "kill-all" => self.kill("KILL", 1_000),
            "stop-mysql" => {
                self.server.signal(Signal::STOP);
                pauses.pause(50, 1_500);
                self.server.signal(Signal::CONT);
            }
            "kill-mysql" => {
                self.server.kill_nine();
                pauses.pause(0, 1_500);
                self.server.start_again();
            }
            fault => network::strike(fault, &[&self.proxy], pauses).expect("a fault of this store"),
        }
    }

    fn leaks(&self) -> Vec<String> {
        // The server may still start after the last fault.
        eventually("the last connection's end", || {
            (self.server.try_sql(&format!("SELECT COUNT(*) {CLIENTS}")).ok()? == "0").then_some(())
        });
        Vec::new()
    }

    fn eternal_keys(&self) -> Vec<String> {
        let keys = "SELECT `key` FROM locker_keys WHERE over_at > (UNIX_TIMESTAMP() + 31536000) * 1000000";
        self.server.sql(keys).lines().map(ToOwned::to_owned).collect()
    }
}
