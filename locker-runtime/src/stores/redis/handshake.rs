//! The checks of a server at the start of each connection.

use super::{
    codec::{lock, primitives},
    errors,
};
use crate::error::{Error, ErrorKind, Result};
use redis::{RedisError, Value, aio::MultiplexedConnection, from_redis_value};
use std::collections::HashMap;

const OLDEST: (u32, u32) = (6, 2);

/// The options for the checks of each new connection: the address may lead to another server by then.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    pub(super) allow_eviction: bool,
    pub(super) prefix: String,
}

impl Checks {
    /// Checks the eviction policy and the user's permissions.
    pub(super) async fn run(&self, connection: &mut MultiplexedConnection, channel: &str) -> Result<()> {
        if !self.allow_eviction {
            check_eviction(connection).await?;
        }
        self.check_permissions(connection, channel).await
    }

    /// Tries every command of the scripts, on keys that nothing else uses.
    async fn check_permissions(&self, connection: &mut MultiplexedConnection, channel: &str) -> Result<()> {
        let key = format!("{}lock:locker-permission-check", self.prefix);
        let mut probe = redis::cmd("EVAL");
        probe
            .arg(include_str!("lua/permissions.lua"))
            .arg(2)
            .arg(&key)
            .arg(format!("{{{key}}}:q"))
            .arg(channel);
        let reply = connection.send_packed_command(&probe).await.and_then(Value::extract_error);
        let mut denied = match reply.and_then(|denied| Ok(from_redis_value::<Vec<String>>(denied)?)) {
            Ok(denied) => denied,
            Err(error) => vec![not_permitted(&error).ok_or_else(|| errors::of_call(&error))?],
        };
        // The user also needs the permission to call scripts by digest. The server does not know this one.
        let mut known = redis::cmd("EVALSHA");
        known.arg("0".repeat(40)).arg(0);
        let reply = connection.send_packed_command(&known).await.and_then(Value::extract_error);
        denied.extend(reply.err().as_ref().and_then(not_permitted));
        if denied.is_empty() { Ok(()) } else { Err(self.missing(&denied.join(", "))) }
    }

    fn missing(&self, refused: &str) -> Error {
        let keys = format!("~{0}* ~{{{0}*", self.prefix);
        Error::new(
            ErrorKind::Misused,
            format!(
                "the redis user lacks permissions ({refused}): locks need these commands on the keys {keys} and the \
                 channels &locker:push:*, docs/redis.md has the whole ACL line"
            ),
        )
    }
}

/// Makes the server keep all scripts, so that they can be called by digest. Returns `false` if the user may not do
/// that: a call of an unknown script is then repeated with its text.
pub(super) async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<bool> {
    let mut pipeline = redis::pipe();
    for script in lock::scripts().chain(primitives::scripts()) {
        pipeline.add_command(script.load());
    }
    let count = pipeline.len();
    let replies = connection.send_packed_commands(&pipeline, 0, count).await;
    let replies = replies.map_err(|error| errors::of_call(&error))?;
    Ok(replies.into_iter().all(|reply| reply.extract_error().is_ok()))
}

fn not_permitted(error: &RedisError) -> Option<String> {
    (error.code() == Some("NOPERM")).then(|| error.detail().unwrap_or_default().to_owned())
}

/// Checks the version and the role of the server. Every user may call `HELLO`.
pub(super) async fn greet(connection: &mut MultiplexedConnection) -> Result<()> {
    let reply = connection.send_packed_command(&redis::cmd("HELLO")).await.and_then(Value::extract_error);
    let reply = reply.map_err(|error| explain(&error).unwrap_or_else(|| errors::of_call(&error)))?;
    let facts: HashMap<String, Value> =
        from_redis_value(reply).map_err(|error| not_redis(&error.to_string()))?;
    let fact = |name: &str| facts.get(name).and_then(|value| from_redis_value::<String>(value.clone()).ok());
    check_version(&fact("version").unwrap_or_default())?;
    match fact("role").as_deref() {
        Some("replica" | "slave") => Err(Error::new(
            ErrorKind::Unavailable,
            "this redis is a replica, but locks need the master: pass the master's address",
        )),
        _ => Ok(()),
    }
}

fn check_version(version: &str) -> Result<()> {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST => Err(too_old(version)),
        _ => Ok(()),
    }
}

fn too_old(version: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("redis {version} is too old: 6.2 or newer is required"))
}

/// Refuses every policy except `noeviction`: Redis then drops keys when its memory is full. `volatile-*` drops exactly
/// those of locks.
async fn check_eviction(connection: &mut MultiplexedConnection) -> Result<()> {
    let Some(policy) = eviction_policy(connection).await else { return Ok(()) };
    if policy == "noeviction" {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Misused,
        format!(
            "redis has maxmemory-policy {policy}, which drops locks when memory is full: set it to noeviction, \
             or accept lost locks with allow_eviction(true)"
        ),
    ))
}

/// Returns the eviction policy from the configuration, or from the statistics if the user may not read that. Returns
/// `None` if neither has it.
async fn eviction_policy(connection: &mut MultiplexedConnection) -> Option<String> {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("maxmemory-policy");
    let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error);
    let settings = reply.ok().and_then(|reply| from_redis_value::<HashMap<String, String>>(reply).ok());
    if let Some(policy) = settings.and_then(|mut settings| settings.remove("maxmemory-policy")) {
        return Some(policy);
    }
    let mut ask = redis::cmd("INFO");
    ask.arg("memory");
    let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error).ok()?;
    let text: String = from_redis_value(reply).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("maxmemory_policy:"))
        .map(|policy| policy.trim().to_owned())
}

/// Returns the error for a failed connection that a retry cannot repair, or `None` for a temporary failure.
pub(super) fn explain(error: &RedisError) -> Option<Error> {
    use redis::ErrorKind as K;
    match error.kind() {
        K::Parse | K::UnexpectedReturnType => Some(not_redis(&error.to_string())),
        K::RESP3NotSupported => Some(too_old("before 6.0, or a proxy that does not speak RESP3,")),
        K::Server(_) | K::Extension => Some(errors::refused(error)),
        K::AuthenticationFailed => Some(Error::new(
            ErrorKind::Misused,
            format!("redis refused the user or password: {}", error.detail().unwrap_or("wrong password")),
        )),
        K::InvalidClientConfig => Some(Error::new(ErrorKind::Misused, error.to_string())),
        _ => None,
    }
}

fn not_redis(reply: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("the server at this address is not redis: {reply}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_refuses_servers_before_6_2() {
        for old in ["2.8.19", "5.0.14", "6.0.16", "6.1.240"] {
            assert!(check_version(old).unwrap_err().to_string().contains("6.2 or newer"), "{old}");
        }
        for good in ["6.2.0", "7.0.15", "8.1.0", "7.2.4-valkey", "", "nightly"] {
            check_version(good).unwrap();
        }
    }
}
