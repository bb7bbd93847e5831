//! Access checks: other web pages are refused, and with a token file clients need a token, and the page a session.

use super::{
    sessions::{SessionNumber, Sessions},
    tokens::{Role, Tokens},
};
use crate::api::{Answer, name::quoted};
use hyper::{
    HeaderMap, Request, Version,
    header::{AUTHORIZATION, HOST, HeaderName, ORIGIN},
    http::uri::Authority,
};
use std::net::IpAddr;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The header of the page's changes. A page of another site cannot send it.
const PAGE: HeaderName = HeaderName::from_static("x-locker-page");

/// The checks before a request is parsed.
#[derive(Debug)]
pub(crate) struct AccessPolicy {
    tokens: Option<Tokens>,
    pub(super) sessions: Sessions,
    hosts: Vec<String>,
}

/// A client that may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) role: Role,
    /// The session of the page, if the client has no token of its own.
    pub(super) session: Option<SessionNumber>,
}

impl AccessPolicy {
    /// `hosts` are the names of this server besides its addresses; `*` accepts any host.
    pub(crate) fn new(tokens: Option<Tokens>, hosts: Vec<String>) -> Self {
        let hosts = hosts.into_iter().map(|host| host_only(&host).to_owned());
        let hosts = hosts.filter(|host| !host.is_empty()).collect();
        Self { tokens, sessions: Sessions::default(), hosts }
    }

    /// Refuses requests that a foreign web page made a browser send.
    pub(super) fn check_origin<B>(&self, request: &Request<B>, local: IpAddr) -> Result<(), Answer> {
        let headers = request.headers();
        if let Some(site) = headers.get(FETCH_SITE)
            && !matches!(site.as_bytes(), b"same-origin" | b"none")
        {
            return Err(Answer::forbidden("web pages may not call this server"));
        }
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => Some(host.to_str().unwrap_or_default()),
            (None, None) if request.version() < Version::HTTP_11 => None,
            _ => return Err(Answer::bad_request("send exactly one Host header")),
        };
        // The host in the request target overrides the header (RFC 9112, 3.2.2).
        let host = request.uri().authority().map(Authority::as_str).or(host);
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            if !host.is_some_and(|host| is_same_origin(origin, host)) {
                return Err(Answer::forbidden(format!(
                    "web pages of the origin {} may not call this server",
                    quoted(origin)
                )));
            }
        }
        host.map_or(Ok(()), |host| self.check_host(host, local))
    }

    fn check_host(&self, host: &str, local: IpAddr) -> Result<(), Answer> {
        if self.is_own_host(host, local) {
            return Ok(());
        }
        Err(Answer::forbidden(format!(
            "the host {} is not known to this server: add it with --allow-host",
            quoted(host)
        )))
    }

    /// Returns `true` if clients need a token.
    pub(super) fn needs_token(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the role of a token, or `None` if it is wrong.
    pub(super) fn role(&self, token: &[u8]) -> Option<Role> {
        self.tokens.as_ref()?.role(token)
    }

    /// Returns the client that sends these headers. A token takes precedence over the cookie of a session. Another
    /// `Authorization` is that of a proxy in front of this server, which has checked it.
    ///
    /// # Errors
    /// 401 if a token is needed, and the headers have neither a right one nor a session.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Answer> {
        if self.tokens.is_none() {
            return Ok(Caller { role: Role::Full, session: None });
        }
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let caller = match (given.next(), given.next()) {
            (None, _) => self.of_session(headers),
            (Some(value), None) => match bearer(value.as_bytes()) {
                Some(token) => self.role(token).map(|role| Caller { role, session: None }),
                None => self.of_session(headers),
            },
            _ => None,
        };
        caller.ok_or_else(Answer::unauthorized)
    }

    fn of_session(&self, headers: &HeaderMap) -> Option<Caller> {
        self.sessions.of(headers).map(|(session, role)| Caller { role, session: Some(session) })
    }

    /// Returns the client that sends these headers, if it may do so. `changes` says whether the request changes
    /// anything.
    ///
    /// # Errors
    /// 401 as [`caller`](Self::caller); 403 if a client that may only read wants to change something, or the change of
    /// a session lacks the header of the page.
    pub(super) fn authorize(
        &self,
        headers: &HeaderMap,
        changes: impl FnOnce() -> bool,
    ) -> Result<Caller, Answer> {
        let caller = self.caller(headers)?;
        if caller == (Caller { role: Role::Full, session: None }) || !changes() {
            return Ok(caller);
        }
        if caller.role == Role::Read {
            return Err(Answer::forbidden(
                "this token may only read: its line in --token-file ends in `read`",
            ));
        }
        check_page(headers).map(|()| caller)
    }

    /// Returns `true` if the server is reached under this name or address. The port is ignored, because it may be
    /// forwarded.
    fn is_own_host(&self, host: &str, local: IpAddr) -> bool {
        let host = host_only(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            if address.is_loopback() || address == local.to_canonical() {
                return true;
            }
        }
        host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|ours| ours == "*" || ours.eq_ignore_ascii_case(host))
    }
}

/// Refuses a request that the page of this server has not sent.
pub(super) fn check_page(headers: &HeaderMap) -> Result<(), Answer> {
    if headers.get(PAGE).is_some_and(|value| value == "1") {
        return Ok(());
    }
    Err(Answer::forbidden("only the page of this server may send this: the header X-Locker-Page is missing"))
}

/// Returns `true` if a page of this origin came from this host. The ports must be equal, because another port may be
/// another program.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    page.is_some_and(|page| page.eq_ignore_ascii_case(host))
}

/// Returns the name or address in a header or an option.
fn host_only(host: &str) -> &str {
    if host.parse::<IpAddr>().is_ok() {
        return host;
    }
    let host = without_port(host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

    fn check(pairs: &[(HeaderName, &str)]) -> u16 {
        check_target("/", pairs)
    }

    fn check_target(target: &str, pairs: &[(HeaderName, &str)]) -> u16 {
        let policy = AccessPolicy::new(None, vec!["locker.internal".into()]);
        let mut request = Request::get(target).body(()).unwrap();
        for (name, value) in pairs {
            request.headers_mut().append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        policy.check_origin(&request, LOCAL).map_or_else(|answer| answer.status, |()| 0)
    }

    #[test]
    fn own_hosts_are_accepted() {
        for host in [
            "localhost",
            "LOCALHOST:1",
            "localhost.:5505",
            "127.0.0.1:80",
            "[::1]:5505",
            "[::1]",
            "10.0.0.5:1",
            "locker.internal",
        ] {
            assert_eq!(check(&[(HOST, host)]), 0, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.6",
            "",
            "127.0.0.1.evil.example:80",
            "[::2]:1",
            "a:b:c",
        ] {
            assert_eq!(check(&[(HOST, host)]), 403, "{host}");
        }
        assert_eq!([check(&[]), check(&[(HOST, "localhost"), (HOST, "localhost")])], [400, 400]);
    }

    #[test]
    fn foreign_web_pages_are_refused() {
        for (name, value, expected) in [
            (FETCH_SITE, "cross-site", 403),
            (FETCH_SITE, "same-site", 403),
            (FETCH_SITE, "same-origin", 0),
            (FETCH_SITE, "none", 0),
            (ORIGIN, "http://evil.example", 403),
            (ORIGIN, "null", 403),
            (ORIGIN, "ftp://localhost", 403),
            (ORIGIN, "http://localhost:5505", 0),
            (ORIGIN, "https://LOCALHOST:5505", 0),
            (ORIGIN, "http://localhost:5506", 403),
            (ORIGIN, "http://localhost", 403),
            (ORIGIN, "http://127.0.0.1:5505", 403),
            (ORIGIN, "https://locker.internal", 403),
        ] {
            assert_eq!(check(&[(HOST, "localhost:5505"), (name, value)]), expected, "{value}");
        }
        assert_eq!(check(&[(HOST, "locker.internal"), (ORIGIN, "https://locker.internal")]), 0);
        assert_eq!(check(&[(HOST, "evil.example"), (ORIGIN, "http://evil.example")]), 403);
    }

    #[test]
    fn a_host_in_the_target_replaces_the_header() {
        for (target, host, expected) in [
            ("http://evil.example/v1", "localhost", 403),
            ("http://localhost@evil.example/v1", "localhost", 403),
            ("http://evil.example@localhost/v1", "localhost", 403),
            ("http://localhost:5505/v1", "localhost", 0),
            ("http://locker.internal/v1", "evil.example", 0),
        ] {
            assert_eq!(check_target(target, &[(HOST, host)]), expected, "{target}");
        }
        let page = (ORIGIN, "http://localhost:5505");
        assert_eq!(check_target("http://localhost:5506/", &[(HOST, "localhost:5505"), page]), 403);
        assert_eq!(check_target("http://localhost/", &[]), 400, "the header is missing all the same");
    }

    /// Users copy the host with its port from the reason of a refusal.
    #[test]
    fn allowed_hosts_may_have_ports() {
        let allowed = ["a.internal:5505", "b.internal.", "fd00::1", "[fd00::a:2]", "[fd00::3]:5505", ""];
        let policy = AccessPolicy::new(None, allowed.map(str::to_owned).into());
        for host in
            ["a.internal", "A.internal:1", "b.internal:1", "[fd00::1]", "[fd00::a:2]:1", "[fd00::3]:1"]
        {
            assert!(policy.is_own_host(host, LOCAL), "{host}");
        }
        for host in ["", ":1", "c.internal", "[fd00::a]:2", "[fd00::2]"] {
            assert!(!policy.is_own_host(host, LOCAL), "{host}");
        }
    }

    #[test]
    fn any_host_can_be_allowed() {
        let policy = AccessPolicy::new(None, vec!["*".into()]);
        assert!(policy.is_own_host("whatever.example:1", LOCAL));
    }

    /// A proxy in front of the server may send on what it has checked itself.
    #[test]
    fn session_counts_beside_the_login_of_a_proxy() {
        let tokens = Tokens::parse("0123456789abcdef0123456789abcdef\n").unwrap();
        let policy = AccessPolicy::new(Some(tokens), Vec::new());
        let (session, id) = policy.sessions.start(Role::Read);
        let caller = |authorization: &str, cookie: &str| {
            let headers = [(AUTHORIZATION, authorization), (hyper::header::COOKIE, cookie)];
            let headers = headers.into_iter().filter(|(_, value)| !value.is_empty());
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
            policy.caller(&headers.collect()).ok()
        };
        let cookie = format!("locker_session={id}");
        let of_session = Some(Caller { role: Role::Read, session: Some(session) });
        assert_eq!(caller("", &cookie), of_session);
        assert_eq!(caller("Basic eDp5", &cookie), of_session);
        assert_eq!(caller("Basic eDp5", ""), None);
        assert_eq!(caller("Bearer wrong", &cookie), None, "a token is what the client has chosen");
        let of_token = Some(Caller { role: Role::Full, session: None });
        assert_eq!(caller("Bearer 0123456789abcdef0123456789abcdef", &cookie), of_token);
    }
}
