//! What waiters cost while nothing happens.

use super::{FSYNC, support::title, tasks::runtime};
use locker::Locker;
use locker_harness::{EtcdServer, PostgresServer};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::task::JoinSet;

const WAITERS: usize = 1_000;
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) fn idle() {
    if let Some(server) = PostgresServer::with(&FSYNC) {
        let ask = |sql: &str| server.psql(sql).trim().parse::<f64>().expect("a number");
        let statements =
            || ask("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'locker'");
        let connections = || {
            ask("SELECT count(*) FROM pg_stat_activity WHERE datname = 'locker' AND pid <> pg_backend_pid()")
        };
        watch("PostgreSQL", "transactions", &server.url(), statements, connections);
    }
    if let Some(server) = EtcdServer::start() {
        let metric = |name: &str| {
            let metrics = server.metrics();
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        let streams = || metric("grpc_server_started_total{") - metric("grpc_server_handled_total{");
        let calls = || metric("grpc_server_started_total{");
        watch("etcd", "calls", &server.url(), calls, streams);
    }
}

/// Prints what so many waiters of one process cost, on one name and on as many names, with the holder in another
/// locker.
fn watch(server: &str, unit: &str, url: &str, statements: impl Fn() -> f64, connections: impl Fn() -> f64) {
    title(&format!("{server}: {WAITERS} idle waiters"));
    for names in [1, WAITERS] {
        let runtime = runtime();
        runtime.block_on(async {
            // The leases are long: their renewals are few.
            let builder = Locker::builder().url(url).lease(Duration::from_secs(300));
            let holder = builder.build().await.expect("a connection");
            let name = |number: usize| format!("idle {names}/{number}");
            let mut guards = Vec::new();
            for number in 0..names {
                guards.push(holder.lock(&name(number)).acquire().await.expect("a free name"));
            }
            let locker = Locker::connect(url).await.expect("a connection");
            let mut waiters = JoinSet::new();
            for number in 0..WAITERS {
                let request = locker.lock(&name(number % names)).timeout(Duration::from_secs(300));
                waiters.spawn(async move { request.acquire().await.map(drop) });
            }
            let admin = locker.admin();
            for number in 0..names {
                let key = admin.key("lock", &name(number));
                let wanted = (WAITERS / names) as u64;
                while admin.inspect(&key).await.expect("a reply").is_none_or(|state| state.waiting < wanted) {
                    tokio::task::yield_now().await;
                }
            }
            let (before, processor) = (statements(), processor_time());
            tokio::time::sleep(WATCHED).await;
            let rate = (statements() - before) / WATCHED.as_secs_f64();
            let processor = (processor_time() - processor) / WATCHED.as_secs_f64() * 1e3;
            println!(
                "  {names:>5} names {rate:>8.1} {unit}/s   {:.0} connections or streams   \
                 {processor:.1} ms of processor time per second",
                connections()
            );
            waiters.shutdown().await;
            drop(guards);
            locker.settled().await;
            holder.settled().await;
        });
    }
}

/// Returns the processor time of this process in seconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
