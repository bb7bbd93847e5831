//! The `mysql://` URL.

use locker_core::{
    error::Result,
    ranges::parse_duration,
    store::{
        opening::Opening,
        url::{Form, Hosts, StoreUrl},
    },
};
use mysql_async::{Opts, OptsBuilder, SslOpts};
use std::time::Duration;

const FORM: Form = Form {
    store: "mysql",
    accepted: "mysql://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]..]/DATABASE, or mariadb://.., with the parameters \
               lanes, poll and sslmode",
    hosts: Hosts::Several,
    parameters: &["lanes", "poll", "sslmode"],
    logins: &[],
};

const PORT: u16 = 3306;
/// The interval of probes on a silent connection.
const PROBE: Duration = Duration::from_secs(10);
/// More than a server accepts.
const MAX_PACKET: usize = 1 << 30;
const SHORTEST_POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// A server, and how the store uses it.
pub(super) struct Target {
    /// How to connect to each host of the URL.
    pub(super) hosts: Vec<Opts>,
    /// The number of connections for statements.
    pub(super) lanes: usize,
    /// The interval of reading messages if nobody can wake this process.
    pub(super) poll: Duration,
    /// The address without user and password, for messages.
    pub(super) address: String,
    /// The name of the database.
    pub(super) database: String,
    /// The user of the URL.
    pub(super) user: String,
}

/// Reads a URL.
pub(super) fn read(url: &str, opening: &Opening) -> Result<Target> {
    let url = StoreUrl::read(url, &FORM)?;
    let database = url.path()?;
    if database.is_empty() || database.contains('/') {
        return Err(url.wrong("path", "names no database: mysql://HOST/DATABASE"));
    }
    let options = options(&url, database, tls(&url, opening)?);
    let hosts = url.hosts.iter().map(|host| {
        let options = options.clone().ip_or_hostname(host.name.clone());
        options.tcp_port(host.port.unwrap_or(PORT)).into()
    });
    let places: Vec<_> = url.hosts.iter().map(|host| host.place(PORT)).collect();
    Ok(Target {
        hosts: hosts.collect(),
        lanes: match url.parameter("lanes").map(str::parse) {
            None => 4,
            Some(Ok(lanes @ 1..=64)) => lanes,
            Some(_) => return Err(url.wrong_parameter("lanes", "is not a number from 1 to 64")),
        },
        poll: match url.parameter("poll").map(parse_duration) {
            None => Duration::from_millis(100),
            Some(Ok(poll)) if (SHORTEST_POLL..=LONGEST_POLL).contains(&poll) => poll,
            Some(_) => return Err(url.wrong_parameter("poll", "is not a duration from 10ms to 1s")),
        },
        address: format!("mysql://{}/{database}", places.join(",")),
        database: database.to_owned(),
        user: url.user.clone().unwrap_or_else(|| "the user".into()),
    })
}

fn options(url: &StoreUrl, database: &str, tls: Option<SslOpts>) -> OptsBuilder {
    OptsBuilder::default()
        .user(url.user.clone())
        .pass(url.password.clone())
        .db_name(Some(database))
        .ssl_opts(tls)
        .prefer_socket(false)
        .tcp_keepalive(Some(PROBE))
        .tcp_nodelay(true)
        .stmt_cache_size(0)
        // Otherwise each connection asks for both.
        .max_allowed_packet(Some(MAX_PACKET))
        .wait_timeout(Some(usize::MAX))
}

fn tls(url: &StoreUrl, opening: &Opening) -> Result<Option<SslOpts>> {
    match url.parameter("sslmode") {
        None | Some("disable") => Ok(None),
        #[cfg(feature = "tls")]
        Some("require" | "verify-full") => trusting(opening.network.tls_ca.as_deref()).map(Some),
        #[cfg(not(feature = "tls"))]
        Some("require" | "verify-full") => {
            let _ = opening;
            Err(url.wrong_parameter("sslmode", "needs TLS: enable the Cargo feature `mysql-tls`"))
        }
        Some(_) => Err(url.wrong_parameter(
            "sslmode",
            "is neither disable nor require, which checks the certificate and the name of the server",
        )),
    }
}

/// Returns options with the certificate authorities in `pem`, or those of the system.
#[cfg(feature = "tls")]
fn trusting(pem: Option<&[u8]>) -> Result<SslOpts> {
    use locker_core::error::{Error, ErrorKind};
    let roots: Vec<Vec<u8>> = if let Some(pem) = pem {
        vec![pem.to_vec()]
    } else {
        let system = rustls_native_certs::load_native_certs();
        system.certs.into_iter().map(|certificate| certificate.to_vec()).collect()
    };
    if roots.is_empty() {
        return Err(Error::new(ErrorKind::Misused, "this system has no certificates: pass tls_ca"));
    }
    let roots = roots.into_iter().map(Into::into).collect();
    Ok(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target> {
        read(url, &Opening::default())
    }

    #[test]
    fn wrong_parts_are_refused_by_name() {
        for (pair, name) in [
            ("lanes=0", "lanes"),
            ("lanes=many", "lanes"),
            ("poll=sekret", "poll"),
            ("poll=1us", "poll"),
            ("poll=2s", "poll"),
            ("sslmode=prefer", "sslmode"),
        ] {
            let error = target(&format!("mysql://u:sekret@h/db?{pair}")).err().expect(pair);
            let expected = format!("the parameter `{name}` in the mysql URL");
            assert!(error.message().starts_with(&expected), "{pair}: {error}");
            assert!(!format!("{error} {error:?}").contains("sekret"), "{pair}: {error}");
        }
        for url in ["mysql://h", "mysql://h/", "mysql://h/a/b"] {
            let error = target(url).err().expect(url);
            assert!(error.message().contains("names no database"), "{url}: {error}");
        }
    }

    #[test]
    fn url_has_login_hosts_and_parameters() {
        let read =
            target("mariadb://ann:p%40ss@one:7000,[::1]/shop?lanes=2&poll=50ms&sslmode=disable").unwrap();
        assert_eq!((read.lanes, read.poll), (2, Duration::from_millis(50)));
        assert_eq!((&*read.address, &*read.user), ("mysql://one:7000,[::1]:3306/shop", "ann"));
        let hosts: Vec<_> = read.hosts.iter().map(|host| (host.ip_or_hostname(), host.tcp_port())).collect();
        assert_eq!(hosts, [("one", 7000), ("::1", 3306)]);
        assert_eq!((read.hosts[1].pass(), read.hosts[1].db_name()), (Some("p@ss"), Some("shop")));
    }
}
