//! The examples of the pages of the server with the real curl, verbatim and in their order.

use crate::support::Server;
use serde_json::Value;
use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

/// A line of the docs without its comment, the expected status, and a check of the body.
type Row = (&'static str, u16, fn(&str) -> bool);

const TOKEN_NOW: &str = r#"curl -X POST "localhost:5505/v1/tokenbucket/mail/acquire?size=20&maxwait=0""#;
const RELEASE: &str = r#"curl -X POST "localhost:5505/v1/semaphore/db/release?key=$KEY""#;
const WAIT_EVENT: &str = "curl -X POST localhost:5505/v1/event/deployed/wait";
const SEND: &str = "curl -X POST -d 'message=version 7' localhost:5505/v1/event/deployed/send";
const KICK: &str = r#"curl -X POST "localhost:5505/v1/watchdog/backup/kick?expires=90000""#;
const WAIT_WATCHDOG: &str = "curl -X POST localhost:5505/v1/watchdog/backup/wait";
const DELETE: &str = "curl -X DELETE localhost:5505/v1/semaphore/db";

const ACQUIRE_BY_KEY: &str = r#"curl -X POST "localhost:5505/v1/lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1/acquire?key=me""#;
const SHOW_BY_KEY: &str = "curl localhost:5505/v1/lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1";
const RELEASE_BY_KEY: &str = r#"curl -X POST "localhost:5505/v1/lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1/release?key=me""#;
const WAIT_BARRIER: &str = r#"curl -X POST "localhost:5505/v1/barrier/start/wait?size=3""#;
const WAIT_LATCH: &str = r#"curl -X POST "localhost:5505/v1/latch/migrated/wait?size=2""#;
const COUNT_DOWN: &str = r#"curl -X POST "localhost:5505/v1/latch/migrated/countdown?size=2""#;

const FINISH: &str =
    r#"curl --data-urlencode 'result={"receipt": 7}' "localhost:5505/v1/once/pay-9f3c/finish?key=$KEY""#;

/// All lines of the section "The API" that call curl.
const API: [Row; 44] = [
    ("curl -X POST localhost:5505/v1/tokenbucket/mail/acquire", 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/tokenbucket/mail/acquire?size=20""#, 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/tokenbucket/mail/acquire?interval=50""#, 204, str::is_empty),
    (TOKEN_NOW, 204, str::is_empty),
    ("KEY=$(curl -sX POST localhost:5505/v1/semaphore/db/acquire)", 200, is_key),
    (r#"KEY=$(curl -sX POST "localhost:5505/v1/semaphore/db/acquire?size=10&expires=30000")"#, 200, is_key),
    (r#"curl -X POST "localhost:5505/v1/semaphore/db/renew?key=$KEY&expires=30000""#, 204, str::is_empty),
    (RELEASE, 204, str::is_empty),
    (r#"KEY=$(curl -sX POST "localhost:5505/v1/lock/invoice-7/acquire?expires=30000")"#, 200, is_key),
    (r#"curl -X POST "localhost:5505/v1/lock/invoice-7/renew?key=$KEY&expires=30000""#, 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/lock/invoice-7/release?key=$KEY""#, 204, str::is_empty),
    (ACQUIRE_BY_KEY, 200, |body| body == "me"),
    (SHOW_BY_KEY, 200, |body| json(body)["holders"][0]["fence"].is_u64()),
    (RELEASE_BY_KEY, 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/rwlock/config/acquire?mode=read&key=me""#, 200, |body| body == "me"),
    (r#"curl -X POST "localhost:5505/v1/rwlock/config/release?key=me""#, 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/rwlock/config/acquire?mode=write&key=me""#, 200, |body| body == "me"),
    (r#"KEY=$(curl -sX POST "localhost:5505/v1/leader/reaper/acquire?expires=15000")"#, 200, is_key),
    (
        r#"KEY=$(curl -sX POST -D head "localhost:5505/v1/once/pay-9f3c/begin?keep=86400000&same=30&after_crash=refuse")"#,
        200,
        is_run,
    ),
    (r#"curl -X POST "localhost:5505/v1/once/pay-9f3c/renew?key=$KEY&expires=60000""#, 204, str::is_empty),
    (FINISH, 204, str::is_empty),
    (r#"curl -X POST "localhost:5505/v1/once/pay-9f3c/begin?keep=86400000&same=30""#, 200, |body| {
        body == r#"{"receipt": 7}"#
    }),
    (
        r#"KEY=$(curl -sX POST "localhost:5505/v1/once/report/begin?every=86400000&from=10800000")"#,
        200,
        is_run,
    ),
    (r#"curl -X POST "localhost:5505/v1/once/report/fail?key=$KEY""#, 204, str::is_empty),
    (WAIT_EVENT, 200, |body| body == "version 7"),
    (SEND, 204, str::is_empty),
    (KICK, 204, str::is_empty),
    (WAIT_WATCHDOG, 204, str::is_empty),
    (WAIT_BARRIER, 204, str::is_empty),
    (WAIT_LATCH, 204, str::is_empty),
    (COUNT_DOWN, 200, |body| body == "1"),
    ("curl -X POST localhost:5505/v1/counter/visits/count", 200, |body| body == "1"),
    (r#"curl -X POST "localhost:5505/v1/counter/visits/count?amount=5""#, 200, |body| body == "6"),
    ("curl localhost:5505/v1/counter/visits/value", 200, |body| body == "6"),
    (r#"curl -X POST "localhost:5505/v1/counter/visits/reset?value=0""#, 204, str::is_empty),
    ("curl localhost:5505/v1/semaphore/db", 200, shows_the_first_hold),
    ("curl localhost:5505/v1/semaphore/db/stats", 200, |body| {
        json(body)["acquired"] == 2 && json(body)["released"] == 1 && json(body)["created_at"].is_string()
    }),
    (DELETE, 204, str::is_empty),
    ("curl localhost:5505/v1", 200, lists_what_is_in_use),
    ("curl \"localhost:5505/v1/explain?key=semaphore:db\"", 200, |body| {
        body.starts_with(r#"{"kind":"semaphore","name":"db","key":"semaphore:db","function":null"#)
    }),
    ("curl localhost:5505/healthz", 200, |body| body == "ok"),
    ("curl localhost:5505/readyz", 200, |body| body == "ready"),
    ("curl localhost:5505/metrics", 200, |body| {
        ["locker_requests_total", "locker_waiting", "locker_wait_seconds"]
            .iter()
            .all(|name| body.contains(name))
    }),
    ("curl localhost:5505/openapi.json", 200, |body| json(body)["openapi"].is_string()),
];

/// Calls that are repeated at the end, with the status that the docs promise.
const AGAIN: [(&str, u16); 7] = [
    (SEND, 409),
    (RELEASE, 409),
    (DELETE, 404),
    (WAIT_EVENT, 200),
    (RELEASE_BY_KEY, 409),
    (WAIT_BARRIER, 409),
    (WAIT_LATCH, 204),
];

fn json(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn is_key(body: &str) -> bool {
    uuid::Uuid::parse_str(body).is_ok()
}

fn is_run(body: &str) -> bool {
    body.split_once('.').is_some_and(|(id, keep)| id.len() == 32 && keep.parse::<u64>().is_ok())
}

/// Only the first hold is left: the example releases the second one.
fn shows_the_first_hold(body: &str) -> bool {
    let state = json(body);
    let holder = &state["holders"][0];
    let of = |field| holder[field].is_u64();
    (&state["size"], &state["used"], &state["waiting"]) == (&10.into(), &1.into(), &0.into())
        && of("age")
        && of("time_left")
        && of("fence")
}

fn lists_what_is_in_use(body: &str) -> bool {
    let named = |kind: &str, name: &str| {
        json(body).as_array().unwrap().iter().any(|one| one["kind"] == kind && one["name"] == name)
    };
    named("event", "deployed") && named("watchdog", "backup") && !named("semaphore", "db")
}

/// Returns the lines of the shell examples of a page, from a heading on, without comments.
fn examples(page: &str, heading: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect("the section is there");
    let (mut lines, mut shell) = (Vec::new(), false);
    for line in section.lines().map(str::trim) {
        match line {
            "```sh" => shell = true,
            "```" => shell = false,
            _ if shell => lines.push(line.split("  #").next().unwrap().trim().to_owned()),
            _ => {}
        }
    }
    lines
}

/// A shell in its own folder. Its curl connects to the test's server for the addresses of the docs.
struct Shell(tempfile::TempDir);

impl Shell {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key"), "").unwrap();
        Self(directory)
    }

    fn finds(&self, server: &Server) {
        let port = server.http().port();
        let hosts = ["localhost", "locker.internal"];
        let hosts = hosts.map(|host| format!("connect-to = \"{host}:5505:127.0.0.1:{port}\"\n")).concat();
        let settings =
            "silent\nshow-error\nmax-time = 60\nnoproxy = \"*\"\nwrite-out = \"%{stderr}%{http_code}\"\n";
        std::fs::write(self.0.path().join(".curlrc"), settings.to_owned() + &hosts).unwrap();
    }

    fn start(&self, line: &str) -> Child {
        let mut shell = Command::new("sh");
        // Other lines may end long after the variable was set again.
        let keep = if line.starts_with("KEY=") { "printf %s \"$KEY\" >key" } else { "" };
        shell.arg("-c").arg(format!("KEY=$(cat key)\n{line}\n{keep}"));
        shell.current_dir(&self.0).env("CURL_HOME", self.0.path());
        shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Returns the status and the body, or the value of the variable that the line sets.
    fn end(&self, line: &str, child: Child) -> (u16, String) {
        let output = child.wait_with_output().unwrap();
        let status = String::from_utf8(output.stderr).unwrap();
        let status = status.parse().unwrap_or_else(|_| panic!("{line}: {status}"));
        let body = if line.starts_with("KEY=") {
            std::fs::read_to_string(self.0.path().join("key")).unwrap()
        } else {
            String::from_utf8(output.stdout).unwrap()
        };
        (status, body)
    }

    fn run(&self, line: &str) -> (u16, String) {
        self.end(line, self.start(line))
    }
}

#[tokio::test]
async fn api_examples_do_what_the_docs_say() {
    let server = Server::start(&[]);
    let shell = Shell::new();
    shell.finds(&server);
    let lines: Vec<_> = examples("reference/http.md", "## Requests")
        .into_iter()
        .filter(|line| line.contains("curl "))
        .collect();
    assert_eq!(lines, API.map(|(line, ..)| line), "each line of the docs has its row here, and in its order");
    let (mut waiting, mut ended) = (Vec::new(), Vec::new());
    for row in API {
        let (line, ..) = row;
        match line {
            WAIT_EVENT => {
                waiting.push((row, shell.start(line)));
                server.until_waiting("event/deployed", 1).await;
            }
            WAIT_WATCHDOG => {
                waiting.push((row, shell.start(line)));
                server.until_waiting("watchdog/backup", 1).await;
            }
            WAIT_LATCH => {
                waiting.push((row, shell.start(line)));
                server.until_waiting("latch/migrated", 1).await;
            }
            WAIT_BARRIER => {
                for before in 1..3 {
                    waiting.push((row, shell.start(line)));
                    server.until_waiting("barrier/start", before).await;
                }
                ended.push((row, shell.run(line)));
            }
            _ => ended.push((row, shell.run(line))),
        }
    }
    assert_eq!(shell.run(&KICK.replace("90000", "1")).0, 204);
    assert_eq!(shell.run(COUNT_DOWN).1, "0");
    ended.extend(waiting.into_iter().map(|(row, child)| (row, shell.end(row.0, child))));
    for ((line, status, expected), answer) in ended {
        assert!(answer.0 == status && expected(&answer.1), "{line}: {answer:?}");
    }
    for (line, status) in AGAIN {
        assert_eq!(shell.run(line).0, status, "{line}, again");
    }
}

#[test]
fn access_example_does_what_the_docs_say() {
    let lines = examples("how-to/run-the-server.md", "## Access");
    let [secret, serve, call] = &lines[..] else { panic!("{lines:?}") };
    let shell = Shell::new();
    let made = Command::new("sh").arg("-c").arg(secret).current_dir(&shell.0).status().unwrap();
    assert!(made.success(), "{secret}");
    let arguments = serve.strip_prefix("locker serve --http 0.0.0.0:5505 --token-file tokens ").unwrap();
    let tokens = shell.0.path().join("tokens");
    let more: Vec<_> =
        ["--token-file", tokens.to_str().unwrap()].into_iter().chain(arguments.split(' ')).collect();
    let server = Server::start_at("0.0.0.0:0", "off", &more);
    shell.finds(&server);
    assert_eq!(shell.run(call), (204, String::new()));
    let unknown = call.replace("$(cat tokens)", "0000");
    assert_eq!(shell.run(&unknown).0, 401);
}
