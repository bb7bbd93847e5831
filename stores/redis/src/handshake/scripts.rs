//! The scripts that a server keeps, so that they can be called by digest.

use crate::{
    codec::{lock, primitives},
    errors,
    script::Script,
};
use locker_core::error::Result;
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection, from_redis_value};
use std::iter::repeat;

fn all() -> impl Iterator<Item = &'static Script> {
    lock::scripts().chain(primitives::scripts())
}

/// Returns the command that asks for the scripts that the server keeps.
pub(super) fn question(is_strict: bool) -> Cmd {
    let digests: Vec<_> = all().map(|script| script.digest(is_strict)).collect();
    redis::cmd("SCRIPT").arg("EXISTS").arg(digests).clone()
}

/// Returns the scripts that the server does not keep, all of them if it does not tell.
pub(super) fn missing(reply: RedisResult<Value>) -> Vec<&'static Script> {
    let known = reply.ok().and_then(|reply| from_redis_value::<Vec<bool>>(reply).ok()).unwrap_or_default();
    all()
        .zip(known.into_iter().chain(repeat(false)))
        .filter(|(_, is_known)| !is_known)
        .map(|(script, _)| script)
        .collect()
}

/// Makes the server keep these scripts. Returns `false` if the user may not do that: a call of an unknown script is
/// then repeated with its text.
pub(crate) async fn load(
    connection: &mut MultiplexedConnection,
    missing: &[&Script],
    is_strict: bool,
) -> Result<bool> {
    let mut pipeline = redis::pipe();
    for script in missing {
        pipeline.add_command(script.load(is_strict));
    }
    let replies = connection.send_packed_commands(&pipeline, 0, missing.len()).await;
    let replies = replies.map_err(|error| errors::of_call(&error))?;
    Ok(replies.into_iter().all(|reply| reply.extract_error().is_ok()))
}
