//! The stores that a program can make by itself, for [`LockerBuilder::store`](crate::LockerBuilder::store). All others
//! are opened by their URL: [`Locker::connect`](crate::Locker::connect).

pub(crate) mod failing;

pub use locker_core::store::memory::{self, Memory};
use locker_core::{
    error::{Error, ErrorKind, Result},
    process::OfProcess,
    store::{Store, opening::Opening},
};
use std::sync::Arc;

/// Opens the store that `url` names.
pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    // In a forked child, what its parent opens cannot be awaited.
    let opened = OfProcess::new(Box::pin(open_here(url, opening))).await;
    opened.ok_or_else(|| Error::made_before_a_fork("this store was opened", "open it in the child"))?
}

#[cfg_attr(
    not(any(
        feature = "redis",
        feature = "postgres",
        feature = "etcd",
        feature = "mysql",
        feature = "zookeeper",
        feature = "files"
    )),
    expect(clippy::unused_async, reason = "for stores that other processes share")
)]
#[cfg_attr(
    not(any(
        feature = "redis",
        feature = "postgres",
        feature = "etcd",
        feature = "mysql",
        feature = "zookeeper",
        feature = "files",
        feature = "_fake"
    )),
    expect(unused_variables, reason = "for stores that other processes share")
)]
async fn open_here(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = split(url)?;
    match &*scheme {
        "memory" => check_memory(url, rest).map(|()| Arc::new(Memory::of_process()) as Arc<dyn Store>),
        #[cfg(feature = "redis")]
        scheme if REDIS.contains(&scheme) => Ok(locker_redis::Redis::open(url, opening).await?),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            locker_cas::shared(url, opening, locker_postgres::open(url, opening)).await
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => locker_cas::shared(url, opening, locker_etcd::Etcd::open(url, opening)).await,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => locker_cas::shared(url, opening, locker_mysql::open(url, opening)).await,
        #[cfg(feature = "zookeeper")]
        "zk" | "zks" => {
            locker_cas::shared(url, opening, locker_zookeeper::Zookeeper::open(url, opening)).await
        }
        #[cfg(all(feature = "files", target_os = "linux"))]
        "file" => locker_cas::shared(url, opening, locker_files::Files::open(url, opening)).await,
        #[cfg(feature = "_fake")]
        "fake" => Ok(locker_cas::fake::open(rest, opening)?),
        scheme => Err(no_store(scheme)),
    }
}

/// Checks a URL and its options, as far as that is possible without opening the store.
#[cfg_attr(
    not(any(feature = "redis", feature = "postgres", feature = "mysql")),
    expect(unused_variables, reason = "for stores that check them")
)]
pub(crate) fn check(url: &str, opening: &Opening) -> Result<()> {
    let (scheme, rest) = split(url)?;
    match &*scheme {
        "memory" => check_memory(url, rest),
        #[cfg(feature = "redis")]
        scheme if REDIS.contains(&scheme) => locker_redis::check_url(url, opening),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => locker_postgres::check_url(url, opening),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => locker_etcd::check_url(url),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => locker_mysql::check_url(url, opening),
        #[cfg(feature = "zookeeper")]
        "zk" | "zks" => locker_zookeeper::check_url(url),
        #[cfg(all(feature = "files", target_os = "linux"))]
        "file" => locker_files::check_url(url),
        #[cfg(feature = "_fake")]
        "fake" => Ok(()),
        scheme => Err(no_store(scheme)),
    }
}

/// Returns the scheme in lower case, and what follows `://`.
fn split(url: &str) -> Result<(String, &str)> {
    let parts = url.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = parts else {
        return Err(misused(format!("`{}` is not a URL; {ACCEPTED}", without_login(url))));
    };
    Ok((scheme.to_ascii_lowercase(), rest))
}

fn check_memory(url: &str, rest: &str) -> Result<()> {
    let parameter = rest.strip_prefix('?').and_then(|query| query.split_once('=')).map(|(name, _)| name);
    if rest.is_empty() {
        return Ok(());
    } else if let Some(name) = parameter.filter(|name| name.chars().all(is_of_name) && !rest.contains('@')) {
        return Err(misused(format!("the parameter `{name}` in the memory URL is unknown: it takes none")));
    }
    let url = without_login(url);
    Err(misused(format!("memory:// takes no host and no path, but the URL is `{url}`")))
}

/// Returns a URL with a parameter of redis that is an option beside the URL. `allow_eviction` changes no other store.
///
/// # Errors
/// `Misused` if the URL is of another store, or has another value.
pub(crate) fn with_parameter(url: &str, name: &str, value: &str) -> Result<String> {
    let (scheme, rest) = split(url)?;
    if !REDIS.contains(&&*scheme) {
        return match name {
            "allow_eviction" => Ok(url.to_owned()),
            _ => Err(misused(format!("{name} is for redis, and not for this store ({scheme})"))),
        };
    }
    let (url, rest) = (url.trim_end(), rest.trim_end());
    let query = rest.split_once('?').map(|(_, query)| query);
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(known, _)| *known == name) {
        Some((_, in_url)) if is_same(in_url, value) => Ok(url.to_owned()),
        Some(_) => {
            Err(misused(format!("{name} is also in the URL, with another value: leave one of them out")))
        }
        None => Ok(format!("{url}{}{name}={value}", if query.is_some() { '&' } else { '?' })),
    }
}

#[cfg(feature = "_network")]
use locker_core::store::url::are_same_value as is_same;

/// A build without these stores refuses the URL anyway.
#[cfg(not(feature = "_network"))]
fn is_same(one: &str, other: &str) -> bool {
    one == other
}

/// Returns the error for a URL that this build opens no store for.
fn no_store(scheme: &str) -> Error {
    let known = FEATURES.iter().find(|(schemes, _)| schemes.contains(&scheme));
    misused(match known {
        Some((_, feature)) => {
            format!("this build has no store for {scheme}://: enable the Cargo feature `{feature}`")
        }
        None => format!("no store is called `{scheme}://`; {ACCEPTED}"),
    })
}

/// Returns a URL, well-formed or not, without its login and its parameters.
#[doc(hidden)]
#[must_use]
pub fn without_login(url: &str) -> String {
    let rest = url.trim_start_matches(is_of_scheme);
    let marks = rest.chars().take(3).take_while(|mark| matches!(mark, ':' | '/')).count();
    let scheme = if marks == 0 { "" } else { &url[..url.len() - rest.len() + marks] };
    let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
    match place.rsplit_once('@') {
        // A password may contain `?`. Only the URL of a socket has its password nowhere but in the parameters.
        _ if parameters.contains('@') && !scheme.ends_with("unix://") => format!("{scheme}.."),
        Some((_, place)) => format!("{scheme}..@{place}"),
        // Text in the place of a port that is no port is a password whose host was forgotten.
        None if ends_in_a_port(if marks > 1 { &place[scheme.len()..] } else { place }) => place.to_owned(),
        None => format!("{scheme}.."),
    }
}

/// Whether the part before the path is a host, or a host and a port.
fn ends_in_a_port(place: &str) -> bool {
    let host = place.split('/').next().unwrap_or(place);
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    // Some stores have several hosts.
    host.split(',')
        .all(|host| host.ends_with(']') || host.rsplit_once(':').is_none_or(|(_, port)| is_port(port)))
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-".contains(letter)
}

fn is_of_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+-.".contains(letter)
}

const ACCEPTED: &str = "accepted are memory:// (this process only), file:///DIR (this host), redis://HOST:PORT, \
                        redis+sentinel://HOST:PORT,../MASTER, redis+cluster://HOST:PORT,.. (rediss for TLS), \
                        unix:///PATH, postgres://HOST:PORT/DATABASE, mysql://HOST:PORT/DATABASE, \
                        etcd://HOST:PORT,.. (etcds for TLS) and zk://HOST:PORT,../ROOT (zks for TLS)";

const REDIS: [&str; 8] = [
    "redis",
    "rediss",
    "unix",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
];

/// The schemes that need a Cargo feature.
const FEATURES: [(&[&str], &str); 6] = [
    (&REDIS, "redis"),
    (&["postgres", "postgresql"], "postgres"),
    (&["etcd", "etcds"], "etcd"),
    (&["mysql", "mariadb"], "mysql"),
    (&["zk", "zks"], "zookeeper"),
    (&["file"], "files"),
];

fn misused(message: String) -> Error {
    Error::new(ErrorKind::Misused, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::blocking::block_on;

    #[test]
    fn mistyped_urls_show_no_password() {
        for url in [
            "redis//:sekret@h",
            "redis:/:sekret@h:6379",
            "redis:sekret@h",
            "redis/sekret@h",
            "redis@:sekret@h",
            "sekret@h",
            ":sekret@h",
            "u:sekret@h://x",
            "memory://u:sekret@h",
            "rdis://u:sekret@h",
            "http://u:se@kret@h",
            "redis//:se?kret@h",
            "redis:///sekret@h",
            "redis://u:1?sekret=x@h",
            "redis://u:1?sekret@h",
            "redis://u:1#sekret@h",
            "redis://:sekret",
            "redis://u:sekret",
            "redis://:sekret/1",
            "redis:u:sekret",
            "redis:sekret",
            ":sekret",
            "unix:/s?pass=sekret",
            "unix:///s?db=0&pass=a&sekret=1",
        ] {
            let error = block_on(open(url, &Opening::default())).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let checked = check(url, &Opening::default()).expect_err(url);
            assert_eq!(checked.to_string(), error.to_string());
            let text = format!("{error} {error:?} {}", without_login(url));
            assert!(!text.contains("sekret") && !text.contains("kret"), "{url}: {text}");
        }
    }

    #[test]
    fn other_stores_refuse_parameters_of_redis() {
        for url in [
            "memory://",
            #[cfg(feature = "postgres")]
            "postgres://h/d",
            #[cfg(feature = "etcd")]
            "etcd://h",
            #[cfg(feature = "mysql")]
            "mysql://h/d",
            #[cfg(feature = "files")]
            "file:///tmp",
        ] {
            for (name, value) in [("strict", "60s"), ("wait_replicas", "1"), ("allow_eviction", "yes")] {
                let error = check(&format!("{url}?{name}={value}"), &Opening::default()).expect_err(url);
                let names = format!("the parameter `{name}` in the ");
                assert!(error.message().starts_with(&names), "{url}: {error}");
                let option = with_parameter(url, name, value);
                match name {
                    "allow_eviction" => assert_eq!(option.unwrap(), url),
                    _ => assert!(option.unwrap_err().message().starts_with(name)),
                }
            }
        }
    }

    #[test]
    fn options_are_added_to_the_url_of_redis() {
        for (url, expected) in [
            ("redis://h", "redis://h?strict=1m"),
            ("unix:///s?db=1\n", "unix:///s?db=1&strict=1m"),
            ("REDIS+cluster://u:p@a,b/?", "REDIS+cluster://u:p@a,b/?&strict=1m"),
            ("redis://h?strict=60s&db=1", "redis://h?strict=60s&db=1"),
            ("redis://h?strict=0m%2060s", "redis://h?strict=0m%2060s"),
            ("redis://strict=1m@h", "redis://strict=1m@h?strict=1m"),
        ] {
            assert_eq!(with_parameter(url, "strict", "1m").unwrap(), expected);
        }
        for (url, name) in [
            ("redis://u:sekret@h?strict=61s", "strict"),
            ("redis://u:sekret@h?db=sekret&wait_replicas=2", "wait_replicas"),
            ("unix:///s?pass=sekret&allow_eviction=no", "allow_eviction"),
        ] {
            let value = if name == "strict" { "60s" } else { "1" };
            let error = with_parameter(url, name, value).expect_err(url).message().to_owned();
            assert!(error.starts_with(name) && error.contains("also in the URL"), "{url}: {error}");
            assert!(!error.contains("sekret"), "{error}");
        }
        assert!(!with_parameter("u:sekret@h://x", "strict", "1m").unwrap_err().message().contains("sekret"));
    }

    #[test]
    fn schemes_ignore_case() {
        assert!(block_on(open("Memory://", &Opening::default())).is_ok());
        let error = block_on(open("REDIS://", &Opening::default())).unwrap_err();
        assert!(!error.message().contains("no store"), "{error}");
    }

    #[test]
    fn hosts_and_paths_are_shown() {
        assert_eq!(without_login("redis//:sekret@h:6379"), "redis//:..@h:6379");
        for url in
            ["redis://h:6379/1", "redis://h", "redis://[::1]:6379", "redis://[::1]", "h:6379", "unix:///a:b"]
        {
            assert_eq!(without_login(url), url);
        }
        assert_eq!(without_login("etcd://a:2379,b,c:2379"), "etcd://a:2379,b,c:2379");
        assert_eq!(without_login("etcd://a:2379,:sekret"), "etcd://..");
        assert_eq!(without_login("unix:///s?db=1&pass=se"), "unix:///s");
        assert_eq!(without_login("redis://u:p@h:6379/1?x=1"), "redis://..@h:6379/1");
        assert_eq!(without_login(""), "");
    }
}
