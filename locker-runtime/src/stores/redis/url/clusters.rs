//! The `redis+cluster://` URL.

use super::{
    misused,
    sentinels::{login_of, one, place, server_at},
};
use locker_core::error::{Error, Result};
use redis::{ConnectionAddr, ConnectionInfo};

const PORT: u16 = 6379;

/// Some nodes of a cluster, with user and password.
#[derive(Clone)]
pub(in super::super) struct Clustered {
    pub(in super::super) seeds: Vec<ConnectionInfo>,
}

impl Clustered {
    /// Returns the URL without user and password, for messages.
    pub(in super::super) fn redacted(&self) -> String {
        let scheme = if self.has_tls() { "rediss+cluster" } else { "redis+cluster" };
        let places: Vec<_> = self.seeds.iter().map(place).collect();
        format!("{scheme}://{}", places.join(","))
    }

    pub(in super::super) fn has_tls(&self) -> bool {
        matches!(self.seeds[0].addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Returns what is needed to connect to the node at this place.
    pub(in super::super) fn node(&self, host: String, port: u16) -> ConnectionInfo {
        server_at(&self.seeds[0], host, port)
    }
}

/// Reads a URL of a cluster. Returns `None` for other schemes. No error message shows the URL, because it may contain
/// a password.
pub(in super::super) fn read_clustered(url: &str) -> Option<Result<Clustered>> {
    let (scheme, rest) = url.split_once("://")?;
    match &*scheme.to_ascii_lowercase() {
        "redis+cluster" => Some(read_rest(rest, false)),
        "rediss+cluster" => Some(read_rest(rest, true)),
        _ => None,
    }
}

fn read_rest(rest: &str, tls: bool) -> Result<Clustered> {
    if rest.contains('#') {
        return Err(wrong("has a fragment (#..), which is not supported: write %23 in a password"));
    }
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    if let Some(parameter) = parameters.split('&').find(|parameter| !parameter.is_empty()) {
        return Err(match parameter.split('=').next() {
            Some("db") => has_database(),
            _ => wrong("has an unknown parameter (known are wait_replicas, wait_timeout and strict)"),
        });
    }
    let (login, place) = place.rsplit_once('@').map_or(("", place), |(login, place)| (login, place));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    if !path.is_empty() {
        return Err(has_database());
    }
    if hosts.is_empty() || hosts.split(',').any(|host| host.is_empty() || host.starts_with(':')) {
        return Err(wrong("has no host of a node, or an empty one"));
    }
    let login = login_of(login);
    let seeds = hosts.split(',').map(|host| one(tls, &login, host, PORT, "0")).collect::<Result<_>>()?;
    Ok(Clustered { seeds })
}

fn has_database() -> Error {
    wrong("has a database, and a cluster has only database 0: use a prefix")
}

fn wrong(what: &str) -> Error {
    misused(&format!("the URL of the cluster {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::error::ErrorKind;

    fn clustered(url: &str) -> Result<Clustered> {
        read_clustered(url).expect("a URL of a cluster")
    }

    #[test]
    fn url_has_nodes_and_login() {
        for end in ["", "/", "?", "/?"] {
            let read = clustered(&format!("redis+cluster://ann:p%40s:s@h1,h2:7,[::1],[::1]:8{end}")).unwrap();
            assert_eq!(read.redacted(), "redis+cluster://h1:6379,h2:7,[::1]:6379,[::1]:8");
            let node = read.node("::2".into(), 7000);
            assert_eq!(place(&node), "[::2]:7000");
            for info in read.seeds.iter().chain([&node]) {
                let settings = info.redis_settings();
                assert_eq!((settings.username(), settings.password()), (Some("ann"), Some("p@s:s")));
            }
        }
        assert!(read_clustered("redis://h").is_none());
    }

    #[cfg(feature = "redis-tls")]
    #[test]
    fn tls_is_for_all_nodes() {
        let read = clustered("REDISS+CLUSTER://h").unwrap();
        assert!(read.has_tls() && read.redacted() == "rediss+cluster://h:6379");
        assert!(matches!(read.node("g".into(), 1).addr(), ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn wrong_urls_are_refused_by_name() {
        for (url, reason) in [
            ("redis+cluster://", "no host"),
            ("redis+cluster://u:secret@", "no host"),
            ("redis+cluster://u:secret@:6379", "no host"),
            ("redis+cluster://u:secret@h,", "no host"),
            ("redis+cluster://u:secret@h/0", "database"),
            ("redis+cluster://u:secret@h/3", "database"),
            ("redis+cluster://u:secret@h?db=0", "database"),
            ("redis+cluster://u:secret@h/?secret=1", "unknown parameter"),
            ("redis+cluster://u:secret@h:0", "port"),
            ("redis+cluster://u:secret@h:99999", "port"),
            ("redis+cluster://u:secret@h a", "not valid"),
            ("redis+cluster://u:secret@h#x", "fragment"),
        ] {
            let error = clustered(url).err().expect(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(reason) && text.contains("redis+cluster://["), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
