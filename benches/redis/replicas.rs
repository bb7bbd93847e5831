//! What it costs that two replicas must have a grant.

use super::{
    rivals::{Rival, spread},
    support::{compare, subject},
    tasks::runtime,
};
use locker::Locker;
use locker_harness::{RedisServer, eventually};

pub(crate) fn replicas(master: &RedisServer) {
    let copies = [(), ()].map(|()| RedisServer::start().expect("a replica"));
    for replica in &copies {
        let _: String = replica.ask("REPLICAOF", &["127.0.0.1", &master.port().to_string()]);
    }
    eventually("two replicas", || {
        let info: String = master.ask("INFO", &["replication"]);
        (info.matches("state=online").count() == 2).then_some(())
    });
    let runtime = runtime();
    let locker = |replicas: u32| {
        let parameters = match replicas {
            0 => String::new(),
            count => format!("?wait_replicas={count}&wait_timeout=500ms"),
        };
        let url = master.url() + &parameters;
        Rival::Locker(runtime.block_on(Locker::connect(&url)).expect("a connection"))
    };
    let rivals = [("without", locker(0)), ("wait_replicas 1", locker(1)), ("wait_replicas 2", locker(2))];
    for tasks in [1, 16, 64] {
        let times = if tasks == 1 { 2_000 } else { 10_000 };
        let title = format!("acquire + release with two replicas, {tasks} tasks, time per pair");
        let subjects = rivals.iter().map(|(name, rival)| {
            let (name, runtime) = (*name, &runtime);
            subject(name, move |times| spread(runtime, rival, tasks, times, |task| format!("{name}:{task}")))
        });
        compare(&title, times, 9, subjects.collect());
    }
}
