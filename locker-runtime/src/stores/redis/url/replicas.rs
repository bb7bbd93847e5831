//! The parameters of a URL for the replicas that must have a grant.

use super::{misused, parameters::take};
use locker_core::{
    error::{Error, Result},
    store::opening::{NetworkOptions, Opening, Replicas},
};
use std::time::Duration;

/// How long a grant waits for replicas unless the URL says it.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Returns the URL without the parameters, and the options with them.
pub(in super::super) fn with_replicas(url: &str, opening: &Opening) -> Result<(String, Opening)> {
    let (url, in_url) = split(url)?;
    let given = opening.network.replicas;
    if given.is_some() && in_url.is_some() {
        return Err(wrong("has wait_replicas, and so has the builder: leave one out"));
    }
    let network = NetworkOptions { replicas: given.or(in_url), ..opening.network.clone() };
    network.check()?;
    Ok((url, Opening { network, ..opening.clone() }))
}

fn split(url: &str) -> Result<(String, Option<Replicas>)> {
    let (url, [count, timeout]) = take(url, ["wait_replicas", "wait_timeout"])?;
    let timeout = timeout.map(|value| humantime::parse_duration(&value)).transpose();
    let timeout = timeout.map_err(|_| wrong("has a wait_timeout that is not a duration, such as 200ms"))?;
    let count = count.map(|value| value.parse::<u32>()).transpose();
    let count = count.map_err(|_| wrong("has a wait_replicas that is not a number"))?;
    match (count, timeout) {
        (None, Some(_)) => Err(wrong("has a wait_timeout, but no wait_replicas")),
        (count, timeout) => {
            let timeout = timeout.unwrap_or(TIMEOUT);
            Ok((url, count.map(|count| Replicas { count, timeout })))
        }
    }
}

fn wrong(what: &str) -> Error {
    misused(&format!("the redis URL {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::error::ErrorKind;

    #[test]
    fn parameters_are_taken_out_of_any_url() {
        let milliseconds = Duration::from_millis;
        for (url, rest, count, timeout) in [
            ("redis://h/1?wait_replicas=1", "redis://h/1", 1, TIMEOUT),
            ("redis://h?wait_timeout=50ms&wait_replicas=2", "redis://h", 2, milliseconds(50)),
            ("unix:///s?db=1&wait_replicas=1&pass=x", "unix:///s?db=1&pass=x", 1, TIMEOUT),
            (
                "rediss+sentinel://u:p@a,b/main?wait_replicas=1&sentinel_tls=no&wait_timeout=1s",
                "rediss+sentinel://u:p@a,b/main?sentinel_tls=no",
                1,
                milliseconds(1000),
            ),
        ] {
            assert_eq!(split(url).unwrap(), (rest.to_owned(), Some(Replicas { count, timeout })), "{url}");
        }
        for url in ["redis://h", "unix:///s?db=1", "redis://h?unknown", "redis+sentinel://h/main?db=1&"] {
            assert_eq!(split(url).unwrap(), (url.to_owned(), None), "{url}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (parameters, reason) in [
            ("wait_replicas", "not a number"),
            ("wait_replicas=-1", "not a number"),
            ("wait_replicas=0", "wait_replicas 0 waits for no replica"),
            ("wait_replicas=1&wait_replicas=1", "twice"),
            ("wait_timeout=200ms", "no wait_replicas"),
            ("wait_replicas=1&wait_timeout=200", "not a duration"),
            ("wait_replicas=1&wait_timeout=0s", "too short"),
            ("wait_replicas=1&wait_timeout=501ms", "half of the command_timeout"),
        ] {
            let url = format!("redis://u:secret@h?{parameters}");
            let error = with_replicas(&url, &Opening::default()).expect_err(parameters);
            assert_eq!(error.kind(), ErrorKind::Misused, "{parameters}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(reason) && !text.contains("secret"), "{parameters}: {text}");
        }
        let given = Some(Replicas { count: 1, timeout: TIMEOUT });
        let network = NetworkOptions { replicas: given, ..NetworkOptions::default() };
        let opening = Opening { network, ..Opening::default() };
        assert_eq!(with_replicas("redis://h", &opening).unwrap().1.network.replicas, given);
        let error = with_replicas("redis://h?wait_replicas=1", &opening).unwrap_err();
        assert!(error.message().contains("and so has the builder"), "{error}");
    }
}
