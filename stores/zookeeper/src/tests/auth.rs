//! Users and passwords.

use super::*;

#[tokio::test]
async fn user_with_a_password_keeps_the_contract() {
    let Some(mut server) = ZookeeperServer::start() else { return };
    let url = format!("zk://ann:sec%40ret@127.0.0.1:{}", server.port());
    let (one, other) = (party(&url).await, party(&url).await);
    contract::all(&one, &other).await;
    server.restart();
    write_in_spite_of_errors(&one, &contract::fresh("restarted"), b"x").await;
    hears(&one, &other, "again").await;
}

#[tokio::test]
async fn wrong_logins_are_explained() {
    let Some(server) = ZookeeperServer::start() else { return };
    let port = server.port();
    let owner = party(&format!("zk://ann:sec%40ret@127.0.0.1:{port}")).await;
    let key = contract::fresh("owned");
    owner.write(contract::write(&key, 0, b"x")).await;
    for login in ["", "ann:secret-no@", "bob:secret-no@"] {
        let error = open(&format!("zk://{login}127.0.0.1:{port}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misused, "{login} {error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("zk://USER:PASSWORD@HOST") && !text.contains("sec"), "{login}: {text}");
    }
    party(&format!("zk://bob:secret@127.0.0.1:{port}/other")).await;
    // Those without it could not read its nodes, and it protects none of theirs.
    drop(party(&format!("zk://127.0.0.1:{port}/open")).await);
    let error = open(&format!("zk://bob:secret@127.0.0.1:{port}/open")).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Misused && error.message().contains("/open in ZooKeeper are open to all"),
        "{error}"
    );
    party(&format!("zk://127.0.0.1:{port}/open")).await;
    assert_eq!(owner.read(&key).await.1, Some(b"x".to_vec()));
}
