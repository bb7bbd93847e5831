//! The `postgres://` URL.

use locker_core::{
    error::{Error, ErrorKind, Result},
    store::opening::Opening,
};
use std::time::Duration;
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

const ACCEPTED: &str = "accepted is postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], with the parameters \
                        durable, lanes, listen, poll, schema and sslmode";

/// A server, and how the store uses it.
pub(super) struct Target {
    pub(super) config: Config,
    /// The server for the listening connection, if the other address leads to a pool.
    pub(super) listen: Option<Config>,
    pub(super) tls: bool,
    /// Set if `tls` is.
    #[cfg(feature = "postgres-tls")]
    pub(super) connector: Option<tokio_postgres_rustls::MakeRustlsConnect>,
    /// Whether grants wait for the disk.
    pub(super) durable: bool,
    /// The number of connections for durable writes.
    pub(super) lanes: usize,
    /// The interval of polling if messages are not heard.
    pub(super) poll: Duration,
    pub(super) schema: String,
    /// The address without user and password, for messages.
    pub(super) address: String,
}

/// Reads a URL. No error message shows more of it than the names of parameters.
pub(super) fn read(url: &str, opening: &Opening) -> Result<Target> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    if url.contains('#') || query.contains('@') {
        return Err(misused(
            "the postgres URL has a fragment (#..), or a `?` before its host: write `?` as %3F, `@` as %40 and `#` \
             as %23 in user and password",
        ));
    }
    let mut config = login(place)?;
    config.application_name("locker").target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.keepalives_idle(PROBE).keepalives_interval(PROBE).tcp_user_timeout(PROBE);
    let mut target = Target {
        address: address(&config),
        config,
        listen: None,
        tls: false,
        #[cfg(feature = "postgres-tls")]
        connector: None,
        durable: true,
        lanes: 4,
        poll: Duration::from_millis(100),
        schema: "public".into(),
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        target.set(name, value)?;
    }
    let mode = if target.tls { SslMode::Require } else { SslMode::Disable };
    target.config.ssl_mode(mode);
    if let Some(listen) = &mut target.listen {
        listen.ssl_mode(mode);
    }
    #[cfg(feature = "postgres-tls")]
    if target.tls {
        target.connector = Some(super::tls::connector(authorities(opening))?);
    }
    #[cfg(not(feature = "postgres-tls"))]
    let _ = opening;
    Ok(target)
}

/// Returns the certificate authorities that the caller has passed.
#[cfg(feature = "postgres-tls")]
fn authorities(opening: &Opening) -> Option<&[u8]> {
    opening.network.tls_ca.as_deref()
}

/// The interval of probes on a silent connection.
const PROBE: Duration = Duration::from_secs(10);

impl Target {
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "lanes" => match value.parse() {
                Ok(lanes @ 1..=64) => self.lanes = lanes,
                _ => return Err(malformed(name, "give a number from 1 to 64")),
            },
            "poll" => match humantime::parse_duration(value) {
                Ok(poll) if (SHORTEST_POLL..=LONGEST_POLL).contains(&poll) => self.poll = poll,
                _ => return Err(malformed(name, "give a duration from 10ms to 10s")),
            },
            "listen" => {
                let direct = self.direct(value);
                self.listen = Some(direct.ok_or_else(|| malformed(name, "give HOST:PORT"))?);
            }
            "schema" => {
                let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                if value.is_empty() || value.len() > 63 || !value.chars().all(is_plain) {
                    return Err(malformed(name, "give a name of up to 63 letters, digits and underscores"));
                }
                value.clone_into(&mut self.schema);
            }
            "sslmode" => match value {
                "disable" => self.tls = false,
                "require" | "verify-full" if cfg!(feature = "postgres-tls") => self.tls = true,
                "require" | "verify-full" => {
                    return Err(misused(
                        "this build does not support TLS to PostgreSQL: enable the Cargo feature `postgres-tls`",
                    ));
                }
                _ => {
                    let accepted =
                        "give disable or require, which checks the certificate and the name of the server";
                    return Err(malformed(name, accepted));
                }
            },
            "durable" => match value {
                "true" => self.durable = true,
                "false" => self.durable = false,
                _ => return Err(malformed(name, "give true or false")),
            },
            _ => return Err(misused(&format!("the postgres URL has the unknown parameter `{name}`"))),
        }
        Ok(())
    }

    fn direct(&self, place: &str) -> Option<Config> {
        let (host, port) = place.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_host = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        if host.is_empty() || !host.chars().all(is_host) {
            return None;
        }
        let mut config = Config::new();
        config.host(host).port(port).application_name("locker");
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(PROBE).keepalives_interval(PROBE).tcp_user_timeout(PROBE);
        self.config.get_user().map(|user| config.user(user));
        self.config.get_password().map(|password| config.password(password));
        self.config.get_dbname().map(|database| config.dbname(database));
        Some(config)
    }
}

const SHORTEST_POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// Reads the part before the parameters.
fn login(place: &str) -> Result<Config> {
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    if !matches!(&*scheme.to_ascii_lowercase(), "postgres" | "postgresql") {
        return Err(misused("the postgres URL is not valid"));
    }
    let hosts = rest.rsplit('@').next().unwrap_or(rest).split('/').next().unwrap_or_default();
    for host in hosts.split(',') {
        let port = host.rsplit(']').next().and_then(|end| end.rsplit_once(':'));
        if port.is_some_and(|(_, port)| {
            port.parse::<u16>().is_ok_and(|port| port == 0) || port.parse::<u16>().is_err()
        }) {
            return Err(misused("the port in the postgres URL is not a number from 1 to 65535"));
        }
    }
    if hosts.is_empty() || rest.matches('@').count() > 1 {
        return Err(misused(
            "the postgres URL has no host, or an `@` in the password that is not written as %40",
        ));
    }
    format!("postgresql://{rest}").parse().map_err(|_| misused("the postgres URL is not valid"))
}

/// Returns the address without user and password, for messages.
fn address(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) if host.contains(':') => format!("[{host}]:{port}"),
            Host::Tcp(host) => format!("{host}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<_> = config.get_hosts().iter().enumerate().map(host).collect();
    format!("postgres://{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

fn malformed(name: &str, accepted: &str) -> Error {
    misused(&format!("the parameter `{name}` in the postgres URL is not valid: {accepted}"))
}

fn misused(what: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("{what}; {ACCEPTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_parameter_and_never_the_password() {
        for (url, named) in [
            ("postgres://", "no host"),
            ("postgres://u:sekret@", "no host"),
            ("postgres://u:se@kret@h", "no host"),
            ("postgres://u:sekret@h:99999/db", "port"),
            ("postgres://u:sekret@h:0/db", "port"),
            ("postgres://h:sekret", "port"),
            ("postgres://u:sekret%zz@h/%ff%fe", "not valid"),
            ("postgres://u:p?sekret=x@h", "fragment"),
            ("postgres://u:sekret@h/db#x", "fragment"),
            ("postgres://u:sekret@h/db?pool=3", "`pool`"),
            ("postgres://u:sekret@h/db?password=sekret", "`password`"),
            ("postgres://u:sekret@h/db?lanes=0", "`lanes`"),
            ("postgres://u:sekret@h/db?lanes=many", "`lanes`"),
            ("postgres://u:sekret@h/db?lanes", "`lanes`"),
            ("postgres://u:sekret@h/db?poll=sekret", "`poll`"),
            ("postgres://u:sekret@h/db?poll=1us", "`poll`"),
            ("postgres://u:sekret@h/db?listen=h", "`listen`"),
            ("postgres://u:sekret@h/db?listen=h:0", "`listen`"),
            ("postgres://u:sekret@h/db?schema=a\"b", "`schema`"),
            ("postgres://u:sekret@h/db?sslmode=prefer", "`sslmode`"),
            ("postgres://u:sekret@h/db?durable=no", "`durable`"),
        ] {
            let error = read(url, &Opening::default()).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(named) && text.contains("accepted is"), "{url}: {text}");
            assert!(!text.contains("sekret") && !text.contains("kret"), "{url}: {text}");
        }
    }

    #[test]
    fn url_has_login_hosts_and_parameters() {
        let url = "postgresql://ann:p%40ss@one:7000,two:7001/shop?lanes=2&durable=true&poll=50ms&schema=locks&\
                   listen=[::1]:5432&sslmode=disable";
        let target = read(url, &Opening::default()).unwrap();
        assert_eq!((target.lanes, target.poll, &*target.schema), (2, Duration::from_millis(50), "locks"));
        assert!(target.durable);
        assert!(!read("postgres://h?durable=false", &Opening::default()).unwrap().durable);
        assert_eq!(target.config.get_user(), Some("ann"));
        assert_eq!(target.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(target.address, "postgres://one:7000,two:7001/shop");
        let listen = target.listen.unwrap();
        assert_eq!((listen.get_password(), listen.get_ports()), (Some(&b"p@ss"[..]), &[5432][..]));
        assert_eq!(read("postgres://[::1]", &Opening::default()).unwrap().address, "postgres://[::1]:5432/");
    }
}
