//! What a server says of itself: its version and its role. Every user may call `HELLO`.

use super::explain;
use crate::errors;
use locker_core::error::{Error, ErrorKind, Result};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};
use std::collections::HashMap;

const OLDEST: (u32, u32) = (6, 2);

/// The oldest version in which a script obeys `min-replicas-to-write`: before, a master that is cut off goes on
/// granting.
const OLDEST_THAT_STOPS: (u32, u32) = (7, 0);

/// Checks the version and the role of the server.
pub(crate) async fn greet(connection: &mut MultiplexedConnection, advice: &str) -> Result<()> {
    check(connection.send_packed_command(&question()).await.and_then(Value::extract_error), advice, false)
}

/// Returns the command whose reply has version and role.
pub(crate) fn question() -> Cmd {
    redis::cmd("HELLO")
}

/// Checks the reply to the question. `advice` helps if the server is a replica. `must_stop` says whether its scripts
/// must stop when it is cut off from its replicas.
pub(super) fn check(reply: RedisResult<Value>, advice: &str, must_stop: bool) -> Result<()> {
    let reply = reply.map_err(|error| explain(&error).unwrap_or_else(|| errors::of_call(&error)))?;
    let facts: HashMap<String, Value> =
        from_redis_value(reply).map_err(|error| super::not_redis(&error.to_string()))?;
    check_version(&fact(&facts, "version").unwrap_or_default(), must_stop)?;
    if !is_role_of_replica(&facts) {
        return Ok(());
    }
    let message = format!("this redis is a replica, but locks need the master: {advice}");
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns whether the reply to the question is from a replica.
pub(crate) fn is_replica(reply: Value) -> bool {
    from_redis_value(reply).is_ok_and(|facts| is_role_of_replica(&facts))
}

fn is_role_of_replica(facts: &HashMap<String, Value>) -> bool {
    matches!(fact(facts, "role").as_deref(), Some("replica" | "slave"))
}

fn fact(facts: &HashMap<String, Value>, name: &str) -> Option<String> {
    facts.get(name).and_then(|value| from_redis_value(value.clone()).ok())
}

fn check_version(version: &str, must_stop: bool) -> Result<()> {
    let mut parts = version.split('.').map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return Ok(()) };
    if (major, minor) < OLDEST {
        return Err(too_old(version));
    }
    if must_stop && (major, minor) < OLDEST_THAT_STOPS {
        let message = format!(
            "redis {version} is too old for strict mode with sentinels or wait_replicas: before 7.0 a script ignores \
             min-replicas-to-write, so that a master that is cut off goes on granting"
        );
        return Err(Error::new(ErrorKind::Misused, message));
    }
    Ok(())
}

pub(super) fn too_old(version: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("redis {version} is too old: 6.2 or newer is required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_refuses_servers_before_6_2() {
        for old in ["2.8.19", "5.0.14", "6.0.16", "6.1.240"] {
            assert!(check_version(old, false).unwrap_err().to_string().contains("6.2 or newer"), "{old}");
        }
        for good in ["6.2.0", "7.0.15", "8.1.0", "7.2.4-valkey", "", "nightly"] {
            check_version(good, false).unwrap();
        }
    }

    /// A script of 6.2 writes where `SET` alone gets `NOREPLICAS`.
    #[test]
    fn strict_failover_refuses_servers_before_7_0() {
        for old in ["6.2.0", "6.2.16"] {
            let refusal = check_version(old, true).unwrap_err();
            assert!(refusal.to_string().contains("ignores min-replicas-to-write"), "{refusal}");
        }
        for good in ["7.0.0", "7.0.15", "8.1.0", "7.2.4-valkey"] {
            check_version(good, true).unwrap();
        }
    }
}
