//! Access: tokens, web pages, and addresses beyond loopback.

use crate::support::{Answer, Python, Server, answer, binary, client};
use std::{io::Write, process::Output};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const NEWER: &str = "Zm9vYmFyYmF6cXV4Zm9vYg==";

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

/// Starts a server that must refuse to start, and returns its message.
fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = binary().arg("serve").args(arguments).output().unwrap();
    assert!(!status.success() && stdout.is_empty(), "{arguments:?}");
    String::from_utf8(stderr).unwrap()
}

#[tokio::test]
async fn tokens_open_what_needs_one() {
    let tokens = file(&format!("{TOKEN}\n{NEWER}\n"));
    let server = Server::start(&["--token-file", path(&tokens)]);
    let get = async |path: &str, header: Option<&str>| {
        let request = client().get(server.url(path));
        answer(match header {
            Some(value) => request.header("authorization", value),
            None => request,
        })
        .await
    };
    for open in ["/healthz", "/readyz", "/.well-known/ready", "/openapi.json"] {
        assert_eq!(get(open, None).await.status, 200, "{open}");
    }
    for closed in
        ["/v1", "/v1/event/e/send", "/event/e/send", "/metrics", "/nothing", "/v1/event/e/send?token=x"]
    {
        let refused = get(closed, None).await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{closed}");
    }
    for wrong in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        &format!("Basic {TOKEN}"),
        TOKEN,
        &format!("Bearer {TOKEN}0"),
    ] {
        assert_eq!(get("/v1", Some(wrong)).await.status, 401, "{wrong}");
    }
    for token in [TOKEN, NEWER] {
        assert_eq!(get("/v1", Some(&format!("Bearer {token}"))).await.status, 200);
        assert_eq!(get("/metrics", Some(&format!("bearer {token}"))).await.status, 200);
    }
    let twice = client().get(server.url("/v1")).header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(answer(twice.header("authorization", "Bearer x")).await.status, 401);
    assert_eq!(get(&format!("/v1?access_token={TOKEN}"), None).await.status, 401, "never in a query");
    assert!(!server.errors().contains(TOKEN));
}

#[test]
fn weak_tokens_are_refused() {
    for text in ["", "secret\n", "0123456789abcdef\n"] {
        let tokens = file(text);
        let reason = refused(&["--http", "127.0.0.1:0", "--token-file", path(&tokens)]);
        assert!(reason.contains("openssl rand -hex 32") && !reason.contains("secret"), "{reason}");
    }
    assert!(refused(&["--token-file", "/nowhere/tokens"]).contains("/nowhere/tokens"));
}

#[test]
fn addresses_beyond_loopback_need_keys() {
    for http in ["0.0.0.0:0", "[::]:0"] {
        assert!(refused(&["--http", http, "--zmq", "off"]).contains("--token-file"), "{http}");
    }
    for zmq in ["tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0"] {
        assert!(refused(&["--http", "off", "--zmq", zmq]).contains("--curve-key-file"), "{zmq}");
    }
    let zmq = ["--http", "off", "--zmq", "tcp://127.0.0.1:0"];
    assert!(refused(&[&zmq[..], &["--publish", "tcp://*:0"]].concat()).contains("--curve-key-file"));
    assert!(refused(&[&zmq[..], &["--peer", "tcp://192.0.2.1:7778"]].concat()).contains("--curve-key-file"));
}

#[tokio::test]
async fn beyond_loopback_tokens_are_enough() {
    let tokens = file(TOKEN);
    let server = Server::start_at("0.0.0.0:0", "off", &["--token-file", path(&tokens)]);
    let url = format!("http://127.0.0.1:{}/v1", server.http().port());
    assert_eq!(answer(client().get(&url)).await.status, 401);
    assert_eq!(
        answer(client().get(&url).header("authorization", format!("Bearer {TOKEN}"))).await.status,
        200
    );
}

#[test]
fn curve_admits_known_keys_only() {
    let keys = Python::run(&["curve_keys"]);
    let keys: Vec<_> = keys.split_whitespace().collect();
    let [server_public, server_secret, public, secret] = keys[..] else { panic!("{keys:?}") };
    let (own, clients) = (file(server_secret), file(&format!("{public}\n")));
    let server = Server::start_at(
        "off",
        "tcp://0.0.0.0:0",
        &["--curve-key-file", path(&own), "--curve-clients-file", path(&clients)],
    );
    let endpoint = server.zmq().replace("0.0.0.0", "127.0.0.1");
    Python::run(&["encrypted", &endpoint, server_public, public, secret]);
}

/// Peers share the server's key, so no other client need be listed.
#[test]
fn a_curve_key_without_clients_is_warned_of() {
    let keys = Python::run(&["curve_keys"]);
    let keys: Vec<_> = keys.split_whitespace().collect();
    let [own_public, own_secret, public, _] = keys[..] else { panic!("{keys:?}") };
    let (own, nobody, clients) = (file(own_secret), file("\n"), file(public));
    let key = ["--curve-key-file", path(&own)];
    let start = |more: &[&str]| Server::start_at("off", "tcp://127.0.0.1:0", &[&key[..], more].concat());
    let alone = start(&[]);
    for (server, warned) in [
        (&alone, true),
        (&start(&["--curve-clients-file", path(&nobody)]), true),
        (&start(&["--curve-clients-file", path(&clients)]), false),
    ] {
        assert_eq!(server.errors().contains("--curve-clients-file"), warned, "{}", server.errors());
    }
    Python::run(&["encrypted", &alone.zmq(), own_public, own_public, own_secret]);
}

#[test]
fn curve_keys_are_checked() {
    for text in ["", "short", &"!".repeat(41)] {
        let key = file(text);
        let reason =
            refused(&["--http", "off", "--zmq", "tcp://127.0.0.1:0", "--curve-key-file", path(&key)]);
        assert!(reason.contains("key"), "{reason}");
    }
}

#[tokio::test]
async fn web_pages_may_not_call() {
    let server = Server::start(&["--allow-host", "locker.internal"]);
    let get = async |name: &str, value: &str| -> Answer {
        answer(client().get(server.url("/v1")).header(name, value)).await
    };
    for (name, value, status) in [
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", &server.url(""), 200),
        ("origin", "http://127.0.0.1:1", 403),
        ("host", "evil.example", 403),
        ("host", "localhost", 200),
        ("host", "locker.internal:5505", 200),
    ] {
        assert_eq!(get(name, value).await.status, status, "{name}: {value}");
    }
    let post = client().post(server.url("/v1/event/e/send")).header("sec-fetch-site", "cross-site");
    assert_eq!(answer(post).await.status, 403);
    assert_eq!(server.get("/v1/event/e/wait?maxwait=0").await.status, 408, "the page has sent nothing");
}

#[test]
fn host_in_the_target_is_checked() {
    let server = Server::start(&[]);
    for (target, status) in [("http://evil.example/v1", 403), ("http://localhost/v1", 200), ("/v1", 200)] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = server.raw(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
    }
}

#[tokio::test]
async fn refused_requests_are_counted() {
    let tokens = file(&"t".repeat(32));
    let server = Server::start(&["--token-file", path(&tokens)]);
    let token = format!("Bearer {}", "t".repeat(32));
    let send = client().post(server.url("/v1/event/e/send"));
    let known = send.try_clone().unwrap().header("authorization", &token);
    for (request, status) in [
        (send.try_clone().unwrap(), 401),
        (send.header("origin", "http://evil.example"), 403),
        (known.try_clone().unwrap().body("x".repeat(10_000)), 413),
        (known.body("x"), 415),
    ] {
        assert_eq!(answer(request).await.status, status);
    }
    let metrics = answer(client().get(server.url("/metrics")).header("authorization", &token)).await.body;
    for status in [401, 403, 413, 415] {
        let line =
            format!(r#"locker_requests_total{{call="event/send",status="{status}",transport="http"}} 1"#);
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
}

#[test]
fn peers_that_share_a_store_are_refused() {
    let shared = [
        "--http",
        "off",
        "--zmq",
        "tcp://127.0.0.1:0",
        "--peer",
        "tcp://127.0.0.1:1",
        "--store",
        "redis://127.0.0.1:1",
    ];
    assert!(!refused(&shared).is_empty());
}
