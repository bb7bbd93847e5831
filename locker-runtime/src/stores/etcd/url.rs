//! Reads the URL of a cluster.

use locker_core::error::{Error, ErrorKind, Result};
use std::fmt;

const ACCEPTED: &str = "accepted are etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]..][?PARAMETERS] and etcds:// for \
                        TLS, with the parameters prefix=TEXT, tls=true|false, ca=FILE, cert=FILE and key=FILE";

const PORT: u16 = 2379;

/// What a URL says. `Debug` shows no password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Url {
    /// Hosts with their ports.
    pub(super) hosts: Vec<String>,
    pub(super) login: Option<Login>,
    /// What every key of the store begins with.
    pub(super) prefix: String,
    pub(super) tls: bool,
    /// Files in PEM format: the authorities to trust, the certificate of the client and its key.
    pub(super) ca: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

/// User and password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

impl Url {
    /// Returns the URL without user, password and files, for messages.
    pub(super) fn address(&self) -> String {
        format!("{}://{}", if self.tls { "etcds" } else { "etcd" }, self.hosts.join(","))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

/// Reads a URL. No error message shows it, because it may contain a password.
pub(super) fn read(url: &str) -> Result<Url> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| misused("the etcd URL has no `://`"))?;
    let secure = match &*scheme.to_ascii_lowercase() {
        "etcd" => false,
        "etcds" => true,
        _ => return Err(misused("the scheme of the etcd URL is neither etcd nor etcds")),
    };
    if rest.contains('#') {
        return Err(misused("the etcd URL has a `#`: write %23 in a password"));
    }
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    if parameters.contains('@') {
        return Err(misused(
            "the etcd URL has a `@` after its `?`: write %3F in a password and %40 in a parameter",
        ));
    }
    let (login, hosts) = match place.rsplit_once('@') {
        Some((login, hosts)) => (Some(read_login(login)?), hosts),
        None => (None, place),
    };
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    if hosts.contains('/') {
        return Err(misused(
            "the etcd URL has a path: write `?prefix=` before what the keys should begin with",
        ));
    }
    let hosts = hosts.split(',').map(read_host).collect::<Result<_>>()?;
    let mut url = Url { hosts, login, prefix: "locker".into(), tls: secure, ..Url::default() };
    let mut tls = None;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decode(value).filter(|value| !value.is_empty()).ok_or_else(|| {
            misused(&format!("a parameter of the etcd URL has no valid value: {}", known(name)))
        })?;
        match name {
            "prefix" => url.prefix = value,
            "ca" => url.ca = Some(value),
            "cert" => url.cert = Some(value),
            "key" => url.key = Some(value),
            "tls" => {
                tls = Some(
                    value.parse().map_err(|_| misused("tls in the etcd URL is neither true nor false"))?,
                );
            }
            _ => return Err(misused(&format!("the etcd URL has an unknown parameter: {}", known(name)))),
        }
    }
    if secure && tls == Some(false) {
        return Err(misused("etcds:// is for TLS, but the URL says tls=false"));
    }
    url.tls = tls.unwrap_or(secure);
    check_files(&url)?;
    Ok(url)
}

fn check_files(url: &Url) -> Result<()> {
    let files = [("ca", &url.ca), ("cert", &url.cert), ("key", &url.key)];
    if let Some((name, _)) = files.iter().find(|(_, file)| file.is_some() && !url.tls) {
        return Err(misused(&format!("{name} in the etcd URL is for TLS: write etcds:// or tls=true")));
    }
    if url.cert.is_some() != url.key.is_some() {
        return Err(misused("the etcd URL needs both cert and key, or none of them"));
    }
    if url.tls && !cfg!(feature = "etcd-tls") {
        return Err(misused("this build does not support TLS: enable the Cargo feature `etcd-tls`"));
    }
    if url.prefix.starts_with('/') || url.prefix.ends_with('/') {
        return Err(misused("prefix in the etcd URL begins or ends with a slash: leave it out"));
    }
    Ok(())
}

/// Returns the name of a parameter for messages. A part of a password that is not encoded may look like one.
fn known(name: &str) -> &str {
    let is_plain =
        name.len() <= 20 && name.chars().all(|letter| letter.is_ascii_lowercase() || "_-".contains(letter));
    if is_plain && !name.is_empty() { name } else { "its name has other characters than a to z, - and _" }
}

fn read_login(login: &str) -> Result<Login> {
    let encoded = || misused("user or password in the etcd URL is not encoded: write %25 for a percent sign");
    let (user, password) =
        login.split_once(':').ok_or_else(|| misused("the etcd URL has a user, but no password"))?;
    let (user, password) = (decode(user).ok_or_else(encoded)?, decode(password).ok_or_else(encoded)?);
    if user.is_empty() {
        return Err(misused("the etcd URL has a password, but no user"));
    }
    Ok(Login { user, password })
}

fn read_host(host: &str) -> Result<String> {
    let port_at = host.rfind(':').filter(|at| !host[*at..].contains(']'));
    let (name, port) = port_at.map_or((host, None), |at| (&host[..at], Some(&host[at + 1..])));
    let port = match port.map(str::parse::<u16>) {
        None => PORT,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return Err(misused("a port in the etcd URL is not a number from 1 to 65535")),
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_valid = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.chars().all(is_name),
    };
    if !is_valid {
        return Err(misused("a host in the etcd URL is missing or not valid"));
    }
    Ok(format!("{name}:{port}"))
}

/// Replaces `%` and two hexadecimal digits by the byte that they name.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn misused(what: &str) -> Error {
    Error::new(ErrorKind::Misused, format!("{what}; {ACCEPTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_login_hosts_and_parameters() {
        let url = read("etcd://ann:p%40s%3a:s@h1,h2:7,[::1]:8,[::1]/?prefix=a%2Fb").unwrap();
        assert_eq!(url.hosts, ["h1:2379", "h2:7", "[::1]:8", "[::1]:2379"]);
        assert_eq!(url.login, Some(Login { user: "ann".into(), password: "p@s::s".into() }));
        assert_eq!((&*url.prefix, url.tls), ("a/b", false));
        assert_eq!(format!("{url:?}"), "etcd://h1:2379,h2:7,[::1]:8,[::1]:2379");
        let url = read("ETCD://h").unwrap();
        assert_eq!((&*url.prefix, url.login), ("locker", None));
    }

    #[cfg(feature = "etcd-tls")]
    #[test]
    fn url_of_tls_has_files() {
        for url in ["etcds://h?ca=/a&cert=b&key=c", "etcd://h?tls=true&ca=/a&cert=b&key=c"] {
            let url = read(url).unwrap();
            assert!(url.tls);
            assert_eq!([url.ca, url.cert, url.key], ["/a", "b", "c"].map(|file| Some(file.to_owned())));
        }
        assert!(!read("etcd://h?tls=false").unwrap().tls);
    }

    #[test]
    fn errors_never_show_the_url() {
        for (url, reason) in [
            ("etcd://", "host"),
            ("etcd:/h", "://"),
            ("etcd://u:secret@", "host"),
            ("etcd://secret@h", "no password"),
            ("etcd://:secret@h", "no user"),
            ("etcd://u:secret", "port"),
            ("etcd://u:secret@h:0", "port"),
            ("etcd://u:secret@h:99999", "port"),
            ("etcd://u:secret@h,", "host"),
            ("etcd://u:secret@h,,g", "host"),
            ("etcd://u:secret@h g", "host"),
            ("etcd://u:secret@[::g]", "host"),
            ("etcd://u:secret@h/1", "path"),
            ("etcd://u:se%cret@h", "encoded"),
            ("etcd://u:secret%4@h", "encoded"),
            ("etcd://u:secret@h?poll=1", "unknown parameter: poll"),
            ("etcd://u:1?secret=x&T=secret@h", "%3F"),
            ("etcd://u@secret?Secret=x", "no password"),
            ("etcd://u:secret@h?tls=yes", "tls"),
            ("etcd://u:secret@h?prefix=", "prefix"),
            ("etcd://u:secret@h?prefix", "prefix"),
            ("etcd://u:secret@h?prefix=/a", "slash"),
            ("etcd://u:secret@h?ca=/f", "ca in"),
            ("etcd://u:secret@h?tls=false&cert=/f", "cert in"),
            ("etcds://u:secret@h?tls=false", "tls=false"),
            ("etcd://u:secret@h#secret", "#"),
            ("http://u:secret@h", "scheme"),
        ] {
            let error = read(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains("accepted are") && !text.contains("ecret"), "{url}: {text}");
            let own = error.message().split("; accepted").next().unwrap();
            assert!(own.contains(reason), "{url}: {own}");
        }
    }
}
