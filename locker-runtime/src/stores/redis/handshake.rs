//! The checks of a server at the start of each connection.

use super::{
    client::Server,
    codec::{lock, primitives},
    errors,
    slots::Owner,
    topology::View,
};
use crate::{
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
    stores::opening::Replicas,
};
use redis::{RedisError, Value, aio::MultiplexedConnection, from_redis_value};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const OLDEST: (u32, u32) = (6, 2);

/// How long the check waits for replicas.
const REPLICAS_LIMIT: Duration = Duration::from_millis(200);

/// The options for the checks of each new connection: the address may lead to another server by then.
#[derive(Debug)]
pub(super) struct Checks {
    /// Whether another server may become the master.
    pub(super) is_replicated: bool,
    /// Whether the warning of a master that would go on alone was written.
    pub(super) has_warned: AtomicBool,
    /// The replicas that must have a grant.
    pub(super) replicas: Option<Replicas>,
    /// Whether the warning of too few of them was written.
    pub(super) has_warned_of_few: AtomicBool,
    pub(super) allow_eviction: bool,
    pub(super) is_strict: bool,
    pub(super) prefix: String,
}

impl Checks {
    /// Checks the eviction policy, the user's permissions, and what the server does without replicas.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        node: Option<&Owner>,
    ) -> Result<()> {
        if let Some(node) = node {
            check_id(connection, node).await?;
        }
        if !self.allow_eviction {
            check_eviction(connection).await?;
        }
        // A node refuses keys of slots that it does not have, and one without slots refuses all.
        let unused = format!("{}lock:locker-permission-check", self.prefix);
        let key = match node {
            Some(node) => node.first_of((0..=u16::MAX).map(|number| format!("{unused}-{number}"))),
            None => Some(unused),
        };
        if let Some(key) = key {
            match self.check_permissions(connection, channel, &key).await? {
                // The slot is moving: calls are redirected.
                Some(refusal) if node.is_none() => return Err(errors::refused(&refusal)),
                _ => {}
            }
        }
        if let Some(replicas) = self.replicas {
            self.check_replicas(connection, replicas).await?;
        }
        if self.is_replicated
            && !stops_alone(connection).await
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            warning!(
                "the redis master has min-replicas-to-write 0: after a failover, an old master that is cut off goes \
                 on granting locks to clients beside it; set min-replicas-to-write 1 and min-replicas-max-lag"
            );
        }
        Ok(())
    }

    /// Waits for the replicas once. Too few of them may be more later: then only grants fail.
    async fn check_replicas(&self, connection: &mut MultiplexedConnection, replicas: Replicas) -> Result<()> {
        let asked = Replicas { timeout: replicas.timeout.min(REPLICAS_LIMIT), ..replicas };
        let reply = connection.send_packed_command(&asked.command()).await;
        let number = match reply.and_then(Replicas::acknowledged) {
            Ok(number) => number,
            Err(error) if error.is_unrecoverable_error() => return Err(errors::of_call(&error)),
            Err(error) => {
                let why = format!("wait_replicas needs the command WAIT, which the server refuses: {error}");
                return Err(Error::new(ErrorKind::Misused, why).with_source(error));
            }
        };
        if number < replicas.count && !self.has_warned_of_few.swap(true, Ordering::Relaxed) {
            warning!(
                "wait_replicas is {}, but {number} replicas of the redis master answer: nothing is granted until \
                 there are enough",
                replicas.count
            );
        }
        Ok(())
    }

    /// Tries every command of the scripts, on keys that nothing else uses. Returns the refusal of a node of a cluster
    /// that does not have these keys.
    async fn check_permissions(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        key: &str,
    ) -> Result<Option<RedisError>> {
        let mut probe = redis::cmd("EVAL");
        probe
            .arg(include_str!("lua/permissions.lua"))
            .arg(2)
            .arg(key)
            .arg(format!("{{{key}}}:q"))
            .arg(channel)
            .arg(u8::from(self.is_strict));
        let reply = connection.send_packed_command(&probe).await.and_then(Value::extract_error);
        let mut denied = match reply.and_then(|denied| Ok(from_redis_value::<Vec<String>>(denied)?)) {
            Ok(denied) => denied,
            Err(error) if errors::is_about_a_slot(&error) => return Ok(Some(error)),
            Err(error) => vec![not_permitted(&error).ok_or_else(|| errors::of_call(&error))?],
        };
        // The user also needs the permission to call scripts by digest. The server does not know this one.
        let mut known = redis::cmd("EVALSHA");
        known.arg("0".repeat(40)).arg(0);
        let reply = connection.send_packed_command(&known).await.and_then(Value::extract_error);
        denied.extend(reply.err().as_ref().and_then(not_permitted));
        if denied.is_empty() { Ok(None) } else { Err(self.missing(&denied.join(", "))) }
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
pub(super) async fn load_scripts(connection: &mut MultiplexedConnection, is_strict: bool) -> Result<bool> {
    let mut pipeline = redis::pipe();
    for script in lock::scripts().chain(primitives::scripts()) {
        pipeline.add_command(script.load(is_strict));
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
pub(super) async fn greet(connection: &mut MultiplexedConnection, advice: &str) -> Result<()> {
    let reply = connection.send_packed_command(&redis::cmd("HELLO")).await.and_then(Value::extract_error);
    let reply = reply.map_err(|error| explain(&error).unwrap_or_else(|| errors::of_call(&error)))?;
    let facts: HashMap<String, Value> =
        from_redis_value(reply).map_err(|error| not_redis(&error.to_string()))?;
    check_version(&fact(&facts, "version").unwrap_or_default())?;
    if !is_role_of_replica(&facts) {
        return Ok(());
    }
    let message = format!("this redis is a replica, but locks need the master: {advice}");
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns whether the reply to `HELLO` is from a replica.
pub(super) fn is_replica(reply: Value) -> bool {
    from_redis_value(reply).is_ok_and(|facts| is_role_of_replica(&facts))
}

fn is_role_of_replica(facts: &HashMap<String, Value>) -> bool {
    matches!(fact(facts, "role").as_deref(), Some("replica" | "slave"))
}

fn fact(facts: &HashMap<String, Value>, name: &str) -> Option<String> {
    facts.get(name).and_then(|value| from_redis_value(value.clone()).ok())
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

/// Refuses a node of another cluster, which an address may lead to when the nodes get new ones.
async fn check_id(connection: &mut MultiplexedConnection, node: &Owner) -> Result<()> {
    let mut ask = redis::cmd("CLUSTER");
    ask.arg("NODES");
    let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error);
    let nodes: String =
        reply.and_then(|reply| Ok(from_redis_value(reply)?)).map_err(|error| errors::of_call(&error))?;
    let view = View::read(&nodes, "");
    if view.as_ref().and_then(View::id) == Some(&*node.id) {
        return Ok(());
    }
    let message =
        format!("another node than {} is at the address of this one: the nodes are asked again", node.id);
    Err(Error::new(ErrorKind::Unavailable, message))
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

/// Returns whether the server refuses writes when its replicas are out of reach, as far as that can be read.
async fn stops_alone(connection: &mut MultiplexedConnection) -> bool {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("min-replicas-*");
    let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error);
    let settings = reply.ok().and_then(|reply| from_redis_value::<HashMap<String, u64>>(reply).ok());
    let Some(settings) = settings.filter(|settings| !settings.is_empty()) else {
        return info(connection, "replication").await.is_none_or(|info| {
            // The line is there only if both settings are.
            info.contains("min_slaves_good_slaves:")
        });
    };
    ["min-replicas-to-write", "min-replicas-max-lag"]
        .iter()
        .all(|name| settings.get(*name).is_some_and(|value| *value > 0))
}

async fn info(connection: &mut MultiplexedConnection, section: &str) -> Option<String> {
    let mut ask = redis::cmd("INFO");
    ask.arg(section);
    let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error).ok()?;
    from_redis_value(reply).ok()
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
    let text = info(connection, "memory").await?;
    text.lines()
        .find_map(|line| line.strip_prefix("maxmemory_policy:"))
        .map(|policy| policy.trim().to_owned())
}

/// Returns the error for a failed connection.
pub(super) fn not_connected(server: &Server, error: &RedisError) -> Error {
    explain(error).unwrap_or_else(|| server.unreachable(&error.to_string())).with_source(error.clone())
}

/// Returns the error for a failed connection that a retry cannot repair, or `None` for a temporary failure.
fn explain(error: &RedisError) -> Option<Error> {
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
