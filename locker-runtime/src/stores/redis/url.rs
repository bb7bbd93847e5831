//! The URLs of one server; in `sentinels`, of a master that sentinels watch; in `clusters`, of a cluster.

mod clusters;
mod parameters;
mod replicas;
mod sentinels;

pub(super) use clusters::{Clustered, read_clustered};
pub(super) use parameters::take;
pub(super) use replicas::with_replicas;
pub(super) use sentinels::{Watched, place, read_watched};

use locker_core::error::{Error, ErrorKind, Result};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use std::{borrow::Cow, time::Duration};

const ACCEPTED: &str = "accepted are redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS, \
                        unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD], \
                        redis+sentinel://[USER:PASSWORD@]SENTINEL[:PORT],../MASTER[?db=DATABASE], and \
                        redis+cluster://[USER:PASSWORD@]NODE[:PORT],.., each also with the parameters \
                        wait_replicas=NUMBER and wait_timeout=DURATION";

/// Reads a URL. No error message shows it, because it may contain a password.
pub(super) fn read(url: &str) -> Result<ConnectionInfo> {
    let parsed = redis::parse_redis_url(url).ok_or_else(|| invalid(url))?;
    let is_unix = matches!(parsed.scheme(), "unix" | "redis+unix");
    for (name, _) in parsed.query_pairs() {
        if !(is_unix && matches!(&*name, "db" | "user" | "pass")) {
            return Err(misused("the redis URL has an unknown parameter"));
        }
    }
    if parsed.fragment().is_some() {
        return Err(misused("the redis URL has a fragment (#..), which is not supported"));
    }
    if !cfg!(feature = "redis-tls") && parsed.scheme() == "rediss" {
        return Err(misused("this build does not support TLS: enable the Cargo feature `redis-tls`"));
    }
    let info = parsed.into_connection_info().map_err(|error| misused(&lower(&error.to_string())))?;
    if info.redis_settings().db() < 0 {
        return Err(misused("the database number in the redis URL is negative"));
    }
    if matches!(info.addr(), ConnectionAddr::Tcp(_, 0) | ConnectionAddr::TcpTls { port: 0, .. }) {
        return Err(misused("the port in the redis URL is 0, which is not valid"));
    }
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("locker", env!("CARGO_PKG_VERSION"));
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp()))
}

/// Returns the error for a URL that cannot be parsed, which names a wrong port.
fn invalid(url: &str) -> Error {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().and_then(|authority| authority.rsplit(['@', ']']).next());
    match place.and_then(|place| place.rsplit_once(':')) {
        Some((_, port)) if port.parse::<u16>().is_err() => {
            misused("the port in the redis URL is not a number from 1 to 65535")
        }
        _ => misused("the redis URL is not valid"),
    }
}

/// Returns the address without user and password, for messages.
pub(super) fn redacted(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}/{db}", bracketed(host)),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{}:{port}/{db}", bracketed(host)),
        ConnectionAddr::Unix(path) => format!("unix://{}?db={db}", path.display()),
        _ => "redis".into(),
    }
}

/// Returns a host as in a URL: an IPv6 address has brackets.
fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) }
}

fn tcp() -> TcpSettings {
    const PROBE: Duration = Duration::from_secs(10);
    TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(PROBE).with_interval(PROBE))
}

fn misused(what: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("{what}; {ACCEPTED}"))
}

fn lower(text: &str) -> String {
    let text = text.strip_suffix(" - InvalidClientConfig").unwrap_or(text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_never_show_the_url() {
        for url in [
            "redis://",
            "redis://:secret@",
            "redis://h:secret",
            "redis://u:secret@h:99999",
            "redis://u:secret@h/one",
            "redis://u:secret@h/-1",
            "redis://u:secret@h:0",
            "redis://u:secret@h/?x=1",
            "redis://u:secret@h/#insecure",
            "redis://u:secret@0.0.0.0",
            "unix://",
            "unix:///s?pass=secret&db=x",
        ] {
            let error = read(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains("accepted are") && !text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn redacted_url_has_no_login() {
        for (url, expected) in [
            ("redis://u:secret@h:7/3", "redis://h:7/3"),
            ("redis://:secret@[::1]", "redis://[::1]:6379/0"),
            ("unix:///s?db=1&pass=secret", "unix:///s?db=1"),
        ] {
            assert_eq!(redacted(&read(url).unwrap()), expected);
        }
    }

    #[test]
    fn error_names_a_wrong_port() {
        for url in
            ["redis://h:99999", "redis://h:abc/1", "redis://u:p@h:-1", "redis://[::1]:x", "redis://h:0"]
        {
            let error = read(url).expect_err(url);
            assert!(error.message().starts_with("the port in the redis URL is"), "{url}: {error}");
        }
        for url in ["redis://", "redis://a b", "redis://[::1"] {
            let error = read(url).expect_err(url);
            assert!(!error.message().contains("port in"), "{url}: {error}");
        }
    }

    #[test]
    fn url_has_user_password_database_and_socket() {
        let info = read("redis://ann:p%40ss@example.org:7000/3").unwrap();
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("p@ss"), 3));
        assert_eq!(redacted(&info), "redis://example.org:7000/3");
        assert!(info.tcp_settings().nodelay());
        for url in ["unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2"] {
            assert_eq!(redacted(&read(url).unwrap()), "unix:///run/redis.sock?db=2");
        }
    }
}
