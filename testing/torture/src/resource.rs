//! The protected resource: one counter that trusts the lock, and one that checks the fence.

use crate::history::History;
use locker_checker::format::{Counted, Line, Resource as Left};
use locker_harness::RedisServer;
use redis::{Client, Connection, Script};
use std::time::Duration;

pub(crate) struct Resource {
    connection: Connection,
    write: Script,
    read_fenced: Script,
    write_fenced: Script,
}

impl Resource {
    pub(crate) fn open(url: &str) -> Option<Self> {
        let connection = Client::open(url).ok()?.get_connection_with_timeout(Duration::from_secs(10)).ok()?;
        Some(Self {
            connection,
            write: Script::new("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])"),
            read_fenced: Script::new(
                "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or 0) then return -1 end
                 redis.call('SET', KEYS[2], ARGV[1]) return tonumber(redis.call('GET', KEYS[1]) or 0)",
            ),
            write_fenced: Script::new(
                "if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2])) then return -1 end
                 redis.call('SET', KEYS[1], ARGV[2]) return redis.call('INCR', KEYS[3])",
            ),
        })
    }

    /// Reads, waits a little and writes. Two callers that do so at once lose an update.
    pub(crate) fn add_plainly(&mut self, name: &str) {
        let key = format!("plain:{name}");
        let value: Option<u64> =
            redis::cmd("GET").arg(&key).query(&mut self.connection).expect("the resource");
        std::thread::sleep(Duration::from_millis(1));
        let mut write = self.write.key(&key);
        let write = write.key(format!("plain-writes:{name}")).arg(value.unwrap_or(0) + 1);
        write.invoke::<u64>(&mut self.connection).expect("the resource");
    }

    /// Adds an effect of a call that is made once.
    pub(crate) fn add_effect(&mut self, name: &str, effect: u64) {
        self.add("RPUSH", "once-effects", name, effect);
    }

    /// Adds what a caller of it has got.
    pub(crate) fn add_result(&mut self, name: &str, result: u64) {
        self.add("SADD", "once-results", name, result);
    }

    /// Adds an error that no caller should get.
    pub(crate) fn add_problem(&mut self, problem: &str) {
        let added = redis::cmd("RPUSH").arg("once-problems").arg(problem).query::<()>(&mut self.connection);
        added.expect("the resource");
    }

    fn add(&mut self, command: &str, to: &str, name: &str, value: u64) {
        let added =
            redis::cmd(command).arg(format!("{to}:{name}")).arg(value).query::<()>(&mut self.connection);
        added.expect("the resource");
    }

    /// The same, but the resource refuses a fence lower than one that it has seen.
    pub(crate) fn add_fenced(&mut self, name: &str, fence: u64) {
        let (key, highest) = (format!("fenced:{name}"), format!("fence:{name}"));
        let mut read = self.read_fenced.key(&key);
        let value: i64 = read.key(&highest).arg(fence).invoke(&mut self.connection).expect("the resource");
        if value < 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
        let mut write = self.write_fenced.key(&key);
        let write = write.key(&highest).key(format!("fenced-writes:{name}")).arg(fence).arg(value + 1);
        write.invoke::<i64>(&mut self.connection).expect("the resource");
    }
}

/// Reads the counters that these `names` protect, into the history.
pub(crate) fn read(server: &RedisServer, names: &[String], history: &History) {
    for name in names {
        let fenced = counted(server, "fenced", "fenced-writes", name);
        let plain = counted(server, "plain", "plain-writes", name);
        history.write(&Line::Resource(Left { name: name.clone(), fenced, plain }));
    }
}

fn counted(server: &RedisServer, value: &str, accepted: &str, name: &str) -> Counted {
    let count = |key: &str| server.ask::<Option<u64>>("GET", &[&format!("{key}:{name}")]).unwrap_or(0);
    Counted { value: count(value), accepted: count(accepted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resource refuses the write of a late holder, also between its read and its write.
    #[test]
    fn resource_refuses_a_fence_below_its_highest() {
        let Some(server) = RedisServer::start() else { return };
        let mut resource = Resource::open(&server.url()).unwrap();
        for fence in [5, 4, 5, 6] {
            resource.add_fenced("0", fence);
        }
        let counted = counted(&server, "fenced", "fenced-writes", "0");
        assert_eq!((counted.value, counted.accepted), (3, 3));
    }
}
