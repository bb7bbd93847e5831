//! The table from errors of Redis to errors for callers.

use locker_core::error::{Error, ErrorKind};
use redis::RedisError;

/// Returns the error of a call. Unless Redis itself refused the call, Redis may have carried it out, or may still do
/// so.
pub(super) fn of_call(error: &RedisError) -> Error {
    if error.code() == Some(UNACKNOWLEDGED) {
        let why = error.detail().unwrap_or_default();
        let message = format!("granted by the redis master, and not used: {why}");
        return Error::new(ErrorKind::Unavailable, message).with_source(error.clone()).unknown().answered();
    }
    if is_from_server(error) { refused(error) } else { lost(&error.to_string()) }
}

/// The code of the error for a grant that too few replicas have. No server has it.
const UNACKNOWLEDGED: &str = "UNACKNOWLEDGED";

/// Returns the error of a grant that too few replicas have. The master has carried it out.
pub(super) fn unacknowledged(why: &str) -> RedisError {
    redis::make_extension_error(UNACKNOWLEDGED.into(), Some(why.into()))
}

/// Returns the error for a missing reply: the outcome is unknown.
pub(super) fn lost(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no reply from redis: {why}")).unknown()
}

/// Returns the error for a reply that no script of this version sends.
pub(super) fn unexpected_reply(reply: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("unexpected reply from redis: {reply}")).unknown()
}

/// Returns the error for a refusal: Redis has not carried out the call.
pub(super) fn refused(error: &RedisError) -> Error {
    let text = text(error);
    let (kind, hint) = kind_and_hint(code(error, &text));
    Error::new(kind, format!("redis refused: {text}{hint}")).with_source(error.clone())
}

/// Returns whether the server does not know the script.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Returns whether the error is from a replica, or from one that has lost its master.
pub(super) fn is_of_a_replica(error: &RedisError) -> bool {
    is_from_server(error) && matches!(code(error, &text(error)), "READONLY" | "MASTERDOWN" | "NOMASTERLINK")
}

/// Returns whether a node of a cluster has refused a call because of its slot, so that another node may accept it, or
/// the same one later.
pub(super) fn is_about_a_slot(error: &RedisError) -> bool {
    is_from_server(error) && matches!(code(error, &text(error)), "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")
}

/// Returns whether Redis itself replied with this error.
fn is_from_server(error: &RedisError) -> bool {
    use redis::ErrorKind as K;
    matches!(error.kind(), K::Server(_) | K::Extension | K::AuthenticationFailed | K::RESP3NotSupported)
}

/// Returns the kind of an error code, and a hint. Any other code is a mistake of this crate or of the user, so that a
/// retry does not help.
fn kind_and_hint(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        "READONLY" => (K::Unavailable, " (this is a replica: locks need the master)"),
        "OOM" => {
            (K::Unavailable, " (maxmemory is reached: acquiring and waiting need memory, releasing does not)")
        }
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF"
        | "UNKILLABLE" | "NOMASTERLINK" => (K::Unavailable, ""),
        "NOAUTH" | "WRONGPASS" => {
            (K::Misused, " (pass user and password in the URL: redis://USER:PASSWORD@HOST)")
        }
        "NOPERM" => (K::Misused, " (docs/reference/redis.md has the required ACL line)"),
        "WRONGTYPE" => (K::Conflict, " (the key holds other data, which was left as it is)"),
        "MOVED" | "ASK" | "CROSSSLOT" => (K::Misused, " (this is a node of a cluster)"),
        _ => (K::Misused, ""),
    }
}

/// Returns whether the server refuses keys of several slots in one call: a node of a cluster does, and a proxy of one,
/// which may say so in words of its own.
pub(super) fn is_about_several_slots(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default().to_ascii_lowercase();
    error.code() == Some("CROSSSLOT") || ["same slot", "cross slot"].iter().any(|words| text.contains(words))
}

const CODES: [&str; 18] = [
    "READONLY",
    "OOM",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "UNKILLABLE",
    "NOMASTERLINK",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "WRONGTYPE",
    "MOVED",
    "ASK",
    "CROSSSLOT",
];

/// The texts for a command that a script may not call: up to Redis 7.0, and since 7.2.
const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// Returns the error code. Redis 6.2 reports the refusal of a command inside a script as `ERR Error running
/// script .. CODE ..`. All versions report a missing permission as a sentence.
fn code<'a>(error: &'a RedisError, text: &'a str) -> &'a str {
    match error.code() {
        Some("ERR") | None if NOT_PERMITTED.iter().any(|sentence| text.contains(sentence)) => "NOPERM",
        Some("ERR") | None => {
            let word = |word: &'a str| word.trim_matches(|letter: char| !letter.is_ascii_uppercase());
            text.split_whitespace().map(word).find(|word| CODES.contains(word)).unwrap_or("ERR")
        }
        Some(code) => code,
    }
}

fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some("ERR") | None, Some(detail)) => detail.to_owned(),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_server(line: &str) -> Error {
        let value = redis::parse_redis_value(line.as_bytes()).unwrap();
        of_call(&value.extract_error().unwrap_err())
    }

    #[test]
    fn refusals_are_certain_and_have_a_kind() {
        for (line, kind) in [
            ("-READONLY You can't write against a read only replica.\r\n", ErrorKind::Unavailable),
            ("-LOADING Redis is loading the dataset in memory\r\n", ErrorKind::Unavailable),
            ("-BUSY Redis is busy running a script\r\n", ErrorKind::Unavailable),
            ("-MASTERDOWN Link with MASTER is down\r\n", ErrorKind::Unavailable),
            ("-CLUSTERDOWN The cluster is down\r\n", ErrorKind::Unavailable),
            ("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", ErrorKind::Unavailable),
            ("-NOREPLICAS Not enough good replicas to write.\r\n", ErrorKind::Unavailable),
            ("-MISCONF Redis is configured to save RDB snapshots\r\n", ErrorKind::Unavailable),
            ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", ErrorKind::Unavailable),
            ("-NOAUTH Authentication required.\r\n", ErrorKind::Misused),
            ("-WRONGPASS invalid username-password pair\r\n", ErrorKind::Misused),
            ("-NOPERM this user has no permissions to run the 'set' command\r\n", ErrorKind::Misused),
            ("-WRONGTYPE Operation against a key\r\n", ErrorKind::Conflict),
            (
                "-ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation against\r\n",
                ErrorKind::Conflict,
            ),
            (
                "-ERR Error running script: @user_script:3: -READONLY You can't write\r\n",
                ErrorKind::Unavailable,
            ),
            ("-ERR unknown command\r\n", ErrorKind::Misused),
        ] {
            let error = from_server(line);
            assert_eq!((error.kind(), error.is_certain()), (kind, true), "{line}: {error}");
            assert_eq!(error.is_temporary(), kind == ErrorKind::Unavailable, "{line}");
        }
    }

    #[test]
    fn every_version_reports_missing_permissions() {
        for line in [
            "-ERR Error running script (call to f_1): @user_script:3: The user executing the script can't run this \
             command or subcommand\r\n",
            "-ERR The user executing the script can't run this command or subcommand script: 1, on \
             @user_script:3.\r\n",
            "-ERR ACL failure in script: User shop has no permissions to run the 'set' command script: 1, on \
             @user_script:3.\r\n",
            "-NOPERM User shop has no permissions to run the 'evalsha' command\r\n",
        ] {
            let error = from_server(line);
            assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Misused, true), "{line}: {error}");
            assert!(error.to_string().contains("required ACL line"), "{error}");
        }
    }

    #[test]
    fn broken_connection_leaves_outcome_unknown() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = of_call(&RedisError::from(reset));
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false));
    }
}
