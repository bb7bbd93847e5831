//! A leader and a follower, as two processes.

use crate::{Running, example, exchange, listening};
use locker_harness::{RedisServer, eventually};
use rustix::process::{Pid, Signal, kill_process};

fn start(url: &str) -> (Running, String) {
    let mut command = example("leader_page");
    command.args(["--listen", "127.0.0.1:0", "--store", url]);
    let mut running = Running::start(command);
    let address = listening(&mut running);
    (running, address)
}

fn page(address: &str) -> String {
    let response = exchange(address, "GET / HTTP/1.1\r\n");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    response
}

#[test]
fn pages_name_the_leader_and_the_follower_takes_over() {
    let Some(server) = RedisServer::start() else { return };
    let (mut first, one) = start(&server.url());
    eventually("the first one leads", || page(&one).contains("this process leads").then_some(()));
    let (_second, other) = start(&server.url());
    eventually("the second one follows", || {
        page(&other).contains(&format!("http://{one} leads")).then_some(())
    });
    assert!(page(&other).contains("has swept 0 times"));
    let pid = Pid::from_child(&first.0);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(first.0.wait().unwrap().success());
    eventually("the second one leads", || page(&other).contains("this process leads").then_some(()));
}
