//! The `postgres://` URL.

use locker_core::{
    error::Result,
    ranges::parse_duration,
    store::{
        opening::Opening,
        url::{Form, Host, Hosts, StoreUrl},
    },
};
use std::time::Duration;
use tokio_postgres::{
    Config,
    config::{SslMode, TargetSessionAttrs},
};

const FORM: Form = Form {
    store: "postgres",
    accepted: "postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]..][/DATABASE], with the parameters durable, \
               lanes, listen, poll, schema and sslmode",
    hosts: Hosts::SeveralOrSockets,
    parameters: &["durable", "lanes", "listen", "poll", "schema", "sslmode"],
    logins: &[],
};

const PORT: u16 = 5432;

/// A server, and how the store uses it.
pub(super) struct Target {
    pub(super) config: Config,
    /// The server for the listening connection, if the other address leads to a pool.
    pub(super) listen: Option<Config>,
    /// Set if the URL wants TLS.
    #[cfg(feature = "tls")]
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

/// Reads a URL.
pub(super) fn read(url: &str, opening: &Opening) -> Result<Target> {
    let url = StoreUrl::read(url, &FORM)?;
    let tls = tls(&url)?;
    let places: Vec<_> = url.hosts.iter().map(|host| host.place(PORT)).collect();
    #[cfg(not(feature = "tls"))]
    let _ = opening;
    Ok(Target {
        config: config(&url, &url.hosts, tls)?,
        listen: url.parameter("listen").map(|place| listen(&url, place, tls)).transpose()?,
        #[cfg(feature = "tls")]
        connector: if tls { Some(super::tls::connector(authorities(opening))?) } else { None },
        durable: match url.parameter("durable") {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(url.wrong_parameter("durable", "is neither true nor false")),
        },
        lanes: match url.parameter("lanes").map(str::parse) {
            None => 4,
            Some(Ok(lanes @ 1..=64)) => lanes,
            Some(_) => return Err(url.wrong_parameter("lanes", "is not a number from 1 to 64")),
        },
        poll: match url.parameter("poll").map(parse_duration) {
            None => Duration::from_millis(100),
            Some(Ok(poll)) if (SHORTEST_POLL..=LONGEST_POLL).contains(&poll) => poll,
            Some(_) => return Err(url.wrong_parameter("poll", "is not a duration from 10ms to 10s")),
        },
        schema: schema(&url)?,
        address: format!("postgres://{}/{}", places.join(","), url.path()?),
    })
}

/// Returns the certificate authorities that the caller has passed.
#[cfg(feature = "tls")]
fn authorities(opening: &Opening) -> Option<&[u8]> {
    opening.network.tls_ca.as_deref()
}

/// The interval of probes on a silent connection.
const PROBE: Duration = Duration::from_secs(10);

const SHORTEST_POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_secs(10);

fn tls(url: &StoreUrl) -> Result<bool> {
    match url.parameter("sslmode") {
        None | Some("disable") => Ok(false),
        Some("require" | "verify-full") if cfg!(feature = "tls") => Ok(true),
        Some("require" | "verify-full") => {
            Err(url.wrong_parameter("sslmode", "needs TLS: enable the Cargo feature `postgres-tls`"))
        }
        Some(_) => Err(url.wrong_parameter(
            "sslmode",
            "is neither disable nor require, which checks the certificate and the name of the server",
        )),
    }
}

fn schema(url: &StoreUrl) -> Result<String> {
    let schema = url.parameter("schema").unwrap_or("public");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if schema.len() > 63 || !schema.chars().all(is_plain) {
        return Err(
            url.wrong_parameter("schema", "is not a name of up to 63 letters, digits and underscores")
        );
    }
    Ok(schema.to_owned())
}

/// Reads the server for the listening connection.
fn listen(url: &StoreUrl, place: &str, tls: bool) -> Result<Config> {
    let host = FORM.host("parameter `listen`", place)?;
    if host.port.is_none() {
        return Err(url.wrong_parameter("listen", "has no port: give HOST:PORT"));
    }
    config(url, &[host], tls)
}

/// Returns how to connect to these hosts with the login and the database of a URL.
fn config(url: &StoreUrl, hosts: &[Host], tls: bool) -> Result<Config> {
    let mut config = Config::new();
    for host in hosts {
        config.host(&host.name).port(host.port.unwrap_or(PORT));
    }
    url.user.as_ref().map(|user| config.user(user));
    url.password.as_ref().map(|password| config.password(password));
    Some(url.path()?).filter(|path| !path.is_empty()).map(|database| config.dbname(database));
    config.application_name("locker").target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.keepalives_idle(PROBE).keepalives_interval(PROBE).tcp_user_timeout(PROBE);
    config.ssl_mode(if tls { SslMode::Require } else { SslMode::Disable });
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target> {
        read(url, &Opening::default())
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (pair, name) in [
            ("lanes=0", "lanes"),
            ("lanes=many", "lanes"),
            ("poll=sekret", "poll"),
            ("poll=1us", "poll"),
            ("listen=h", "listen"),
            ("listen=h:0", "listen"),
            ("listen=::1:5432", "listen"),
            ("listen=[::g]:5432", "listen"),
            ("schema=a\"b", "schema"),
            ("sslmode=prefer", "sslmode"),
            ("durable=no", "durable"),
        ] {
            let error = target(&format!("postgres://u:sekret@h/db?{pair}")).err().expect(pair);
            let expected = format!("the parameter `{name}` in the postgres URL");
            assert!(error.message().starts_with(&expected), "{pair}: {error}");
            assert!(!format!("{error} {error:?}").contains("sekret"), "{pair}: {error}");
        }
    }

    #[test]
    fn url_has_login_hosts_and_parameters() {
        let url = "postgresql://ann:p%40ss@one:7000,two/shop?lanes=2&durable=true&poll=50ms&schema=locks&\
                   listen=[::1]:5433&sslmode=disable";
        let read = target(url).unwrap();
        assert_eq!((read.lanes, read.poll, &*read.schema), (2, Duration::from_millis(50), "locks"));
        assert!(read.durable);
        assert_eq!(read.config.get_user(), Some("ann"));
        assert_eq!(read.config.get_ports(), [7000, 5432]);
        assert_eq!(read.address, "postgres://one:7000,two:5432/shop");
        let listen = read.listen.unwrap();
        assert_eq!(listen.get_ports(), [5433]);
        for config in [&read.config, &listen] {
            assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
            assert_eq!(config.get_dbname(), Some("shop"));
        }
        assert!(!target("postgres://h?durable=false").unwrap().durable);
        assert_eq!(target("postgres://[::1]").unwrap().address, "postgres://[::1]:5432/");
    }

    #[cfg(unix)]
    #[test]
    fn host_may_be_the_directory_of_a_socket() {
        let read = target("postgres://%2Frun%2Fpostgresql/shop").unwrap();
        assert_eq!(read.config.get_hosts(), [tokio_postgres::config::Host::Unix("/run/postgresql".into())]);
        assert_eq!(read.address, "postgres:///run/postgresql:5432/shop");
    }
}
