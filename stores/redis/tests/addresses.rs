//! The addresses of servers, and the errors of wrong ones.

use crate::support::{builder, connect, hold, in_time};
use locker::{Error, ErrorKind, Locker};
use locker_harness::{RedisServer, free_port};
use std::{
    io::{Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the error of connecting to `url`, which comes within the timeout.
async fn refused(url: &str) -> Error {
    let started = Instant::now();
    let result = Locker::builder().url(url).timeout(PATIENCE).build().await;
    assert!(started.elapsed() < PATIENCE * 2, "{url}: {:?}", started.elapsed());
    result.expect_err(url)
}

/// Opens a port that sends `answer` and nothing else.
fn stranger(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            drop(client.write_all(answer.as_bytes()));
            std::thread::spawn(move || client.read_to_end(&mut Vec::new()));
        }
    });
    port
}

#[tokio::test]
async fn dead_port_is_unavailable_until_it_listens() {
    let error = refused(&format!("redis://127.0.0.1:{}", free_port())).await;
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Unavailable, true));
    assert!(error.to_string().contains("cannot connect to redis://127.0.0.1:"), "{error}");

    let Some(mut server) = RedisServer::start() else { return };
    server.kill();
    assert_eq!(refused(&server.url()).await.kind(), ErrorKind::Unavailable);
    server.restart();
    hold(&connect(&server.url()).await, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn unknown_host_is_unavailable() {
    let error = refused("redis://no-such-host.invalid").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn silent_port_fails_within_the_timeout() {
    let error = refused(&format!("redis://127.0.0.1:{}", stranger(""))).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A busy machine may notice the end of the whole timeout first.
    let says = |text| error.to_string().contains(text);
    assert!(says("nothing heard within 1.8s") || says("no connection to") && says("within 2s"), "{error}");
}

#[tokio::test]
async fn port_that_is_not_redis_is_misused() {
    let error = refused(&format!("redis://127.0.0.1:{}", stranger("HTTP/1.1 400 Bad Request\r\n\r\n"))).await;
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
    assert!(error.to_string().contains("not redis"), "{error}");
}

#[tokio::test]
async fn user_password_and_database_are_used() {
    let Some(server) = RedisServer::start() else { return };
    let _: String = server.ask("ACL", &["SETUSER", "ann", "on", ">p@ss", "~*", "&*", "+@all"]);
    let _: String = server.ask("CONFIG", &["SET", "requirepass", "sesame"]);
    let host = server.url().replace("redis://", "");
    for login in ["ann:p%40ss@", ":sesame@", "default:sesame@"] {
        let locker = connect(&format!("redis://{login}{host}/3")).await;
        let shown = format!("{locker:?}");
        assert!(shown.contains(&format!("Redis(redis://{host}/3)")) && shown.len() < 300, "{shown}");
        let guard = hold(&locker, "a").await;
        let mut connection =
            redis::Client::open(format!("redis://:sesame@{host}/3")).unwrap().get_connection().unwrap();
        let held: String = redis::cmd("GET").arg("lock:a").query(&mut connection).unwrap();
        assert!(held.starts_with(guard.id()), "{login}");
        guard.release().await.unwrap();
    }
    for (login, expected) in [("ann:wrong@", "WRONGPASS"), ("", "NOAUTH"), (":wrong@", "WRONGPASS")] {
        let error = refused(&format!("redis://{login}{host}")).await;
        assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{login}: {error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(expected) && !text.contains("wrong@"), "{login}: {text}");
    }
    let error = refused(&format!("redis://:sesame@{host}/999")).await;
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.to_string().contains("DB index is out of range"), "{error}");
}

#[tokio::test]
async fn malformed_urls_list_the_accepted_forms() {
    for url in [
        "redis://",
        "redis://h/one",
        "redis://h:port",
        "unix://",
        "redis://h/?protocol=3",
        "redis:/h",
        "red://h",
    ] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Misused, "{url}");
        assert!(error.to_string().contains("accepted are"), "{url}: {error}");
    }
    let error = builder("redis://h").command_timeout(Duration::ZERO).build().await.unwrap_err();
    assert!(error.to_string().contains("command_timeout"), "{error}");
}

#[tokio::test]
async fn unix_sockets_work() {
    let Some(server) = RedisServer::with(&["--unixsocket", "{dir}/redis.sock"]) else { return };
    let path = server.file("redis.sock");
    for scheme in ["unix", "redis+unix"] {
        let locker = connect(&format!("{scheme}://{}?db=2", path.display())).await;
        let guard = hold(&locker, "a").await;
        guard.release().await.unwrap();
    }
    let error = refused("unix:///no/such/socket").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("/no/such/socket"), "{error}");
}

/// `global()` opens the locker of `LOCKER_URL` without waiting. It works as soon as there is a server.
#[test]
fn lazy_locker_fails_until_the_server_is_up() {
    let Some(mut server) = RedisServer::start() else { return };
    server.kill();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "addresses::lazy_locker_process", "--nocapture"])
        .envs([("LOCKER_TEST_PART", "1"), ("LOCKER_URL", &server.url())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let said = |wanted: &str, output: &mut dyn Iterator<Item = std::io::Result<String>>| {
        output.map(Result::unwrap).any(|line| line.contains(wanted))
    };
    assert!(said("refused: unavailable", &mut output));
    server.restart();
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    assert!(said("held", &mut output));
    assert!(child.wait().unwrap().success());
}

/// The child process of the test above.
#[test]
fn lazy_locker_process() {
    if std::env::var("LOCKER_TEST_PART").is_err() {
        return;
    }
    let error = locker::global().lock("a").try_acquire_blocking().unwrap_err();
    println!("refused: {}", error.kind());
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let guard = locker::global().lock("a").acquire_blocking().unwrap();
    println!("held");
    guard.release_blocking().unwrap();
}

/// No node of a cluster has answered yet: its list is not empty, but unknown.
#[test]
fn lazy_cluster_lists_nothing_until_it_is_up() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "addresses::lazy_cluster_process", "--nocapture"])
        .envs([("LOCKER_TEST_PART", "1")])
        .env("LOCKER_URL", format!("redis+cluster://127.0.0.1:{}", free_port()))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("list: Err(Unavailable)"), "{said}");
}

/// The child process of the test above.
#[tokio::test]
async fn lazy_cluster_process() {
    if std::env::var("LOCKER_TEST_PART").is_ok() {
        let list = locker::global().admin().names().await;
        println!("list: {:?}", list.map_err(|error| error.kind()));
    }
}

#[tokio::test]
async fn connecting_blocking_works_everywhere() {
    let Some(server) = RedisServer::start() else { return };
    let url = server.url();
    let locker = Locker::connect_blocking(&url).unwrap();
    let guard = in_time("the lock", locker.lock("a").acquire()).await.unwrap();
    std::thread::spawn(move || {
        let locker = Locker::connect_blocking(&url).unwrap();
        assert!(locker.lock("a").try_acquire_blocking().unwrap().is_none());
    })
    .join()
    .unwrap();
    guard.release_blocking().unwrap();
}
