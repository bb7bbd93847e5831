//! A setting of a server: `CONFIG GET` tells it, or `INFO` to users that may not call that.

use redis::{Cmd, Value, from_redis_value};
use std::collections::HashMap;

/// A setting that is read as a `T`.
pub(crate) struct Setting<T> {
    pattern: &'static str,
    of_config: fn(&HashMap<String, String>) -> Option<T>,
    section: &'static str,
    of_info: fn(&str) -> T,
}

/// What the server does when its memory is full. `None` if the server does not tell it.
pub(crate) const EVICTION: Setting<Option<String>> = Setting {
    pattern: "maxmemory-policy",
    of_config: |settings| settings.get("maxmemory-policy").cloned().map(Some),
    section: "memory",
    of_info: |text| {
        let policy = text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        policy.map(|policy| policy.trim().to_owned())
    },
};

/// Whether the server refuses writes when its replicas are out of reach.
pub(super) const STOPS_ALONE: Setting<bool> = Setting {
    pattern: "min-replicas-*",
    of_config: |settings| {
        let of = |name| settings.get(name)?.parse::<u64>().ok();
        Some(of("min-replicas-to-write")? > 0 && of("min-replicas-max-lag")? > 0)
    },
    section: "replication",
    // The line is there only if both settings are.
    of_info: |text| text.contains("min_slaves_good_slaves:"),
};

impl<T> Setting<T> {
    /// Returns the first question.
    pub(crate) fn question(&self) -> Cmd {
        redis::cmd("CONFIG").arg("GET").arg(self.pattern).clone()
    }

    /// Reads the reply to the first question. Returns `None` if it does not tell.
    pub(crate) fn read(&self, reply: Option<Value>) -> Option<T> {
        (self.of_config)(&from_redis_value(reply?).ok()?)
    }

    /// Returns the second question, for users that may not ask the first.
    pub(crate) fn other_question(&self) -> Cmd {
        redis::cmd("INFO").arg(self.section).clone()
    }

    /// Reads the reply to the second question.
    pub(crate) fn read_other(&self, reply: Option<Value>) -> Option<T> {
        Some((self.of_info)(&from_redis_value::<String>(reply?).ok()?))
    }
}
