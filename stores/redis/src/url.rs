//! The URLs of one server, of a master that sentinels watch, and of a cluster.

mod clusters;
mod options;
mod sentinels;

pub(super) use clusters::Clustered;
pub(super) use options::{Options, Replicas, without_options};
pub(super) use sentinels::Watched;

use locker_core::{
    error::{Error, ErrorKind, Result},
    store::url::{self, Form, Hosts, StoreUrl},
};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use std::time::Duration;

const PORT: u16 = 6379;

const SERVER: Form = Form {
    store: "redis",
    accepted: "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS, \
               unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD], \
               redis+sentinel://[USER:PASSWORD@]SENTINEL[:PORT],../MASTER[?db=DATABASE], and \
               redis+cluster://[USER:PASSWORD@]NODE[:PORT],.., each also with the parameters strict=DURATION, \
               wait_replicas=NUMBER, wait_timeout=DURATION and allow_eviction=yes",
    hosts: Hosts::One,
    parameters: &["strict", "wait_replicas", "wait_timeout", "allow_eviction"],
    logins: &[],
};
const SOCKET: Form = Form {
    hosts: Hosts::None,
    parameters: &["db", "user", "pass", "strict", "wait_replicas", "wait_timeout", "allow_eviction"],
    logins: &["user", "pass"],
    ..SERVER
};
const SENTINELS: Form = Form {
    hosts: Hosts::Several,
    parameters: &[
        "db",
        "sentinel_user",
        "sentinel_password",
        "sentinel_tls",
        "strict",
        "wait_replicas",
        "wait_timeout",
        "allow_eviction",
    ],
    logins: &["sentinel_user", "sentinel_password"],
    ..SERVER
};
const CLUSTER: Form = Form { hosts: Hosts::Several, ..SERVER };

/// Reads a URL.
pub(super) fn read(url: &str) -> Result<StoreUrl> {
    let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
    let form = match &*scheme {
        "unix" | "redis+unix" => &SOCKET,
        "redis+sentinel" | "rediss+sentinel" => &SENTINELS,
        "redis+cluster" | "rediss+cluster" => &CLUSTER,
        _ => &SERVER,
    };
    let url = StoreUrl::read(url, form)?;
    if !cfg!(feature = "tls") && has_tls(&url) {
        return Err(url.wrong("scheme", "needs TLS: enable the Cargo feature `redis-tls`"));
    }
    Ok(url)
}

fn has_tls(url: &StoreUrl) -> bool {
    url.scheme.starts_with("rediss")
}

/// Returns how to connect to the only server of a URL.
pub(super) fn server(url: &StoreUrl) -> Result<ConnectionInfo> {
    if url.hosts.is_empty() {
        let path = url.path()?;
        if path.is_empty() {
            return Err(url.wrong("path", "is missing"));
        }
        let settings = settings(url.parameter("user"), url.parameter("pass"), database(url)?);
        return info(ConnectionAddr::Unix(format!("/{path}").into()), &settings);
    }
    let path = url.path()?.trim_matches('/');
    let db = if path.is_empty() { 0 } else { number(path).ok_or_else(|| url.wrong("path", NO_DATABASE))? };
    let settings = settings(url.user.as_deref(), url.password.as_deref(), db);
    Ok(hosts(url, has_tls(url), &settings, PORT)?.remove(0))
}

const NO_DATABASE: &str = "is not the number of a database";

/// Returns the parameter `db`.
fn database(url: &StoreUrl) -> Result<i64> {
    let Some(text) = url.parameter("db") else { return Ok(0) };
    number(text).ok_or_else(|| url.wrong_parameter("db", NO_DATABASE))
}

/// Returns a parameter that is `yes` or `no`.
fn truth(url: &StoreUrl, name: &str) -> Result<Option<bool>> {
    match url.parameter(name) {
        None => Ok(None),
        Some("yes") => Ok(Some(true)),
        Some("no") => Ok(Some(false)),
        Some(_) => Err(url.wrong_parameter(name, "is neither yes nor no")),
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|db| *db >= 0)
}

/// Returns how to connect to each host of a URL.
fn hosts(
    url: &StoreUrl,
    has_tls: bool,
    settings: &RedisConnectionInfo,
    default_port: u16,
) -> Result<Vec<ConnectionInfo>> {
    let of_host = |host: &url::Host| {
        let (host, port) = (host.name.clone(), host.port.unwrap_or(default_port));
        info(
            if has_tls {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            },
            settings,
        )
    };
    url.hosts.iter().map(of_host).collect()
}

fn settings(user: Option<&str>, password: Option<&str>, db: i64) -> RedisConnectionInfo {
    let settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name("locker", env!("CARGO_PKG_VERSION"))
        .set_db(db);
    let settings = user.into_iter().fold(settings, RedisConnectionInfo::set_username);
    password
        .filter(|password| !password.is_empty())
        .into_iter()
        .fold(settings, RedisConnectionInfo::set_password)
}

fn info(addr: ConnectionAddr, settings: &RedisConnectionInfo) -> Result<ConnectionInfo> {
    const PROBE: Duration = Duration::from_secs(10);
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    let info =
        addr.into_connection_info().map_err(|error| Error::new(ErrorKind::Misused, error.to_string()))?;
    Ok(info.set_redis_settings(settings.clone()).set_tcp_settings(tcp))
}

/// Returns what is needed to connect to this place with login and TLS of `like`.
fn server_at(like: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    like.clone().set_addr(addr)
}

/// Returns host and port.
pub(super) fn place(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            url::place(host, *port)
        }
        other => other.to_string(),
    }
}

/// Returns the address without user and password, for messages.
pub(super) fn redacted(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Tcp(..) => format!("redis://{}/{db}", place(info)),
        ConnectionAddr::TcpTls { .. } => format!("rediss://{}/{db}", place(info)),
        ConnectionAddr::Unix(path) => format!("unix://{}?db={db}", path.display()),
        _ => "redis".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(url: &str) -> Result<ConnectionInfo> {
        server(&read(url)?)
    }

    #[test]
    fn url_has_user_password_database_and_socket() {
        let info = one("redis://ann:p%40ss@example.org:7000/3").unwrap();
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("p@ss"), 3));
        assert!(info.tcp_settings().nodelay());
        for (url, redacted_url, user, password) in [
            ("redis://u:secret@h:7/3", "redis://h:7/3", Some("u"), Some("secret")),
            ("redis://:secret@[::1]", "redis://[::1]:6379/0", None, Some("secret")),
            ("redis://u:@h", "redis://h:6379/0", Some("u"), None),
            ("unix:///run/s@1?db=1&pass=a@b", "unix:///run/s@1?db=1", None, Some("a@b")),
            ("redis+unix:///s?user=u&pass=%25", "unix:///s?db=0", Some("u"), Some("%")),
        ] {
            let info = one(url).unwrap();
            let settings = info.redis_settings();
            assert_eq!((settings.username(), settings.password()), (user, password), "{url}");
            assert_eq!(redacted(&info), redacted_url, "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_by_part() {
        for (url, part) in [
            ("redis://u:secret@h/one", "the path"),
            ("redis://u:secret@h/-1", "the path"),
            ("redis://u:secret@0.0.0.0", "the host"),
            ("redis://u:secret@[::]", "the host"),
            ("redis://u:secret@h,g", "the host"),
            ("redis://h/?db=1", "the parameter `db`"),
            ("unix://", "the path"),
            ("unix:///", "the path"),
            ("unix:///s?pass=secret&db=x", "the parameter `db`"),
        ] {
            let error = one(url).expect_err(url);
            let text = format!("{error} {error:?}");
            assert!(error.message().starts_with(&format!("{part} in the redis URL")), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
