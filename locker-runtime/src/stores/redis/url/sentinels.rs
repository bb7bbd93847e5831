//! The `redis+sentinel://` URL.

use super::{bracketed, misused, read};
use locker_core::error::{Error, Result};
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

/// Returns what is needed to connect to this place with login and TLS of `like`.
pub(super) fn server_at(like: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    like.clone().set_addr(addr)
}

/// Returns host and port.
pub(in super::super) fn place(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{}:{port}", bracketed(host))
        }
        other => other.to_string(),
    }
}

/// The parameters as the URL has them.
#[derive(Default)]
struct Parameters<'a> {
    db: Option<&'a str>,
    sentinel_user: Option<&'a str>,
    sentinel_password: Option<&'a str>,
    sentinel_tls: Option<&'a str>,
}

/// Reads a URL of sentinels. Returns `None` for other schemes. No error message shows the URL, because it may contain
/// passwords.
pub(in super::super) fn read_watched(url: &str) -> Option<Result<Watched>> {
    let (scheme, rest) = url.split_once("://")?;
    match &*scheme.to_ascii_lowercase() {
        "redis+sentinel" => Some(read_rest(rest, false)),
        "rediss+sentinel" => Some(read_rest(rest, true)),
        _ => None,
    }
}

fn read_rest(rest: &str, tls: bool) -> Result<Watched> {
    if rest.contains('#') {
        return Err(wrong("has a fragment (#..), which is not supported: write %23 in a password"));
    }
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let parameters = read_parameters(parameters)?;
    let (login, place) = place.rsplit_once('@').map_or(("", place), |(login, place)| (login, place));
    let (hosts, name) = place.split_once('/').unwrap_or((place, ""));
    if hosts.is_empty() || hosts.split(',').any(|host| host.is_empty() || host.starts_with(':')) {
        return Err(wrong("has no host of a sentinel, or an empty one"));
    }
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if name.is_empty() || !name.chars().all(is_of_name) {
        return Err(wrong(
            "needs the master's name after the hosts, of letters, digits and the characters . _ -",
        ));
    }
    let sentinel_tls = match parameters.sentinel_tls {
        None => tls,
        Some("yes") => true,
        Some("no") => false,
        Some(_) => return Err(wrong("has a parameter sentinel_tls that is neither yes nor no")),
    };
    let sentinel_login = match (parameters.sentinel_user, parameters.sentinel_password) {
        (None, None) => String::new(),
        (Some(_), None) => return Err(wrong("has a sentinel_user, but no sentinel_password")),
        (user, Some(password)) => format!("{}:{}", user.map_or_else(String::new, escaped), escaped(password)),
    };
    let sentinels = hosts.split(',').map(|host| one(sentinel_tls, &sentinel_login, host, PORT, "0"));
    let sentinels = sentinels.collect::<Result<Vec<_>>>()?;
    let first = hosts.split(',').next().unwrap_or_default();
    let servers = one(tls, &login_of(login), first, PORT, parameters.db.unwrap_or("0"))?;
    Ok(Watched { name: name.to_owned(), sentinels, servers })
}

fn read_parameters(text: &str) -> Result<Parameters<'_>> {
    let mut parameters = Parameters::default();
    for parameter in text.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match name {
            "db" => &mut parameters.db,
            "sentinel_user" => &mut parameters.sentinel_user,
            "sentinel_password" => &mut parameters.sentinel_password,
            "sentinel_tls" => &mut parameters.sentinel_tls,
            _ => {
                let known = "known are db, sentinel_user, sentinel_password, sentinel_tls, wait_replicas, wait_timeout \
                             and strict";
                return Err(wrong(&format!("has an unknown parameter ({known})")));
            }
        };
        if value.is_empty() || place.replace(value).is_some() {
            return Err(wrong(&format!("has no value, or two, for {name}")));
        }
    }
    Ok(parameters)
}

/// Reads one host with its login, as in the URL of one server.
pub(super) fn one(tls: bool, login: &str, host: &str, default_port: u16, db: &str) -> Result<ConnectionInfo> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if has_port { String::new() } else { format!(":{default_port}") };
    let (scheme, at) = (if tls { "rediss" } else { "redis" }, if login.is_empty() { "" } else { "@" });
    read(&format!("{scheme}://{login}{at}{host}{port}/{}", escaped(db)))
}

/// Returns user and password with all other marks encoded.
pub(super) fn login_of(login: &str) -> String {
    match login.split_once(':') {
        Some((user, password)) => format!("{}:{}", escaped(user), escaped(password)),
        None => escaped(login),
    }
}

/// Encodes the marks that have a meaning before a host.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '@' | ':' | '/' | '?' | '#' | '[' | ']' | '\\' => {
                escaped.extend(format!("%{:02X}", u32::from(letter)).chars());
            }
            _ => escaped.push(letter),
        }
    }
    escaped
}

fn wrong(what: &str) -> Error {
    misused(&format!("the URL of the sentinels {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::error::ErrorKind;

    fn watched(url: &str) -> Result<Watched> {
        read_watched(url).expect("a URL of sentinels")
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
        assert!(read_watched("redis://h/main").is_none());
    }

    #[cfg(feature = "redis-tls")]
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
    fn wrong_urls_are_refused_by_name() {
        for (url, reason) in [
            ("redis+sentinel://", "no host"),
            ("redis+sentinel:///main", "no host"),
            ("redis+sentinel://u:secret@/main", "no host"),
            ("redis+sentinel://u:secret@:26379/main", "no host"),
            ("redis+sentinel://u:secret@h,/main", "no host"),
            ("redis+sentinel://u:secret@h", "the master's name"),
            ("redis+sentinel://u:secret@h/", "the master's name"),
            ("redis+sentinel://u:secret@h/a/b", "the master's name"),
            ("redis+sentinel://u:secret@h:0/main", "port"),
            ("redis+sentinel://u:secret@h:99999/main", "port"),
            ("redis+sentinel://u:secret@h a/main", "not valid"),
            ("redis+sentinel://u:secret@h/main?secret=1", "unknown parameter (known are db,"),
            ("redis+sentinel://u:secret@h/main?db=one", "database"),
            ("redis+sentinel://u:secret@h/main?db=-1", "negative"),
            ("redis+sentinel://u:secret@h/main?db=1&db=2", "or two, for db"),
            ("redis+sentinel://h/main?sentinel_user=secret", "no sentinel_password"),
            ("redis+sentinel://h/main?sentinel_tls=secret", "neither yes nor no"),
            ("redis+sentinel://u:secret@h/main#x", "fragment"),
        ] {
            let error = watched(url).err().expect(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(reason) && text.contains("redis+sentinel://["), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
