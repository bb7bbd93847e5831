//! The list of stores, and the URL of each.

pub(crate) mod failing;
pub mod memory;
pub(crate) mod opening;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use crate::{
    error::{Error, ErrorKind, Result},
    store::Store,
};
pub use memory::Memory;
use opening::Opening;
use std::sync::Arc;

/// Opens the store that `url` names.
#[cfg_attr(
    not(feature = "redis"),
    expect(clippy::unused_async, reason = "stores across a network are awaited")
)]
pub(crate) async fn open(url: &str, opening: &Opening) -> Result<Arc<dyn Store>> {
    let parts = url.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = parts else {
        return Err(misused(format!("`{}` is not a URL; {ACCEPTED}", without_login(url))));
    };
    match &*scheme.to_ascii_lowercase() {
        "memory" if rest.is_empty() => Ok(Arc::new(Memory::of_process())),
        "memory" => {
            let url = without_login(url);
            Err(misused(format!("memory:// takes no host and no path, but the URL is `{url}`")))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" => Ok(redis::Redis::open(url, opening).await?),
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "unix" | "redis+unix" => {
            let _ = opening;
            Err(misused(format!("this build has no store for {scheme}://: enable the Cargo feature `redis`")))
        }
        other => Err(misused(format!("no store is called `{other}://`; {ACCEPTED}"))),
    }
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
    host.ends_with(']')
        || host.rsplit_once(':').is_none_or(|(_, port)| port.is_empty() || port.parse::<u16>().is_ok())
}

fn is_of_scheme(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "+-.".contains(letter)
}

const ACCEPTED: &str = "accepted are memory:// (this process only), redis://HOST:PORT, rediss://HOST:PORT and \
                        unix:///PATH";

fn misused(message: String) -> Error {
    Error::new(ErrorKind::Misused, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;

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
            "redis://u:1/sekret@h",
            "redis://u:sekret/@h",
            "redis://:sekret",
            "redis://u:sekret",
            "redis://:sekret/1",
            "redis:u:sekret",
            "redis:sekret",
            ":sekret",
            "unix:/s?pass=sekret",
            "unix:///s?db=0&sekret=1",
        ] {
            let error = block_on(open(url, &Opening::default())).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
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
        assert_eq!(without_login("unix:///s?db=1&pass=se"), "unix:///s");
        assert_eq!(without_login("redis://u:p@h:6379/1?x=1"), "redis://..@h:6379/1");
        assert_eq!(without_login(""), "");
    }
}
