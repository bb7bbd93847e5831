//! One PostgreSQL server.

use super::{Disk, Pauses, Target, network};
use locker_checker::format::Losses;
use locker_harness::{PostgresServer, Proxy, Signal, eventually};
use rustix::process::{Pid, kill_process};

pub(super) struct Postgres {
    server: PostgresServer,
    proxy: Proxy,
}

/// The connections of the workers.
const CLIENTS: &str =
    "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

impl Postgres {
    pub(super) fn start() -> Option<Self> {
        let server = PostgresServer::with(&["fsync=on"])?;
        let proxy = Proxy::to(server.port());
        Some(Self { server, proxy })
    }

    /// Sends a signal to the process of a random connection. Returns that process.
    fn signal(&self, signal: Signal) -> Option<Pid> {
        // A server that has just recovered may refuse the question, and may have no connection.
        let pid = self.server.try_psql(&format!("SELECT pid {CLIENTS} ORDER BY random() LIMIT 1")).ok()?;
        let pid = Pid::from_raw(pid.trim().parse().ok()?)?;
        kill_process(pid, signal).ok()?;
        Some(pid)
    }
}

impl Target for Postgres {
    // They do not wait for the disk.
    fn losses(&self) -> Losses {
        Losses::Admissions
    }

    fn disk(&self) -> Disk {
        Disk::OfServers(self.server.processes())
    }

    fn url(&self) -> String {
        format!("postgres://locker@{}/locker", network::address(&self.proxy))
    }

    fn direct_url(&self) -> String {
        self.server.url()
    }

    fn faults(&self) -> &'static [&'static str] {
        &[
            "kill-backend",
            "stop-backend",
            "terminate-backend",
            "terminate-all",
            "restart-postgres",
            "kill-postgres",
        ]
    }

    fn faults_of_network(&self) -> &'static [&'static str] {
        &network::FAULTS
    }

    fn strike(&mut self, fault: &str, pauses: &mut Pauses<'_>) {
        match fault {
            // The server ends all connections and recovers.
            "kill-backend" => drop(self.signal(Signal::KILL)),
            "stop-backend" => {
                if let Some(pid) = self.signal(Signal::STOP) {
                    pauses.pause(50, 1_500);
                    // A process that is gone needs no signal.
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            "terminate-backend" => {
                let terminate =
                    format!("SELECT pg_terminate_backend(pid) {CLIENTS} ORDER BY random() LIMIT 1");
                drop(self.server.try_psql(&terminate));
            }
            "terminate-all" => {
                drop(self.server.try_psql(&format!("SELECT pg_terminate_backend(pid) {CLIENTS}")));
            }
            "restart-postgres" => {
                self.server.stop_immediately();
                pauses.pause(0, 1_500);
                self.server.start_again();
            }
            "kill-postgres" => {
                self.server.kill_nine();
                pauses.pause(0, 1_500);
                self.server.start_again();
            }
            fault => network::strike(fault, &[&self.proxy], pauses).expect("a fault of this store"),
        }
    }

    fn leaks(&self) -> Vec<String> {
        // The server may still recover from the last fault.
        eventually("the last connection's end", || {
            (self.server.try_psql(&format!("SELECT count(*) {CLIENTS}")).ok()? == "0").then_some(())
        });
        let locks = self.server.psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");
        let left = (locks != "0").then(|| format!("{locks} advisory locks without a connection"));
        left.into_iter().collect()
    }

    fn eternal_keys(&self) -> Vec<String> {
        let never = "extract(epoch FROM clock_timestamp() + interval '1 year') * 1000000";
        let keys = self.server.psql(&format!("SELECT key FROM locker_keys WHERE over_at > {never}"));
        keys.lines().map(ToOwned::to_owned).collect()
    }
}
