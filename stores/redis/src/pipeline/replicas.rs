//! Replicas that must have a grant before this process relies on it.
//!
//! `WAIT` follows in the same write, on the same connection: it is about everything that the server has written until
//! then. One `WAIT` at the end of a write is for all calls in it.

use crate::{
    errors,
    script::{ScriptReply, milliseconds},
    url::Replicas,
};
use redis::{Cmd, RedisResult, Value, from_redis_value};

/// Returns the command that waits for the replicas.
pub(crate) fn wait(replicas: Replicas) -> Cmd {
    redis::cmd("WAIT").arg(replicas.count).arg(milliseconds(replicas.timeout)).clone()
}

/// Returns how many replicas the reply to that command names.
pub(crate) fn acknowledged(reply: Value) -> RedisResult<u32> {
    Ok(from_redis_value(reply.extract_error()?)?)
}

/// Returns the reply to a call, or an error if it is of a hold that too few replicas have.
pub(super) fn accept(
    replicas: Replicas,
    reply: RedisResult<Value>,
    acknowledged: &RedisResult<u32>,
) -> RedisResult<Value> {
    let is_of_a_hold = reply.as_ref().is_ok_and(ScriptReply::is_of_a_hold);
    match acknowledged {
        Ok(number) if *number >= replicas.count => reply,
        _ if !is_of_a_hold => reply,
        Ok(number) => Err(errors::unacknowledged(&format!(
            "{number} of {} replicas acknowledged it within {:?}",
            replicas.count, replicas.timeout
        ))),
        Err(error) => Err(errors::unacknowledged(&format!("WAIT failed: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn only_a_hold_needs_replicas() {
        let replicas = Replicas { count: 2, timeout: std::time::Duration::from_millis(200) };
        for reply in ["granted 7", "renewed 7"] {
            let error = accept(replicas, Ok(text(reply)), &Ok(1)).unwrap_err();
            assert!(!error.is_unrecoverable_error(), "the connection is well");
            let error = errors::of_call(&error);
            assert!(!error.is_certain() && error.is_temporary());
            assert!(error.message().contains("1 of 2 replicas acknowledged it within 200ms"), "{error}");
            assert_eq!(accept(replicas, Ok(text(reply)), &Ok(2)), Ok(text(reply)));
            let refused = acknowledged(redis::parse_redis_value(b"-NOPERM no\r\n").unwrap());
            let error = errors::of_call(&accept(replicas, Ok(text(reply)), &refused).unwrap_err());
            assert!(error.message().contains("WAIT failed: NoPerm"), "{error}");
        }
        for part in ["granted", "run", "renewed"] {
            let reply = Value::Array(vec![text(part), Value::Int(7)]);
            assert!(accept(replicas, Ok(reply), &Ok(0)).is_err(), "{part}");
        }
        for reply in
            [text("queued 1 2"), text("lost"), Value::Array(vec![text("busy"), Value::Int(7)]), Value::Nil]
        {
            assert_eq!(accept(replicas, Ok(reply.clone()), &Ok(0)), Ok(reply));
        }
    }
}
