//! Reads the URL of a cluster.

use locker_core::{
    error::Result,
    store::url::{Form, Hosts, StoreUrl},
};
use std::fmt;

const FORM: Form = Form {
    store: "etcd",
    accepted: "etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]..][?PARAMETERS] and etcds:// for TLS, with the \
               parameters prefix=TEXT, tls=true|false, ca=FILE, cert=FILE and key=FILE",
    hosts: Hosts::Several,
    parameters: &["prefix", "tls", "ca", "cert", "key"],
    logins: &[],
};

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

/// Reads a URL.
pub(super) fn read(text: &str) -> Result<Url> {
    let url = StoreUrl::read(text, &FORM)?;
    if !url.path()?.is_empty() {
        return Err(
            url.wrong("path", "is not supported: write `?prefix=` before what the keys should begin with")
        );
    }
    let secure = url.scheme == "etcds";
    let tls = match url.parameter("tls") {
        None => secure,
        Some("true") => true,
        Some("false") if secure => {
            return Err(url.wrong_parameter("tls", "is false, but etcds:// is for TLS"));
        }
        Some("false") => false,
        Some(_) => return Err(url.wrong_parameter("tls", "is neither true nor false")),
    };
    if tls && !cfg!(feature = "tls") {
        return Err(url.wrong("scheme", "or `tls` needs TLS: enable the Cargo feature `etcd-tls`"));
    }
    let prefix = url.parameter("prefix").unwrap_or("locker");
    if prefix.starts_with('/') || prefix.ends_with('/') {
        return Err(url.wrong_parameter("prefix", "begins or ends with a slash: leave it out"));
    }
    let [ca, cert, key] = files(&url, tls)?;
    Ok(Url {
        hosts: url.hosts.iter().map(|host| host.place(PORT)).collect(),
        login: login(&url)?,
        prefix: prefix.to_owned(),
        tls,
        ca,
        cert,
        key,
    })
}

fn files(url: &StoreUrl, tls: bool) -> Result<[Option<String>; 3]> {
    let names = ["ca", "cert", "key"];
    let files = names.map(|name| url.parameter(name).map(str::to_owned));
    if let Some(at) = files.iter().position(Option::is_some).filter(|_| !tls) {
        return Err(url.wrong_parameter(names[at], "is for TLS: write etcds:// or tls=true"));
    }
    match files {
        [_, Some(_), None] => Err(url.wrong_parameter("cert", "needs `key` beside it")),
        [_, None, Some(_)] => Err(url.wrong_parameter("key", "needs `cert` beside it")),
        files => Ok(files),
    }
}

fn login(url: &StoreUrl) -> Result<Option<Login>> {
    match (url.user.clone(), url.password.clone()) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user, password })),
        (Some(_), None) => Err(url.wrong("user", "has no password")),
        (None, Some(_)) => Err(url.wrong("password", "has no user")),
    }
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

    #[cfg(feature = "tls")]
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
    fn wrong_urls_are_refused_by_part() {
        for (url, part) in [
            ("etcd://secret@h", "the user"),
            ("etcd://:secret@h", "the password"),
            ("etcd://u:secret@h/1", "the path"),
            ("etcd://u:secret@h?tls=yes", "the parameter `tls`"),
            ("etcds://u:secret@h?tls=false", "the parameter `tls`"),
            ("etcd://u:secret@h?prefix=/a", "the parameter `prefix`"),
            ("etcd://u:secret@h?ca=/f", "the parameter `ca`"),
            ("etcd://u:secret@h?tls=false&cert=/f", "the parameter `cert`"),
            ("etcd://u:secret@h?tls=true&key=/f", "the parameter `key`"),
        ] {
            let error = read(url).expect_err(url);
            let text = format!("{error} {error:?}");
            assert!(error.message().starts_with(&format!("{part} in the etcd URL")), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
