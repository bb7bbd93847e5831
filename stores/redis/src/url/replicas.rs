//! The parameters of a URL for the replicas that must have a grant.

use locker_core::store::url::StoreUrl;
use locker_core::{
    error::Result,
    store::opening::{NetworkOptions, Opening, Replicas},
};
use std::time::Duration;

/// How long a grant waits for replicas unless the URL says it.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Returns the options with those of the URL.
pub(in super::super) fn with_replicas(url: &StoreUrl, opening: &Opening) -> Result<Opening> {
    let in_url = of(url)?;
    let given = opening.network.replicas;
    if given.is_some() && in_url.is_some() {
        return Err(url.wrong_parameter("wait_replicas", "is an option of the builder, too: leave one out"));
    }
    let network = NetworkOptions { replicas: given.or(in_url), ..opening.network.clone() };
    network.check()?;
    Ok(Opening { network, ..opening.clone() })
}

fn of(url: &StoreUrl) -> Result<Option<Replicas>> {
    let [count, timeout] = ["wait_replicas", "wait_timeout"].map(|name| url.parameter(name));
    let count = count.map(str::parse).transpose();
    let count = count.map_err(|_| url.wrong_parameter("wait_replicas", "is not a number"))?;
    let timeout = timeout.map(humantime::parse_duration).transpose();
    let timeout =
        timeout.map_err(|_| url.wrong_parameter("wait_timeout", "is not a duration, such as 200ms"))?;
    if timeout.is_some() && count.is_none() {
        return Err(url.wrong_parameter("wait_timeout", "has no wait_replicas beside it"));
    }
    Ok(count.map(|count| Replicas { count, timeout: timeout.unwrap_or(TIMEOUT) }))
}

#[cfg(test)]
mod tests {
    use super::{super::read, *};

    fn opened(url: &str, opening: &Opening) -> Result<Option<Replicas>> {
        Ok(with_replicas(&read(url)?, opening)?.network.replicas)
    }

    #[test]
    fn any_url_may_name_replicas() {
        let milliseconds = Duration::from_millis;
        for (url, expected) in [
            ("redis://h/1?wait_replicas=1", Some((1, TIMEOUT))),
            ("redis://h?wait_timeout=50ms&wait_replicas=2", Some((2, milliseconds(50)))),
            ("unix:///s?db=1&wait_replicas=1&pass=x", Some((1, TIMEOUT))),
            (
                "redis+sentinel://u:p@a,b/main?wait_replicas=1&wait_timeout=500ms",
                Some((1, milliseconds(500))),
            ),
            ("redis+cluster://a?wait_replicas=1", Some((1, TIMEOUT))),
            ("redis://h", None),
        ] {
            let expected = expected.map(|(count, timeout)| Replicas { count, timeout });
            assert_eq!(opened(url, &Opening::default()).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (parameters, reason) in [
            ("wait_replicas=-1", "`wait_replicas` in the redis URL is not a number"),
            ("wait_replicas=0", "wait_replicas 0 waits for no replica"),
            ("wait_timeout=200ms", "no wait_replicas"),
            ("wait_replicas=1&wait_timeout=200", "`wait_timeout` in the redis URL is not a duration"),
            ("wait_replicas=1&wait_timeout=0s", "too short"),
            ("wait_replicas=1&wait_timeout=501ms", "half of the command_timeout"),
        ] {
            let error = opened(&format!("redis://u:secret@h?{parameters}"), &Opening::default());
            let error = error.expect_err(parameters);
            assert!(error.message().contains(reason), "{parameters}: {error}");
        }
        let given = Some(Replicas { count: 1, timeout: TIMEOUT });
        let network = NetworkOptions { replicas: given, ..NetworkOptions::default() };
        let opening = Opening { network, ..Opening::default() };
        assert_eq!(opened("redis://h", &opening).unwrap(), given);
        let error = opened("redis://h?wait_replicas=1", &opening).unwrap_err();
        assert!(error.message().contains("option of the builder, too"), "{error}");
    }
}
