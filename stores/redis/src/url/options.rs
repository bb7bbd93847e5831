//! The options that only Redis has.

use super::truth;
use locker_core::{
    error::Result,
    ranges::{SHORTEST, check_range, misused, parse_duration},
    store::url::StoreUrl,
};
use std::time::Duration;

/// How long a grant waits for replicas unless the URL says it.
const WAIT_TIMEOUT: Duration = Duration::from_millis(200);

/// The options that a URL has as parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Options {
    /// Whether the server may evict keys when its memory is full.
    pub(crate) allow_eviction: bool,
    /// The replicas that must have a grant.
    pub(crate) replicas: Option<Replicas>,
    /// The longest lease in strict mode.
    pub(crate) strict: Option<Duration>,
}

/// How many replicas must have a grant, and how long to wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

impl Options {
    /// Reads the options. A reply that waits for replicas comes within `command_timeout`.
    pub(crate) fn of(url: &StoreUrl, command_timeout: Duration) -> Result<Self> {
        let why = "is not a duration: give the longest lease, as in strict=60s";
        let options = Self {
            allow_eviction: truth(url, "allow_eviction")?.unwrap_or(false),
            replicas: replicas(url, command_timeout)?,
            strict: duration(url, "strict", why)?,
        };
        if options.strict.is_some() && options.allow_eviction {
            return misused(
                "strict mode excludes allow_eviction: a server that evicts keys gives away what is held",
            );
        }
        Ok(options)
    }
}

/// Returns the URL without these parameters.
pub(crate) fn without_options(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else { return url.to_owned() };
    let is_option = |pair: &str| {
        let name = pair.split('=').next();
        ["allow_eviction", "strict", "wait_replicas", "wait_timeout"].map(Some).contains(&name)
    };
    let others: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !is_option(pair)).collect();
    if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) }
}

fn replicas(url: &StoreUrl, command_timeout: Duration) -> Result<Option<Replicas>> {
    let timeout = duration(url, "wait_timeout", "is not a duration, such as 200ms")?;
    let Some(count) = url.parameter("wait_replicas") else {
        return match timeout {
            Some(_) => Err(url.wrong_parameter("wait_timeout", "has no wait_replicas beside it")),
            None => Ok(None),
        };
    };
    let count = count.parse().map_err(|_| url.wrong_parameter("wait_replicas", "is not a number"))?;
    if count == 0 {
        return misused("wait_replicas 0 waits for no replica: give at least 1, or leave it out");
    }
    let timeout = timeout.unwrap_or(WAIT_TIMEOUT);
    if timeout > command_timeout / 2 {
        let [given, most] = [timeout, command_timeout / 2].map(humantime::format_duration);
        return misused(format!(
            "wait_timeout {given} is too long: give at most {most}, half of the command_timeout"
        ));
    }
    Ok(Some(Replicas { count, timeout }))
}

fn duration(url: &StoreUrl, name: &str, why: &str) -> Result<Option<Duration>> {
    let Some(value) = url.parameter(name) else { return Ok(None) };
    let value = parse_duration(value).map_err(|_| url.wrong_parameter(name, why))?;
    check_range(name, value, SHORTEST)?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::{super::read, *};
    use locker_core::error::ErrorKind;

    const SECOND: Duration = Duration::from_secs(1);

    fn options(url: &str) -> Result<Options> {
        Options::of(&read(url)?, SECOND)
    }

    #[test]
    fn any_url_may_name_replicas() {
        let milliseconds = Duration::from_millis;
        for (url, expected) in [
            ("redis://h/1?wait_replicas=1", Some((1, WAIT_TIMEOUT))),
            ("redis://h?wait_timeout=50ms&wait_replicas=2", Some((2, milliseconds(50)))),
            ("unix:///s?db=1&wait_replicas=1&pass=x", Some((1, WAIT_TIMEOUT))),
            (
                "redis+sentinel://u:p@a,b/main?wait_replicas=1&wait_timeout=500ms",
                Some((1, milliseconds(500))),
            ),
            ("redis+cluster://a?wait_replicas=1", Some((1, WAIT_TIMEOUT))),
            ("redis://h", None),
        ] {
            let expected = expected.map(|(count, timeout)| Replicas { count, timeout });
            assert_eq!(options(url).unwrap().replicas, expected, "{url}");
        }
    }

    #[test]
    fn options_in_any_order_are_the_same_store() {
        for url in ["redis://h?strict=60s&db=1&wait_replicas=1", "redis://h?wait_replicas=1&db=1&strict=1m&"]
        {
            assert_eq!(without_options(url), "redis://h?db=1");
        }
        for url in ["redis://h", "redis://h?allow_eviction=no", "redis://h?"] {
            assert_eq!(
                (without_options(url), options(url).unwrap()),
                ("redis://h".into(), options("redis://h").unwrap())
            );
        }
    }

    #[test]
    fn any_url_may_have_the_longest_lease() {
        let minute = Some(Duration::from_secs(60));
        for (url, expected) in [
            ("redis://h", None),
            ("redis://h:1/2?strict=60s", minute),
            ("unix:///s?db=1&strict=1m&user=a", minute),
            ("redis+sentinel://a,b/main?strict=60s&db=2", minute),
            ("redis+cluster://a?strict=1m", minute),
        ] {
            assert_eq!(options(url).unwrap().strict, expected, "{url}");
        }
    }

    #[test]
    fn any_url_may_allow_eviction() {
        for (url, expected) in [
            ("redis://h", false),
            ("redis://h?allow_eviction=no", false),
            ("redis://h/1?allow_eviction=yes", true),
            ("unix:///s?allow_eviction=yes&db=1", true),
            ("redis+sentinel://a,b/main?allow_eviction=yes", true),
            ("redis+cluster://a?wait_replicas=1&allow_eviction=yes", true),
        ] {
            assert_eq!(options(url).unwrap().allow_eviction, expected, "{url}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (parameters, reason) in [
            ("wait_replicas=-1", "`wait_replicas` in the redis URL is not a number"),
            ("wait_replicas=0", "wait_replicas 0 waits for no replica"),
            ("wait_timeout=200ms", "`wait_timeout` in the redis URL has no wait_replicas"),
            ("wait_replicas=1&wait_timeout=200", "`wait_timeout` in the redis URL is not a duration"),
            ("wait_replicas=1&wait_timeout=0s", "wait_timeout 0s is too short"),
            ("wait_replicas=1&wait_timeout=501ms", "half of the command_timeout"),
            ("strict=7", "`strict` in the redis URL is not a duration: give the longest lease"),
            ("strict=true", "`strict` in the redis URL is not a duration: give the longest lease"),
            ("strict=0s", "strict 0s is too short"),
            ("allow_eviction=1", "`allow_eviction` in the redis URL is neither yes nor no"),
            ("allow_eviction=yes&strict=60s", "strict mode excludes allow_eviction"),
        ] {
            let error = options(&format!("redis://u:secret@h?{parameters}")).expect_err(parameters);
            assert_eq!(error.kind(), ErrorKind::Misused, "{parameters}: {error}");
            assert!(error.message().contains(reason), "{parameters}: {error}");
        }
    }
}
