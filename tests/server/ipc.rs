//! ZeroMQ over sockets of the file system.

use crate::support::{Python, Server, binary, in_time, until};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn socket(directory: &tempfile::TempDir) -> (PathBuf, String) {
    let path = directory.path().join("locker.sock");
    let endpoint = format!("ipc://{}", path.display());
    (path, endpoint)
}

fn on(endpoint: &str) -> Server {
    Server::start_at("127.0.0.1:0", endpoint, &[])
}

fn is_served(endpoint: &str) {
    Python::run(&["is_served", endpoint]);
}

#[test]
fn socket_files_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let (path, endpoint) = socket(&directory);
    let mut server = on(&endpoint);
    assert_eq!(server.zmq(), endpoint, "{}", server.line);
    is_served(&endpoint);
    server.signal(Signal::TERM);
    assert!(server.ended().success());
    assert!(!path.exists(), "the file goes with the server");
}

/// Its file is still there, and nobody listens.
#[tokio::test]
async fn killed_server_leaves_a_socket_that_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (path, endpoint) = socket(&directory);
    let mut killed = on(&endpoint);
    let client = tokio::task::spawn_blocking({
        let endpoint = endpoint.clone();
        move || Python::start(&["outlives_a_killed_server", &endpoint])
    });
    let mut client = client.await.unwrap();
    assert_eq!(client.line(), "waiting");
    killed.signal(Signal::KILL);
    killed.ended();
    assert!(path.exists());
    let server = on(&endpoint);
    client.tell("restarted");
    in_time("the client", tokio::task::spawn_blocking(move || client.finish())).await.unwrap();
    until("it is ready", async || server.get("/readyz").await.status == 200).await;
}

fn refused(endpoint: &str) -> String {
    let output = binary().args(["serve", "--http", "off", "--zmq", endpoint]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

/// The ZeroMQ library deletes what it finds at the path.
#[test]
fn only_stale_sockets_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (path, endpoint) = socket(&directory);
    let running = on(&endpoint);
    assert!(refused(&endpoint).contains("another process listens"));
    is_served(&running.zmq());
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    assert!(refused(&format!("ipc://{}", file.display())).contains("not a socket"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(refused("ipc:///nowhere/at/all").contains("/nowhere/at/all"));
    assert!(UnixStream::connect(path).is_ok());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The umask decides who may connect, as for other sockets.
#[test]
fn socket_file_has_the_permissions_of_the_umask() {
    for (mask, expected) in [("022", 0o755), ("077", 0o700), ("007", 0o770)] {
        let directory = tempfile::tempdir().unwrap();
        let (path, endpoint) = socket(&directory);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {mask}; exec \"$@\""), "sh"]).arg(binary().get_program());
        command.args(["serve", "--http", "off", "--zmq", &endpoint]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(process.stdout.take().unwrap()), &mut line)
            .unwrap();
        let found = mode(&path);
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(found, expected, "{mask}: {found:o}, {line}");
    }
}
