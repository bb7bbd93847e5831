//! The `redis+cluster://` URL.

use super::{PORT, hosts, place, server_at, settings};
use locker_core::{error::Result, store::url::StoreUrl};
use redis::{ConnectionAddr, ConnectionInfo};

/// Some nodes of a cluster, with user and password.
#[derive(Clone)]
pub(in super::super) struct Clustered {
    pub(in super::super) seeds: Vec<ConnectionInfo>,
}

impl Clustered {
    pub(in super::super) fn of(url: &StoreUrl) -> Result<Self> {
        if !url.path()?.is_empty() {
            return Err(url.wrong("path", "is a database, and a cluster has only database 0: use a prefix"));
        }
        let settings = settings(url.user.as_deref(), url.password.as_deref(), 0);
        Ok(Self { seeds: hosts(url, super::has_tls(url), &settings, PORT)? })
    }

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

#[cfg(test)]
mod tests {
    use super::{super::read, *};

    fn clustered(url: &str) -> Result<Clustered> {
        Clustered::of(&read(url)?)
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
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_for_all_nodes() {
        let read = clustered("REDISS+CLUSTER://h").unwrap();
        assert!(read.has_tls() && read.redacted() == "rediss+cluster://h:6379");
        assert!(matches!(read.node("g".into(), 1).addr(), ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn databases_are_refused() {
        for (end, part) in [("/0", "the path"), ("/3", "the path"), ("?db=0", "the parameter `db`")] {
            let error = clustered(&format!("redis+cluster://u:secret@h{end}")).err().expect(end);
            assert!(error.message().starts_with(&format!("{part} in the redis URL")), "{end}: {error}");
        }
    }
}
