//! The `redis+sentinel://` URL.

use super::{database, has_tls, hosts, place, server_at, settings, truth};
use locker_core::{error::Result, store::url::StoreUrl};
use redis::{ConnectionAddr, ConnectionInfo};

const PORT: u16 = 26_379;

/// A master that sentinels watch.
pub(in super::super) struct Watched {
    /// The name that the sentinels have for the master.
    pub(in super::super) name: String,
    pub(in super::super) sentinels: Vec<ConnectionInfo>,
    /// User, password and database of the servers. The address is of a sentinel, in place of a server's.
    pub(in super::super) servers: ConnectionInfo,
}

impl Watched {
    pub(in super::super) fn of(url: &StoreUrl) -> Result<Self> {
        let name = url.path()?.to_owned();
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if name.is_empty() || !name.chars().all(is_of_name) {
            let why = "is not the master's name, of letters, digits and the characters . _ -";
            return Err(url.wrong("path", why));
        }
        let sentinels_have_tls = truth(url, "sentinel_tls")?.unwrap_or_else(|| has_tls(url));
        if sentinels_have_tls && !cfg!(feature = "tls") {
            return Err(url.wrong_parameter("sentinel_tls", "needs the Cargo feature `redis-tls`"));
        }
        let [user, password] = ["sentinel_user", "sentinel_password"].map(|name| url.parameter(name));
        if user.is_some() && password.is_none() {
            return Err(url.wrong_parameter("sentinel_user", "has no sentinel_password beside it"));
        }
        let of_servers = settings(url.user.as_deref(), url.password.as_deref(), database(url)?);
        Ok(Self {
            name,
            sentinels: hosts(url, sentinels_have_tls, &settings(user, password, 0), PORT)?,
            servers: hosts(url, has_tls(url), &of_servers, PORT)?.remove(0),
        })
    }

    /// Returns the URL without users and passwords, for messages.
    pub(in super::super) fn redacted(&self) -> String {
        let scheme = match self.servers.addr() {
            ConnectionAddr::TcpTls { .. } => "rediss+sentinel",
            _ => "redis+sentinel",
        };
        let places: Vec<_> = self.sentinels.iter().map(place).collect();
        let db = self.servers.redis_settings().db();
        format!("{scheme}://{}/{}?db={db}", places.join(","), self.name)
    }

    /// Returns what is needed to connect to the server at this place.
    pub(in super::super) fn server(&self, host: String, port: u16) -> ConnectionInfo {
        server_at(&self.servers, host, port)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::read, *};

    fn watched(url: &str) -> Result<Watched> {
        Watched::of(&read(url)?)
    }

    #[test]
    fn url_has_sentinels_name_and_logins() {
        let url = "redis+sentinel://ann:p%40s:s@h1,h2:7,[::1],[::1]:8/main.1?db=3&sentinel_user=s%40t&sentinel_password=a/b@%25";
        let watched = watched(url).unwrap();
        assert_eq!(watched.redacted(), "redis+sentinel://h1:26379,h2:7,[::1]:26379,[::1]:8/main.1?db=3");
        assert_eq!(watched.name, "main.1");
        let login = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            (settings.username().map(str::to_owned), settings.password().map(str::to_owned), settings.db())
        };
        assert_eq!(login(&watched.servers), (Some("ann".into()), Some("p@s:s".into()), 3));
        for sentinel in &watched.sentinels {
            assert_eq!(login(sentinel), (Some("s@t".into()), Some("a/b@%".into()), 0));
        }
        let server = watched.server("::2".into(), 6379);
        assert_eq!((place(&server), login(&server)), ("[::2]:6379".into(), login(&watched.servers)));
    }

    #[test]
    fn url_without_logins_has_none() {
        let watched = watched("REDIS+SENTINEL://h/main").unwrap();
        for info in [&watched.servers, &watched.sentinels[0]] {
            assert_eq!((info.redis_settings().username(), info.redis_settings().password()), (None, None));
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_for_servers_and_sentinels() {
        let has_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        for (url, sentinels) in
            [("rediss+sentinel://h/main", true), ("rediss+sentinel://h/main?sentinel_tls=no", false)]
        {
            let watched = watched(url).unwrap();
            let server = watched.server("g".into(), 1);
            assert!(has_tls(&server) && watched.redacted().starts_with("rediss+sentinel://h:26379/main"));
            assert_eq!(has_tls(&watched.sentinels[0]), sentinels, "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_by_part() {
        for (end, part) in [
            ("", "the path"),
            ("/", "the path"),
            ("/a/b", "the path"),
            ("/main?db=-1", "the parameter `db`"),
            ("/main?sentinel_user=secret", "the parameter `sentinel_user`"),
            ("/main?sentinel_tls=secret", "the parameter `sentinel_tls`"),
            ("/main?sentinel_password=a&secret=1", "the query"),
        ] {
            let error = watched(&format!("redis+sentinel://u:secret@h{end}")).err().expect(end);
            let text = format!("{error} {error:?}");
            assert!(error.message().starts_with(&format!("{part} in the redis URL")), "{end}: {text}");
            assert!(!text.contains("secret"), "{end}: {text}");
        }
    }
}
