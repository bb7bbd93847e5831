//! What the locks protect: one counter that trusts the lock, and one that checks the fence.

use crate::history::Verdict;
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

    /// Reads, waits a little, writes: two that do it at once lose an update.
    pub(crate) fn add_plainly(&mut self, name: &str) {
        let key = format!("plain:{name}");
        let value: Option<u64> =
            redis::cmd("GET").arg(&key).query(&mut self.connection).expect("the resource");
        std::thread::sleep(Duration::from_millis(1));
        let mut write = self.write.key(&key);
        let write = write.key(format!("plain-writes:{name}")).arg(value.unwrap_or(0) + 1);
        write.invoke::<u64>(&mut self.connection).expect("the resource");
    }

    /// The same where the resource refuses a fence lower than one it has seen.
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

/// An update is lost when fewer are there than were accepted.
pub(crate) fn judge(server: &RedisServer, names: usize, verdict: &mut Verdict) {
    let count = |key: String| server.ask::<Option<u64>>("GET", &[&key]).unwrap_or(0);
    for name in 0..names {
        let (fenced, accepted) = (count(format!("fenced:{name}")), count(format!("fenced-writes:{name}")));
        verdict.fenced_updates += accepted;
        if fenced != accepted {
            verdict
                .problems
                .push(format!("lost update under a fence: {fenced} of {accepted} are there on {name}"));
        }
        let (plain, written) = (count(format!("plain:{name}")), count(format!("plain-writes:{name}")));
        verdict.plain_updates += written;
        verdict.plain_lost += written - plain;
    }
}
