//! The protected resource: one counter that trusts the lock, and one that checks the fence.

use locker_checker::verdict::Verdict;
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

/// The value of a counter, and the number of its accepted updates.
#[derive(Clone, Copy, Debug)]
struct Counted {
    value: u64,
    accepted: u64,
}

impl Counted {
    fn read(server: &RedisServer, value: &str, accepted: &str, name: &str) -> Self {
        let count = |key: &str| server.ask::<Option<u64>>("GET", &[&format!("{key}:{name}")]).unwrap_or(0);
        Self { value: count(value), accepted: count(accepted) }
    }
}

/// Judges the counters that these `names` protect.
pub(crate) fn judge(server: &RedisServer, names: &[String], verdict: &mut Verdict) {
    for name in names {
        let fenced = Counted::read(server, "fenced", "fenced-writes", name);
        let plain = Counted::read(server, "plain", "plain-writes", name);
        weigh(name, fenced, plain, verdict);
    }
    if verdict.fenced_updates == 0 && !names.is_empty() {
        verdict.problems.push("no worker wrote under a fence".into());
    }
}

/// Compares the value with the number of accepted updates: the difference is lost.
fn weigh(name: &str, fenced: Counted, plain: Counted, verdict: &mut Verdict) {
    verdict.fenced_updates += fenced.accepted;
    if fenced.value != fenced.accepted {
        verdict.problems.push(format!("lost update under a fence on {name}: {fenced:?}"));
    }
    verdict.plain_updates += plain.accepted;
    verdict.plain_lost += plain.accepted - plain.value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(fenced: (u64, u64), plain: (u64, u64)) -> Verdict {
        let mut verdict = Verdict::default();
        let counted = |(value, accepted)| Counted { value, accepted };
        weigh("0", counted(fenced), counted(plain), &mut verdict);
        verdict
    }

    #[test]
    fn a_lost_update_is_a_problem_only_under_a_fence() {
        let verdict = weighed((7, 7), (5, 6));
        assert_eq!(verdict.problems, [""; 0]);
        assert_eq!((verdict.plain_lost, verdict.fenced_updates), (1, 7));
        assert_eq!(weighed((6, 7), (6, 6)).problems.len(), 1);
        assert_eq!(
            weighed((8, 7), (6, 6)).problems.len(),
            1,
            "a value above the accepted updates is a problem as well"
        );
    }

    /// The resource refuses the write of a late holder, also between its read and its write.
    #[test]
    fn resource_refuses_a_fence_below_its_highest() {
        let Some(server) = RedisServer::start() else { return };
        let mut resource = Resource::open(&server.url()).unwrap();
        for fence in [5, 4, 5, 6] {
            resource.add_fenced("0", fence);
        }
        let counted = Counted::read(&server, "fenced", "fenced-writes", "0");
        assert_eq!((counted.value, counted.accepted), (3, 3));
    }
}
