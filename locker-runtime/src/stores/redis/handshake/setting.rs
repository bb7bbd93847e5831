//! A setting of a server: `CONFIG GET` tells it, or `INFO` to users that may not call that.

use redis::{Cmd, RedisResult, Value, from_redis_value};
use std::collections::HashMap;

/// A setting that is read as a `T`.
pub(in crate::stores::redis) struct Setting<T> {
    pattern: &'static str,
    in_config: fn(&HashMap<String, String>) -> Option<T>,
    section: &'static str,
    in_info: fn(&str) -> T,
}

/// What the server does when its memory is full. `None` if the server does not tell it.
pub(in crate::stores::redis) const EVICTION: Setting<Option<String>> = Setting {
    pattern: "maxmemory-policy",
    in_config: |settings| settings.get("maxmemory-policy").cloned().map(Some),
    section: "memory",
    in_info: |text| {
        let policy = text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        policy.map(|policy| policy.trim().to_owned())
    },
};

/// Whether the server refuses writes when its replicas are out of reach.
pub(super) const STOPS_ALONE: Setting<bool> = Setting {
    pattern: "min-replicas-*",
    in_config: |settings| {
        let of = |name| settings.get(name)?.parse::<u64>().ok();
        Some(of("min-replicas-to-write")? > 0 && of("min-replicas-max-lag")? > 0)
    },
    section: "replication",
    // The line is there only if both settings are.
    in_info: |text| text.contains("min_slaves_good_slaves:"),
};

impl<T> Setting<T> {
    /// Returns the first question.
    pub(in crate::stores::redis) fn question(&self) -> Cmd {
        redis::cmd("CONFIG").arg("GET").arg(self.pattern).clone()
    }

    /// Reads the reply to the first question, and asks the second one if it is refused. Returns `None` if both are.
    pub(in crate::stores::redis) async fn read(
        &self,
        reply: RedisResult<Value>,
        ask: impl AsyncFnOnce(Cmd) -> RedisResult<Value>,
    ) -> Option<T> {
        let settings = reply.ok().and_then(|reply| from_redis_value(reply).ok());
        if let Some(value) = settings.as_ref().and_then(self.in_config) {
            return Some(value);
        }
        let info = ask(redis::cmd("INFO").arg(self.section).clone()).await.and_then(Value::extract_error);
        Some((self.in_info)(&from_redis_value::<String>(info.ok()?).ok()?))
    }
}
