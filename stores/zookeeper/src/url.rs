//! Reads the URL of an ensemble.

use super::keys::FIRST_EXCLUDED;
use locker_core::{
    error::Result,
    store::url::{Form, Host, Hosts, StoreUrl},
};
use std::fmt;

const FORM: Form = Form {
    store: "ZooKeeper",
    accepted: "zk://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]..][/PATH] and zks:// for TLS, with the parameter ca=FILE",
    hosts: Hosts::Several,
    parameters: &["ca"],
    logins: &[],
};

pub(super) const PORT: u16 = 2181;

/// The longest path: each node of the store has a longer one.
const MAX_ROOT: usize = 500;

/// The node of a URL without a path.
const ROOT: &str = "/locker";

/// What a URL says. `Debug` shows no password.
#[derive(Default)]
pub(super) struct Url {
    pub(super) hosts: Vec<Host>,
    /// User and password, as ZooKeeper takes them.
    pub(super) login: Option<String>,
    /// The node that contains all others of the store.
    pub(super) root: String,
    pub(super) tls: bool,
    /// A file in PEM format: the authorities to trust.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "needs TLS"))]
    pub(super) ca: Option<String>,
}

impl Url {
    /// Returns the URL without user, password and files, for messages.
    pub(super) fn address(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|host| host.place(PORT)).collect();
        format!("{}://{}", if self.tls { "zks" } else { "zk" }, hosts.join(","))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

/// Reads a URL.
pub(super) fn read(text: &str) -> Result<Url> {
    let mut url = StoreUrl::read(text, &FORM)?;
    let tls = url.scheme == "zks";
    if tls && !cfg!(feature = "tls") {
        return Err(url.wrong("scheme", "needs TLS: enable the Cargo feature `zookeeper-tls`"));
    }
    let ca = url.parameter("ca").map(str::to_owned);
    if ca.is_some() && !tls {
        return Err(url.wrong_parameter("ca", "is for TLS: write zks://"));
    }
    let (root, login) = (root(&url)?, login(&url)?);
    Ok(Url { hosts: std::mem::take(&mut url.hosts), login, root, tls, ca })
}

fn root(url: &StoreUrl) -> Result<String> {
    let path = url.path()?.trim_end_matches('/');
    if path.is_empty() {
        return Ok(ROOT.to_owned());
    }
    let is_name = |name: &str| {
        let is_allowed = |letter: char| !letter.is_control() && letter < FIRST_EXCLUDED;
        !name.is_empty() && name != "." && name != ".." && name.chars().all(is_allowed)
    };
    if !path.split('/').all(is_name) {
        let rule = "is no path of a node in ZooKeeper: an empty name, a name of dots, or a letter that names may not have";
        return Err(url.wrong("path", rule));
    }
    if path.len() > MAX_ROOT {
        return Err(url.wrong("path", "has more than 500 bytes"));
    }
    if path.contains(',') {
        return Err(url.wrong("path", "has a comma: it comes after the last host, zk://HOST,HOST/PATH"));
    }
    if path.split('/').next() == Some("zookeeper") {
        return Err(url.wrong("path", "begins with /zookeeper, which belongs to the server"));
    }
    Ok(format!("/{path}"))
}

fn login(url: &StoreUrl) -> Result<Option<String>> {
    match (&url.user, &url.password) {
        (None, None) => Ok(None),
        (Some(user), Some(_)) if user.contains(':') => Err(url.wrong("user", "contains a colon")),
        (Some(user), Some(password)) => Ok(Some(format!("{user}:{password}"))),
        (Some(_), None) => Err(url.wrong("user", "has no password")),
        (None, Some(_)) => Err(url.wrong("password", "has no user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_login_hosts_and_path() {
        let url = read("zk://ann:p%40s%3a:s@h1,h2:7,[::1]:8/a/b%20c/").unwrap();
        assert_eq!(format!("{url:?}"), "zk://h1:2181,h2:7,[::1]:8");
        assert_eq!((url.login.as_deref(), &*url.root, url.tls), (Some("ann:p@s::s"), "/a/b c", false));
        for plain in ["ZK://h", "zk://h/"] {
            let url = read(plain).unwrap();
            assert_eq!((url.login, &*url.root), (None, "/locker"));
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn url_of_tls_has_a_file() {
        let url = read("zks://h?ca=/a").unwrap();
        assert_eq!((url.tls, url.ca.as_deref(), url.address()), (true, Some("/a"), "zks://h:2181".into()));
    }

    #[test]
    fn wrong_urls_are_refused_by_part() {
        for (url, part) in [
            ("zk://secret@h", "the user"),
            ("zk://:secret@h", "the password"),
            ("zk://a%3ab:secret@h", "the user"),
            ("zk://u:secret@h/a//b", "the path"),
            ("zk://u:secret@h/a/../b", "the path"),
            ("zk://u:secret@h/a%00b", "the path"),
            ("zk://u:secret@h/zookeeper/a", "the path"),
            ("zk://u:secret@h:1/a,h2:2/b", "the path"),
            (&format!("zk://u:secret@h/{}", "a".repeat(501)), "the path"),
            ("zk://u:secret@a,0.0.0.0:7", "the host"),
            ("zk://u:secret@[::]", "the host"),
            ("zk://u:secret@h?ca=/f", "the parameter `ca`"),
        ] {
            let error = read(url).map(drop).expect_err(url);
            let text = format!("{error} {error:?}");
            assert!(error.message().starts_with(&format!("{part} in the ZooKeeper URL")), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
