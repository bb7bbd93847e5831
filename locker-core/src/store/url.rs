//! Reads the URLs of the stores: `SCHEME://[USER[:PASSWORD]@]HOST[:PORT],..[/PATH][?NAME=VALUE&..]`.
//!
//! `%` and two hexadecimal digits stand for a byte, in each part. A password may contain `/`, `:` and `@` as they are,
//! because the last `@` ends it. No error shows more of a URL than the name of a parameter.

use crate::{
    error::{Error, ErrorKind, Result},
    ranges::parse_duration,
};
use percent_encoding::percent_decode_str;
use std::{borrow::Cow, fmt, net::Ipv6Addr};

/// What the URL of a store may have.
#[derive(Debug)]
pub struct Form {
    /// The name of the store, for errors.
    pub store: &'static str,
    /// The accepted URLs, for errors.
    pub accepted: &'static str,
    /// How many hosts it has.
    pub hosts: Hosts,
    /// The names of its parameters.
    pub parameters: &'static [&'static str],
    /// Those of the parameters that contain a user or a password. Only they may contain an `@`.
    pub logins: &'static [&'static str],
}

/// How many hosts a URL has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hosts {
    /// The URL has a path only: it has no login either.
    None,
    /// Exactly one.
    One,
    /// One or more.
    Several,
    /// A host is a socket's directory if it begins with an encoded slash.
    SeveralOrSockets,
}

/// The parts of a URL, decoded.
pub struct StoreUrl {
    form: &'static Form,
    /// In lower case.
    pub scheme: String,
    /// `None` if it is empty.
    pub user: Option<String>,
    /// The password of the login.
    pub password: Option<String>,
    /// In the order of the URL.
    pub hosts: Vec<Host>,
    /// With its first slash, or empty.
    pub path: Vec<u8>,
    parameters: Vec<(&'static str, String)>,
}

/// A host, and its port if the URL names one.
#[derive(Clone, Debug)]
pub struct Host {
    /// Without the brackets of an IPv6 address.
    pub name: String,
    /// `None` for the default port.
    pub port: Option<u16>,
}

/// Shows no login.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl")
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl StoreUrl {
    /// Reads a URL of this form.
    ///
    /// # Errors
    /// `Misused`, without more of the URL than the name of a parameter.
    pub fn read(url: &str, form: &'static Form) -> Result<Self> {
        // A URL that comes from a file may end in a line feed.
        let url = url.trim_end();
        let (scheme, rest) = url.split_once("://").ok_or_else(|| form.wrong("scheme", "is missing"))?;
        if rest.contains('#') {
            return Err(form.wrong("fragment", "(#..) is not supported: write %23 for a #"));
        }
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let parameters = form.parameters(query)?;
        let (login, place) = match form.hosts {
            Hosts::None => ("", place),
            _ => place.rsplit_once('@').unwrap_or(("", place)),
        };
        let (user, password) = form.login(login)?;
        let (hosts, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            hosts: form.hosts(hosts)?,
            path: form.decode("path", path)?,
            parameters,
            form,
        })
    }

    /// Returns the value of a parameter, which is not empty.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Returns the path without its first slash.
    ///
    /// # Errors
    /// `Misused`, without more of the URL than the name of a parameter.
    pub fn path(&self) -> Result<&str> {
        let path = str::from_utf8(&self.path).map_err(|_| self.wrong("path", "is not UTF-8"))?;
        Ok(path.strip_prefix('/').unwrap_or(path))
    }

    /// Returns the error for a part that is not valid.
    #[must_use]
    pub fn wrong(&self, part: &str, why: &str) -> Error {
        self.form.wrong(part, why)
    }

    /// Returns the error for a parameter that is not valid.
    #[must_use]
    pub fn wrong_parameter(&self, name: &str, why: &str) -> Error {
        self.form.wrong_parameter(name, why)
    }
}

impl Host {
    /// Returns host and port as in a URL.
    #[must_use]
    pub fn place(&self, default_port: u16) -> String {
        place(&self.name, self.port.unwrap_or(default_port))
    }
}

/// Whether two values of a parameter are the same text once they are decoded, or the same duration.
#[must_use]
pub fn are_same_value(one: &str, other: &str) -> bool {
    let values = [one, other].map(|text| percent_decode_str(text).decode_utf8_lossy());
    let durations = values.each_ref().map(|text| parse_duration(text));
    values[0] == values[1] || matches!(durations, [Ok(one), Ok(other)] if one == other)
}

/// Returns host and port as in a URL: an IPv6 address has brackets.
#[must_use]
pub fn place(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Form {
    fn parameters(&self, query: Option<&str>) -> Result<Vec<(&'static str, String)>> {
        let Some(query) = query else { return Ok(Vec::new()) };
        if self.parameters.is_empty() {
            return Err(self.unknown(query.split('&').next().unwrap_or_default(), query));
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let known = self.parameters.iter().find(|known| **known == name);
            if value.contains('@') && !known.is_some_and(|name| self.logins.contains(name)) {
                return Err(
                    self.wrong("query", "contains an @: write %40 for an @, and %3F for a ? before it")
                );
            }
            let Some(name) = known else { return Err(self.unknown(pair, query)) };
            if parameters.iter().any(|(earlier, _)| earlier == name) {
                return Err(self.wrong_parameter(name, "is repeated"));
            }
            if value.is_empty() {
                return Err(self.wrong_parameter(name, "has no value"));
            }
            parameters.push((*name, self.text(&format!("parameter `{name}`"), value)?));
        }
        Ok(parameters)
    }

    /// Returns the error for a parameter that is not known. Its name is not shown if it may be a part of a password, as
    /// in a URL whose host was forgotten: `redis://user:a?b`.
    fn unknown(&self, pair: &str, query: &str) -> Error {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let has_login = query.split(['&', '=']).any(|text| self.logins.contains(&text));
        let known = match self.parameters {
            [] => "(there are none: write %3F for a ?)".to_owned(),
            known => format!("(known are {})", known.join(", ")),
        };
        match pair.split_once('=') {
            Some((name, _))
                if !name.is_empty() && name.chars().all(is_plain) && !query.contains('@') && !has_login =>
            {
                self.wrong_parameter(name, &format!("is unknown {known}"))
            }
            _ => self.wrong("query", &format!("has an unknown parameter {known}")),
        }
    }

    fn login(&self, login: &str) -> Result<(Option<String>, Option<String>)> {
        let (user, password) =
            login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        if user.contains('/') {
            return Err(self.wrong("user", "contains a slash: write %2F"));
        }
        let user = Some(user).filter(|user| !user.is_empty()).map(|user| self.text("user", user));
        let password = password.map(|password| self.text("password", password));
        Ok((user.transpose()?, password.transpose()?))
    }

    fn hosts(&self, hosts: &str) -> Result<Vec<Host>> {
        match self.hosts {
            Hosts::None if hosts.is_empty() => return Ok(Vec::new()),
            Hosts::None => return Err(self.wrong("host", "is not supported: three slashes begin a path")),
            Hosts::One if hosts.contains(',') => return Err(self.wrong("host", "is not the only one")),
            _ => {}
        }
        hosts.split(',').map(|host| self.host("host", host)).collect()
    }

    /// Reads `HOST[:[PORT]]` from the part `of` the URL.
    ///
    /// # Errors
    /// `Misused`, without more of the URL than the name of a parameter.
    pub fn host(&self, of: &str, text: &str) -> Result<Host> {
        let end = text.rfind(':').filter(|at| !text[*at..].contains(']'));
        let (name, port) = end.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
        let port = match port.parse() {
            _ if port.is_empty() => None,
            Ok(port @ 1..) => Some(port),
            _ if of == "host" => return Err(self.wrong("port", "is not a number from 1 to 65535")),
            _ => return Err(self.wrong(of, "has a port that is not a number from 1 to 65535")),
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if address.is_none() && name.contains(':') {
            return Err(self.wrong(of, "has a colon: an IPv6 address needs brackets"));
        }
        let name = self.text(of, address.unwrap_or(name))?;
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let is_valid = match address {
            Some(_) => {
                let (address, zone) = name.split_once('%').unwrap_or((&name, ""));
                address.parse::<Ipv6Addr>().is_ok() && zone.chars().all(is_of_name)
            }
            None if name.starts_with('/') => self.hosts == Hosts::SeveralOrSockets,
            None => !name.is_empty() && name.chars().all(is_of_name),
        };
        if name == "0.0.0.0" || name == "::" {
            return Err(self.wrong(of, "is a wildcard address, to which no client can connect"));
        }
        if is_valid { Ok(Host { name, port }) } else { Err(self.wrong(of, "is missing or not valid")) }
    }

    fn text(&self, part: &str, text: &str) -> Result<String> {
        String::from_utf8(self.decode(part, text)?).map_err(|_| self.wrong(part, "is not UTF-8"))
    }

    fn decode(&self, part: &str, text: &str) -> Result<Vec<u8>> {
        let is_byte = |end: &str| end.len() > 1 && end.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
        if text.split('%').skip(1).all(is_byte) {
            Ok(Cow::from(percent_decode_str(text)).into_owned())
        } else {
            Err(self.wrong(part, "has a % without two hexadecimal digits: write %25 for a %"))
        }
    }

    fn wrong_parameter(&self, name: &str, why: &str) -> Error {
        self.wrong(&format!("parameter `{name}`"), why)
    }

    fn wrong(&self, part: &str, why: &str) -> Error {
        let Self { store, accepted, .. } = self;
        Error::new(
            ErrorKind::Misused,
            format!("the {part} in the {store} URL {why}; accepted are {accepted}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: Form = Form {
        store: "test",
        accepted: "test://HOST",
        hosts: Hosts::Several,
        parameters: &["a", "b", "pass"],
        logins: &["pass"],
    };
    const SERVER: Form = Form { hosts: Hosts::One, ..SERVERS };
    const PATH: Form = Form { hosts: Hosts::None, parameters: &[], ..SERVERS };

    #[test]
    fn parts_are_decoded() {
        let url = "TEST://a%6En:p%40s%3a:s@h-1.x,h_2:7,[::1]:8,[::1],h:,[::1]:/x%20y?a=%2Fb%3d=&&pass=p@q&";
        let url = StoreUrl::read(url, &SERVERS).unwrap();
        assert_eq!((&*url.scheme, url.user.as_deref()), ("test", Some("ann")));
        assert_eq!(url.password.as_deref(), Some("p@s::s"));
        let places: Vec<_> = url.hosts.iter().map(|host| host.place(9)).collect();
        assert_eq!(places, ["h-1.x:9", "h_2:7", "[::1]:8", "[::1]:9", "h:9", "[::1]:9"]);
        assert_eq!(url.path().unwrap(), "x y");
        let values = ["a", "b", "pass"].map(|name| url.parameter(name));
        assert_eq!(values, [Some("/b=="), None, Some("p@q")]);
        assert!(!format!("{url:?}").contains("p@"), "{url:?}");
        assert_eq!(StoreUrl::read("test://h\n", &SERVERS).unwrap().hosts[0].name, "h");
    }

    #[test]
    fn last_at_sign_ends_the_login() {
        for (url, user, password) in [
            ("test://h", None, None),
            ("test://@h", None, None),
            ("test://u@h", Some("u"), None),
            ("test://u:@h", Some("u"), Some("")),
            ("test://:p@h", None, Some("p")),
            ("test://u:1/p@q/@h", Some("u"), Some("1/p@q/")),
            ("test://u:[p]:@h/x", Some("u"), Some("[p]:")),
        ] {
            let read = StoreUrl::read(url, &SERVER).unwrap();
            assert_eq!((read.user.as_deref(), read.password.as_deref()), (user, password), "{url}");
            assert_eq!(read.hosts[0].name, "h", "{url}");
        }
        assert_eq!(StoreUrl::read("test:///a@b", &PATH).unwrap().path, b"/a@b");
    }

    #[test]
    fn errors_name_the_part_and_never_the_password() {
        for (url, part) in [
            ("test:/u:sekret@h", "scheme"),
            ("test://u:sekret@h#sekret", "fragment"),
            ("test://u:sekret#x@h", "fragment"),
            ("test:///sekret@h", "user"),
            ("test://se%kret@h", "user"),
            ("test://%ff:sekret@h", "user"),
            ("test://u:se%kret@h", "password"),
            ("test://u:sekret%4@h", "password"),
            ("test://u:sekret%FF@h", "password"),
            ("test://", "host"),
            ("test://u:sekret@", "host"),
            ("test://u:sekret@/x", "host"),
            ("test://u:sekret@:1", "host"),
            ("test://u:sekret@h,", "host"),
            ("test://u:sekret@h,,g", "host"),
            ("test://u:sekret@h g", "host"),
            ("test://u:sekret@h%zz", "host"),
            ("test://u:sekret@%2Fs", "host"),
            ("test://u:sekret@::1", "host"),
            ("test://u:sekret@::1:5432", "host"),
            ("test://u:sekret@[::1", "host"),
            ("test://u:sekret@[::g]", "host"),
            ("test://u:sekret@[::1]5", "host"),
            ("test://u:sekret", "port"),
            ("test://u:sekret/x", "port"),
            ("test://u:sekret@h:0", "port"),
            ("test://u:sekret@h:-1", "port"),
            ("test://u:sekret@h:99999", "port"),
            ("test://u:sekret@[::1]:x", "port"),
            ("test://u:sekret@h/%", "path"),
            ("test://u:sekret@h?a=%4", "parameter `a`"),
            ("test://u:sekret@h?a=%ff", "parameter `a`"),
            ("test://u:sekret@h?a", "parameter `a`"),
            ("test://u:sekret@h?a=", "parameter `a`"),
            ("test://u:sekret@h?a=1&b=1&a=1", "parameter `a`"),
            ("test://u:sekret@h?c=sekret", "parameter `c`"),
            ("test://u:sekret@h?=sekret", "query"),
            ("test://u:sekret@h?sek%72et", "query"),
            ("test://u:1?sekret@h", "query"),
            ("test://u:1?sekret", "query"),
            ("test://u:1?sekret=x&a=1@h", "query"),
            ("test://u:1?a=sekret@h", "query"),
            ("test://h?pass=a&sekret=1", "query"),
        ] {
            let error = StoreUrl::read(url, &SERVERS).map(drop).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
            let text = format!("{error} {error:?}");
            let expected = format!("the {part} in the test URL ");
            assert!(error.message().starts_with(&expected) && text.contains("accepted are"), "{url}: {text}");
            assert!(!text.contains("ekret"), "{url}: {text}");
        }
        for (url, form, part) in [
            ("test://h,g", &SERVER, "host"),
            ("test://localhost/x", &PATH, "host"),
            ("test:///x?", &PATH, "query"),
            ("test:///x?a", &PATH, "query"),
            ("test:///x?a=1", &PATH, "parameter `a`"),
            ("test:///x%2", &PATH, "path"),
        ] {
            let error = StoreUrl::read(url, form).map(drop).expect_err(url);
            assert!(error.message().starts_with(&format!("the {part} in the test URL ")), "{url}: {error}");
        }
    }
}
