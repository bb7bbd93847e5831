//! The page at `/`: its files, sessions and roles.

use crate::support::{Answer, Server, answer, client};
use reqwest::RequestBuilder;
use std::io::Write;

const FULL: &str = "0123456789abcdef0123456789abcdef";
const READ: &str = "fedcba9876543210fedcba9876543210";

/// A server with a token for all and one for reading.
fn server() -> (Server, tempfile::NamedTempFile) {
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    writeln!(tokens, "{FULL}\n{READ} read").unwrap();
    (Server::start(&["--token-file", tokens.path().to_str().unwrap()]), tokens)
}

fn by_page(request: RequestBuilder) -> RequestBuilder {
    request.header("x-locker-page", "1").header("sec-fetch-site", "same-origin")
}

async fn log_in(server: &Server, token: &str) -> Answer {
    let form = client().post(server.url("/session")).body(format!("token={token}"));
    answer(by_page(form).header("content-type", "application/x-www-form-urlencoded")).await
}

/// Returns the cookie as the browser sends it.
async fn session(server: &Server, token: &str) -> String {
    let given = log_in(server, token).await;
    assert_eq!((given.status, given.body.as_str()), (204, ""));
    given.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

async fn with_cookie(server: &Server, method: &str, path: &str, cookie: &str) -> Answer {
    answer(by_page(client().request(method.parse().unwrap(), server.url(path))).header("cookie", cookie))
        .await
}

async fn with_token(server: &Server, method: &str, path: &str, token: &str) -> Answer {
    let request = client().request(method.parse().unwrap(), server.url(path));
    answer(request.header("authorization", format!("Bearer {token}"))).await
}

#[tokio::test]
async fn files_of_the_page_have_a_policy() {
    let (server, _tokens) = server();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
    ] {
        let file = server.get(path).await;
        assert_eq!((file.status, file.header("content-type")), (200, Some(content_type)), "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-cache"),
            (
                "content-security-policy",
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
                 data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                 require-trusted-types-for 'script'",
            ),
        ] {
            assert_eq!(file.header(name), Some(value), "{path}: {name}");
        }
        let tag = file.header("etag").unwrap();
        let again = answer(client().get(server.url(path)).header("if-none-match", tag)).await;
        assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(tag)));
        assert_eq!(answer(client().get(server.url(path)).header("if-none-match", "\"x\"")).await.status, 200);
        assert_eq!(server.post(path).await.status, 405);
    }
}

#[tokio::test]
async fn session_comes_from_a_token() {
    let (server, _tokens) = server();
    let about = |role: &str| {
        let version = env!("CARGO_PKG_VERSION");
        format!(r#"{{"needs_token":true,"role":{role},"server":"{version}","store":"memory"}}"#)
    };
    assert_eq!(server.get("/session").await.body, about("null"));
    for (token, role) in [(FULL, r#""full""#), (READ, r#""read""#)] {
        let given = log_in(&server, token).await;
        let (cookie, attributes) = given.header("set-cookie").unwrap().split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Max-Age=28800; HttpOnly; SameSite=Strict");
        assert!(cookie.len() == "locker_session=".len() + 64 && !cookie.contains(token), "{cookie}");
        assert_eq!(with_cookie(&server, "GET", "/session", cookie).await.body, about(role));
        assert_eq!(with_cookie(&server, "GET", "/v1", cookie).await.status, 200);
        let ended = with_cookie(&server, "DELETE", "/session", cookie).await;
        assert_eq!(ended.status, 204);
        assert!(ended.header("set-cookie").unwrap().starts_with("locker_session=; Path=/; Max-Age=0;"));
        assert_eq!(with_cookie(&server, "GET", "/v1", cookie).await.status, 401);
    }
    let log = server.errors();
    assert!(log.contains("a session of the page has begun"), "{log}");
    assert!(!log.contains(FULL) && !log.contains(READ), "{log}");
}

#[tokio::test]
async fn cookie_is_secure_behind_tls() {
    let (server, _tokens) = server();
    let form = client().post(server.url("/session")).body(format!("token={FULL}"));
    let form = by_page(form).header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in
        [("x-forwarded-proto", "https".to_owned()), ("origin", server.url("").replace("http:", "https:"))]
    {
        let given = answer(form.try_clone().unwrap().header(name, value)).await;
        let cookie = given.header("set-cookie").unwrap();
        assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{name}: {cookie}");
    }
}

#[tokio::test]
async fn login_without_a_right_token_fails() {
    let (server, _tokens) = server();
    let refused = log_in(&server, "0123456789abcdef0123456789abcde0").await;
    assert_eq!((refused.status, refused.header("set-cookie")), (401, None));
    for (form, status) in [("token=", 400), ("", 400), ("password=x", 400), ("token=a&token=b", 400)] {
        let post = client().post(server.url("/session")).body(form);
        let post = by_page(post).header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(answer(post).await.status, status, "{form}");
    }
    let open = Server::start(&[]);
    let refused = log_in(&open, FULL).await;
    assert_eq!((refused.status, refused.body.as_str()), (404, "no token file"));
    assert!(open.get("/session").await.body.starts_with(r#"{"needs_token":false,"role":"full","#));
}

#[tokio::test]
async fn session_changes_only_through_the_page() {
    let (server, _tokens) = server();
    let cookie = session(&server, FULL).await;
    let send = client().post(server.url("/v1/event/e/send")).header("cookie", &cookie);
    let get = client().get(server.url("/v1/event/e/send")).header("cookie", &cookie);
    for request in [send.try_clone().unwrap(), get] {
        let refused = answer(request).await;
        assert_eq!(refused.status, 403);
        assert!(refused.body.contains("X-Locker-Page"), "{}", refused.body);
    }
    let foreign =
        send.try_clone().unwrap().header("x-locker-page", "1").header("sec-fetch-site", "cross-site");
    assert_eq!(answer(foreign).await.status, 403);
    assert_eq!(answer(by_page(send)).await.status, 204);
    let log = server.errors();
    let line = log.lines().find(|line| line.contains("changed by the page")).unwrap();
    assert!(line.contains("session=1") && line.contains("event") && line.contains("send"), "{line}");
}

/// A call with a `GET` may take a lock.
#[tokio::test]
async fn read_role_changes_nothing() {
    let (server, _tokens) = server();
    let cookie = session(&server, READ).await;
    assert_eq!(with_token(&server, "POST", "/v1/lock/a/acquire?key=k", FULL).await.status, 200);
    for (method, path, status) in [
        ("GET", "/v1", 200),
        ("GET", "/v1/lock/a", 200),
        ("GET", "/v1/lock/a/stats", 200),
        ("GET", "/v1/explain?key=lock:a", 200),
        ("GET", "/v1/counter/c/value", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/lock/b/acquire?maxwait=0", 403),
        ("GET", "/lock/b/acquire?maxwait=0", 403),
        ("POST", "/v1/lock/b/acquire?maxwait=0", 403),
        ("GET", "/v1/lock/a/release?key=k", 403),
        ("GET", "/v1/watchdog/w/wait?maxwait=0", 403),
        ("DELETE", "/v1/lock/a", 403),
        ("POST", "/v1", 403),
    ] {
        assert_eq!(with_token(&server, method, path, READ).await.status, status, "{method} {path}");
        assert_eq!(
            with_cookie(&server, method, path, &cookie).await.status,
            status,
            "{method} {path}, cookie"
        );
    }
    assert!(with_token(&server, "GET", "/v1", FULL).await.body.contains(r#""name":"a""#));
}

#[tokio::test]
async fn other_sites_may_not_use_a_session() {
    let (server, _tokens) = server();
    let cookie = session(&server, FULL).await;
    for (name, value) in
        [("sec-fetch-site", "cross-site"), ("origin", "http://evil.example"), ("host", "evil.example")]
    {
        for path in ["/", "/session", "/live?view=names", "/v1"] {
            let request = client().get(server.url(path)).header("cookie", &cookie).header(name, value);
            assert_eq!(answer(request).await.status, 403, "{path}: {name}");
        }
    }
    for (method, path) in [("POST", "/session"), ("DELETE", "/session")] {
        let request = client().request(method.parse().unwrap(), server.url(path)).header("cookie", &cookie);
        assert_eq!(answer(request).await.status, 403, "{method} without the header of the page");
    }
    assert_eq!(with_cookie(&server, "GET", "/v1", &cookie).await.status, 200, "the session goes on");
}
