//! The one table from what Redis says to what callers get.

use crate::error::{Error, ErrorKind};
use redis::RedisError;

/// An error of a call whose outcome is open: unless Redis itself said no, it may have been carried out, or may
/// still be.
pub(super) fn of_call(error: &RedisError) -> Error {
    if is_answer(error) { certain(error) } else { lost(&error.to_string()) }
}

/// No answer came: the truth is unknown.
pub(super) fn lost(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no answer from redis: {why}")).unknown()
}

/// An answer came that no script of this version gives.
pub(super) fn unreadable(answer: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis answered what cannot be read: {answer}")).unknown()
}

/// What Redis refused, it did not do.
pub(super) fn certain(error: &RedisError) -> Error {
    let text = text(error);
    let (kind, hint) = meaning(code(error, &text));
    Error::new(kind, format!("redis refused: {text}{hint}")).with_source(error.clone())
}

/// Whether the server does not know the script.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether it is a replica that answers, or one that has lost its master.
pub(super) fn is_of_a_replica(error: &RedisError) -> bool {
    is_answer(error) && matches!(code(error, &text(error)), "READONLY" | "MASTERDOWN" | "NOMASTERLINK")
}

/// Whether Redis itself answered with this error.
fn is_answer(error: &RedisError) -> bool {
    use redis::ErrorKind as K;
    matches!(error.kind(), K::Server(_) | K::Extension | K::AuthenticationFailed | K::RESP3NotSupported)
}

/// What an error code means: the kind, and a word of advice. Whatever else comes is an error of ours or of the
/// user's, and does not pass by itself.
fn meaning(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        "READONLY" => (K::Unavailable, " (this is a replica: give the address of the master)"),
        "OOM" => {
            (K::Unavailable, " (maxmemory is reached: waiting and taking need some, releasing does not)")
        }
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF"
        | "UNKILLABLE" | "NOMASTERLINK" => (K::Unavailable, ""),
        "NOAUTH" | "WRONGPASS" => {
            (K::Misused, " (give user and password in the URL: redis://USER:PASSWORD@HOST)")
        }
        "NOPERM" => (K::Misused, " (docs/redis.md has the ACL line that is needed)"),
        "WRONGTYPE" => (K::Conflict, " (something else lives at this key; it was left as it is)"),
        "MOVED" | "ASK" | "CROSSSLOT" => (K::Misused, " (this is a node of a cluster)"),
        _ => (K::Misused, ""),
    }
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

/// How a script says that a command was not permitted: up to Redis 7.0, and since 7.2.
const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];

/// The error code. What a command inside a script was refused for arrives on Redis 6.2 as `ERR Error running
/// script .. CODE ..`, and a refused permission everywhere as a sentence.
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
    fn what_redis_refuses_is_certain_and_has_its_kind() {
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
    fn a_permission_refused_inside_a_script_is_known_in_every_version() {
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
            assert!(error.to_string().contains("ACL line that is needed"), "{error}");
        }
    }

    #[test]
    fn a_broken_connection_proves_nothing() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = of_call(&RedisError::from(reset));
        assert_eq!((error.kind(), error.is_certain()), (ErrorKind::Unavailable, false));
    }
}
