//! Users and passwords.

use super::*;

/// Starts a server with the user `ann`, who may use keys that begin with `locker/`.
fn start() -> Option<EtcdServer> {
    let server = EtcdServer::start()?;
    let (key, range_end) = (base64("locker/"), base64("locker0"));
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"r"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"ann","password":"sec@ret"}"#),
        ("role/add", r#"{"name":"lockers"}"#),
        (
            "role/grant",
            &format!(
                r#"{{"name":"lockers","perm":{{"permType":"READWRITE","key":"{key}","range_end":"{range_end}"}}}}"#
            ),
        ),
        ("user/grant", r#"{"user":"ann","role":"lockers"}"#),
        ("enable", "{}"),
    ] {
        let answer = server.ask(&format!("auth/{path}"), body).unwrap();
        assert!(!answer.contains("error"), "{path}: {answer}");
    }
    Some(server)
}

#[tokio::test]
async fn user_with_rights_keeps_the_contract() {
    let Some(mut server) = start() else { return };
    let url = format!("etcd://ann:sec%40ret@127.0.0.1:{}", server.port());
    let (one, other) = (party(&url).await, party(&url).await);
    contract::all(&one, &other).await;
    // A server forgets its tokens when it restarts.
    server.restart();
    write_in_spite_of_errors(&one, &contract::fresh("restarted"), b"x").await;
    hears(&one, &other, "again").await;
    let (inbox, last) = (other.backend.inbox(), contract::fresh("last"));
    drop(other);
    until("the end of the inbox", async || {
        let messages = vec![message(inbox, "x")];
        let write = Write { messages, ..contract::write(&last, one.read(&last).await.0, b"x") };
        matches!(one.exchange(write).await, Outcome::Matched { gone, .. } if gone == [inbox])
    })
    .await;
}

#[tokio::test]
async fn wrong_logins_are_explained() {
    let Some(server) = start() else { return };
    let port = server.port();
    for (login, rest, hint) in [
        ("", "", "USER:PASSWORD"),
        ("ann:secret-no@", "", "USER:PASSWORD"),
        ("bob:secret-no@", "", "USER:PASSWORD"),
        ("ann:sec%40ret@", "?prefix=other", "right to read and write"),
    ] {
        let error = open(&format!("etcd://{login}127.0.0.1:{port}{rest}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{login} {error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(hint) && !text.contains("sec"), "{login}: {text}");
    }
}

#[tokio::test]
async fn login_is_ignored_where_none_is_needed() {
    let Some(server) = EtcdServer::start() else { return };
    let one = party(&format!("etcd://ann:secret@127.0.0.1:{}", server.port())).await;
    one.write(contract::write(&contract::fresh("x"), 0, b"x")).await;
}
