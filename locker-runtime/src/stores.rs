//! The list of stores, and the URL of each.

pub(crate) mod failing;

pub use locker_core::store::memory::{self, Memory};
use locker_core::store::opening::Opening;
use locker_core::{
    error::{Error, ErrorKind, Result},
    process::OfProcess,
    store::Store,
};
use std::sync::Arc;

/// Opens the store that `url` names.
pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    // In a forked child, what its parent opens cannot be awaited.
    let opened = OfProcess::new(Box::pin(open_here(url, opening))).await;
    opened.ok_or_else(|| Error::made_before_a_fork("this store was opened", "open it in the child"))?
}

#[cfg_attr(
    not(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "files")),
    expect(clippy::unused_async, reason = "stores that other processes share are awaited")
)]
async fn open_here(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    let (scheme, rest) = split(url, opening)?;
    match &*scheme {
        "memory" => check_memory(url, rest).map(|()| Arc::new(Memory::of_process()) as Arc<dyn Store>),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => Ok(locker_redis::Redis::open(url, opening).await?),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            locker_cas::shared(url, opening, locker_postgres::Postgres::open(url, opening)).await
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => locker_cas::shared(url, opening, locker_etcd::Etcd::open(url, opening)).await,
        #[cfg(feature = "files")]
        "file" => locker_cas::shared(url, opening, locker_files::Files::open(url, opening)).await,
        #[cfg(feature = "_fake")]
        "fake" => Ok(locker_cas::fake::open(rest, opening)?),
        scheme => Err(no_store(scheme)),
    }
}

/// Checks a URL and its options, as far as that is possible without opening the store.
pub(crate) fn check(url: &str, opening: &Opening) -> Result<()> {
    let (scheme, rest) = split(url, opening)?;
    match &*scheme {
        "memory" => check_memory(url, rest),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => locker_redis::check_url(url, opening),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => locker_postgres::check_url(url, opening),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => locker_etcd::check_url(url),
        #[cfg(feature = "files")]
        "file" => locker_files::check_url(url),
        #[cfg(feature = "_fake")]
        "fake" => Ok(()),
        scheme => Err(no_store(scheme)),
    }
}

/// Returns the scheme in lower case, and what follows `://`.
fn split<'a>(url: &'a str, opening: &Opening) -> Result<(String, &'a str)> {
    let parts = url.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = parts else {
        return Err(misused(format!("`{}` is not a URL; {ACCEPTED}", without_login(url))));
    };
    let scheme = scheme.to_ascii_lowercase();
    #[cfg(feature = "redis")]
    if !scheme.contains("redis") && scheme != "unix" {
        check_options_of_redis(&scheme, opening)?;
    }
    #[cfg(not(feature = "redis"))]
    let _ = opening;
    Ok((scheme, rest))
}

fn check_memory(url: &str, rest: &str) -> Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let url = without_login(url);
    Err(misused(format!("memory:// takes no host and no path, but the URL is `{url}`")))
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

/// Refuses options that only Redis has.
#[cfg(feature = "redis")]
pub(crate) fn check_options_of_redis(store: &str, opening: &Opening) -> Result<()> {
    if opening.network.strict.is_some() {
        return Err(misused(format!(
            "strict mode is for redis, and not for this store ({store}): docs/guarantees.md says what it promises"
        )));
    } else if opening.network.replicas.is_some() {
        return Err(misused(format!(
            "wait_replicas is for redis, and this store ({store}) has no replicas to wait for"
        )));
    }
    Ok(())
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

fn is_of_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+-.".contains(letter)
}

const ACCEPTED: &str = "accepted are memory:// (this process only), file:///DIR (this host), redis://HOST:PORT, \
                        redis+sentinel://HOST:PORT,../MASTER, redis+cluster://HOST:PORT,.. (rediss for TLS), \
                        unix:///PATH, postgres://HOST:PORT/DATABASE and etcd://HOST:PORT,.. (etcds for TLS)";

/// The schemes that need a Cargo feature.
const FEATURES: [(&[&str], &str); 4] = [
    (
        &[
            "redis",
            "rediss",
            "unix",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        ],
        "redis",
    ),
    (&["postgres", "postgresql"], "postgres"),
    (&["etcd", "etcds"], "etcd"),
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
