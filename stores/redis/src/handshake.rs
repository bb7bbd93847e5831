//! The checks of a server at the start of each connection.

mod role;
mod scripts;
mod setting;

use super::pipeline::replicas;
use super::{errors, script::Script, server::Server, slots::Owner, topology::View, url::Replicas};
use locker_core::{
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};
pub(super) use role::{greet, is_replica, question};
pub(super) use scripts::load;
pub(super) use setting::EVICTION;
use setting::{STOPS_ALONE, Setting};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

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
    /// Checks the server, the eviction policy, the user's permissions, and what the server does without replicas, with
    /// questions that go out together. Returns the scripts that the server does not keep. `advice` helps if it is a
    /// replica.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        channel: &str,
        advice: &str,
        node: Option<&Owner>,
    ) -> Result<Vec<&'static Script>> {
        let probe = self.probe(channel, node);
        let questions = self.questions(probe.as_ref(), node.is_some());
        let answers = connection.send_packed_commands(&questions, 0, questions.len()).await;
        let mut answers = answers.map_err(|error| errors::of_call(&error))?.into_iter();
        let mut answer = || answers.next().unwrap_or(Value::Nil).extract_error();
        // A node of a cluster that is cut off stops by itself.
        let must_stop = self.is_strict && self.is_replicated && node.is_none();
        role::check(answer(), advice, must_stop)?;
        if let Some(node) = node {
            check_id(answer(), node)?;
        }
        if !self.allow_eviction {
            check_eviction(read(&EVICTION, answer().ok(), connection).await.flatten())?;
        }
        if probe.is_some() {
            self.check_permissions(answer(), answer(), node.is_some())?;
        }
        if self.is_replicated {
            self.check_stop(read(&STOPS_ALONE, answer().ok(), connection).await.unwrap_or(true));
        }
        let missing = scripts::missing(answer());
        let checked = self.replicas.map_or(Ok(()), |replicas| self.check_replicas(answer(), replicas));
        if let Err(refusal) = checked {
            // A master that is demoted meanwhile refuses it as well.
            role::greet(connection, advice).await?;
            return Err(refusal);
        }
        Ok(missing)
    }

    /// Returns the questions in the order in which their answers are read.
    fn questions(&self, probe: Option<&Cmd>, is_node: bool) -> Pipeline {
        let for_replicas =
            |replicas: Replicas| Replicas { timeout: replicas.timeout.min(REPLICAS_LIMIT), ..replicas };
        let questions = [
            Some(role::question()),
            is_node.then(View::question),
            (!self.allow_eviction).then(|| EVICTION.question()),
            probe.cloned(),
            // The user also needs the permission to call scripts by digest. The server does not know this one.
            probe.map(|_| redis::cmd("EVALSHA").arg("0".repeat(40)).arg(0).clone()),
            self.is_replicated.then(|| STOPS_ALONE.question()),
            Some(scripts::question(self.is_strict)),
            self.replicas.map(|replicas| replicas::wait(for_replicas(replicas))),
        ];
        let mut pipeline = redis::pipe();
        for question in questions.into_iter().flatten() {
            pipeline.add_command(question);
        }
        pipeline
    }

    fn check_stop(&self, stops_alone: bool) {
        if !stops_alone && !self.has_warned.swap(true, Ordering::Relaxed) {
            warning!(
                "the redis master has min-replicas-to-write 0: after a failover, an old master that is cut off goes \
                 on granting locks to clients beside it; set min-replicas-to-write 1 and min-replicas-max-lag"
            );
        }
    }

    /// Checks how many replicas have answered. Too few of them may be more later: then only grants fail.
    fn check_replicas(&self, reply: RedisResult<Value>, replicas: Replicas) -> Result<()> {
        let number = reply.and_then(replicas::acknowledged).map_err(|error| {
            let why = format!("wait_replicas needs the command WAIT, which the server refuses: {error}");
            Error::new(ErrorKind::Misused, why).with_source(error)
        })?;
        if number < replicas.count && !self.has_warned_of_few.swap(true, Ordering::Relaxed) {
            warning!(
                "wait_replicas is {}, but {number} replicas of the redis master answer: nothing is granted until \
                 there are enough",
                replicas.count
            );
        }
        Ok(())
    }

    /// Returns the call that tries every command of the scripts, on keys that nothing else uses. A node refuses keys of
    /// slots that it does not have, and one without slots refuses all.
    fn probe(&self, channel: &str, node: Option<&Owner>) -> Option<Cmd> {
        let unused = format!("{}lock:locker-permission-check", self.prefix);
        let key = match node {
            Some(node) => node.first_of((0..=u16::MAX).map(|number| format!("{unused}-{number}")))?,
            None => unused,
        };
        let mut probe = redis::cmd("EVAL");
        probe.arg(include_str!("lua/permissions.lua")).arg(2).arg(&key).arg(format!("{{{key}}}:q"));
        Some(probe.arg(channel).arg(u8::from(self.is_strict)).clone())
    }

    /// Checks the answers to the probe and to the call by digest. A node may refuse the probe because its slot is
    /// moving: calls are redirected.
    fn check_permissions(
        &self,
        probed: RedisResult<Value>,
        by_digest: RedisResult<Value>,
        is_node: bool,
    ) -> Result<()> {
        let mut denied = match probed.and_then(|denied| Ok(from_redis_value::<Vec<String>>(denied)?)) {
            Ok(denied) => denied,
            Err(error) if is_node && errors::is_about_a_slot(&error) => return Ok(()),
            Err(error) => vec![not_permitted(&error).ok_or_else(|| errors::of_call(&error))?],
        };
        denied.extend(by_digest.err().as_ref().and_then(not_permitted));
        if denied.is_empty() { Ok(()) } else { Err(self.missing(&denied.join(", "))) }
    }

    fn missing(&self, refused: &str) -> Error {
        let keys = format!("~{0}* ~{{{0}*", self.prefix);
        Error::new(
            ErrorKind::Misused,
            format!(
                "the redis user lacks permissions ({refused}): locks need these commands on the keys {keys} and the \
                 channels &locker:push:*, docs/reference/redis.md has the whole ACL line"
            ),
        )
    }
}

fn not_permitted(error: &RedisError) -> Option<String> {
    (error.code() == Some("NOPERM")).then(|| error.detail().unwrap_or_default().to_owned())
}

/// Refuses a node of another cluster, which an address may lead to when the nodes get new ones.
fn check_id(reply: RedisResult<Value>, node: &Owner) -> Result<()> {
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

/// Reads a setting from the reply to its first question, or asks the second one.
async fn read<T>(
    setting: &Setting<T>,
    reply: Option<Value>,
    connection: &mut MultiplexedConnection,
) -> Option<T> {
    if let Some(value) = setting.read(reply) {
        return Some(value);
    }
    let reply = connection.send_packed_command(&setting.other_question()).await;
    setting.read_other(reply.and_then(Value::extract_error).ok())
}

/// Refuses every policy except `noeviction`: Redis then drops keys when its memory is full. `volatile-*` drops exactly
/// those of locks.
pub(super) fn check_eviction(policy: Option<String>) -> Result<()> {
    let Some(policy) = policy.filter(|policy| policy != "noeviction") else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Misused,
        format!(
            "redis has maxmemory-policy {policy}, which drops locks when memory is full: set it to noeviction, \
             or accept lost locks with allow_eviction=yes in the URL"
        ),
    ))
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
        K::RESP3NotSupported => Some(role::too_old("before 6.0, or a proxy that does not speak RESP3,")),
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
