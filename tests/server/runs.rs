//! Runs of records over HTTP.

use crate::{
    stores::{Store, on_each_store},
    support::{Answer, Python, Server, answer, client},
};
use locker::{Guard, Locker};
use locker_harness::in_time;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

on_each_store!(
    one_call_runs_and_its_result_is_the_answer_to_all,
    failed_run_is_followed_by_the_next_call,
    run_of_a_dead_client_is_followed_by_the_next_call,
    refused_run_is_not_repeated,
    other_payload_is_refused,
    slot_sees_one_run,
    rust_programs_share_records,
    shortest_lease_gets_its_answer,
    keys_have_nothing_in_common,
);

const KEEP: &str = "/v1/once/a/begin?keep=3600000";

/// The key of a run that has begun, and its fence.
fn run(answer: &Answer) -> (String, u64) {
    assert_eq!((answer.status, answer.header("locker-replayed")), (200, None), "{answer:?}");
    (answer.body.clone(), answer.header("locker-fence").unwrap().parse().unwrap())
}

/// The result of another run.
fn replayed(answer: &Answer) -> &str {
    let headers = ["locker-replayed", "content-type", "locker-fence"].map(|name| answer.header(name));
    let expected = [Some("true"), Some("application/json"), None];
    assert_eq!((answer.status, headers), (200, expected), "{answer:?}");
    &answer.body
}

/// The status of a call on this run.
async fn end(server: &Server, call: &str, key: &str) -> u16 {
    server
        .post(&format!("/v1/once/a/{call}{}key={key}", if call.contains('?') { '&' } else { '?' }))
        .await
        .status
}

/// Ends this run of `a` with a result in a form.
async fn finish(server: &Server, key: &str, result: &str) -> u16 {
    let form = format!("key={key}&result={}", utf8_percent_encode(result, NON_ALPHANUMERIC));
    let post = client().post(server.url("/v1/once/a/finish"));
    answer(post.header("content-type", "application/x-www-form-urlencoded").body(form)).await.status
}

async fn one_call_runs_and_its_result_is_the_answer_to_all(store: &Store) {
    let [one, two] = store.two_servers();
    let (key, _) = run(&one.post(KEEP).await);
    assert_eq!(two.post(&format!("{KEEP}&maxwait=0")).await.status, 408);
    let waits = two.queue(KEEP, "once/a", 0).await;
    assert_eq!(end(&two, "renew?expires=90000", &key).await, 204);
    let finish = || finish(&two, &key, r#"{"paid": "größe & 7"}"#);
    assert_eq!(finish().await, 204);
    let waited = in_time("the result", waits).await.unwrap();
    for answer in [waited, one.post(KEEP).await, two.post(&format!("{KEEP}&maxwait=0")).await] {
        assert_eq!(replayed(&answer), r#"{"paid": "größe & 7"}"#);
    }
    assert_eq!(finish().await, 204, "it is recorded");
    for call in ["fail", "renew"] {
        assert_eq!(end(&one, call, &key).await, 409, "{call}");
    }
}

async fn failed_run_is_followed_by_the_next_call(store: &Store) {
    let server = store.server(&[]);
    let (key, fence) = run(&server.post(KEEP).await);
    let waits = server.queue(KEEP, "once/a", 0).await;
    assert_eq!(end(&server, "fail", &key).await, 204);
    let (next, higher) = run(&in_time("the next run", waits).await.unwrap());
    assert!(next != key && higher > fence, "{key} {fence}, {next} {higher}");
    for call in ["finish", "fail", "renew"] {
        assert_eq!(end(&server, call, &key).await, 409, "{call} of a run that is over");
    }
    assert_eq!(end(&server, "finish", &next).await, 204);
    assert_eq!(server.post(KEEP).await.status, 204, "done without a result");
}

async fn run_of_a_dead_client_is_followed_by_the_next_call(store: &Store) {
    let server = store.server(&[]);
    let (dead, _) = run(&server.post(&format!("{KEEP}&expires=1000")).await);
    let next = in_time("the next run", server.post(KEEP)).await;
    run(&next);
    assert_eq!(end(&server, "finish", &dead).await, 409, "another one has begun");
}

async fn refused_run_is_not_repeated(store: &Store) {
    let server = store.server(&[]);
    let (key, _) = run(&server.post(&format!("{KEEP}&after_crash=refuse")).await);
    let begin = format!("{KEEP}&after_crash=refuse&expires=1000");
    assert_eq!(end(&server, "fail", &key).await, 204);
    let (dead, _) = run(&server.post(&begin).await);
    for _ in 0..2 {
        let refused = in_time("the end of the lease", server.post(&begin)).await;
        assert_eq!(refused.status, 409);
        assert!(
            refused.body.contains("nobody knows whether the run before has succeeded"),
            "{}",
            refused.body
        );
    }
    assert_eq!(end(&server, "finish?result=7", &dead).await, 204, "now somebody knows");
    assert_eq!(replayed(&server.post(&begin).await), "7");
}

async fn other_payload_is_refused(store: &Store) {
    let server = store.server(&[]);
    let with = async |same: &str| server.post(&format!("{KEEP}&same={same}&maxwait=0")).await;
    let (key, _) = run(&with("7").await);
    assert_eq!((with("8").await.status, with("7").await.status), (422, 408));
    assert_eq!(end(&server, "finish?result=null", &key).await, 204);
    assert_eq!((with("8").await.status, replayed(&with("7").await)), (422, "null"));
}

/// A client has made the key of another client out of its own. An id with the tag of the server's locker would name the
/// server as the holder.
async fn keys_have_nothing_in_common(store: &Store) {
    keys_of_one_server_have_nothing_in_common(&store.server(&[])).await;
}

#[tokio::test]
async fn keys_have_nothing_in_common_in_memory() {
    keys_of_one_server_have_nothing_in_common(&Server::start(&[])).await;
}

async fn keys_of_one_server_have_nothing_in_common(server: &Server) {
    let mut keys = Vec::new();
    for name in ["a", "b", "c"] {
        keys.push(run(&server.post(&format!("/v1/once/{name}/begin?keep=1000")).await).0);
    }
    for part in [8..16, 16..32] {
        let parts: std::collections::HashSet<_> = keys.iter().map(|key| &key[part.clone()]).collect();
        assert_eq!(parts.len(), keys.len(), "{keys:?}");
    }
    let low = |key: &String| u64::from_str_radix(&key[16..32], 16).unwrap();
    let steps = [low(&keys[1]).wrapping_sub(low(&keys[0])), low(&keys[2]).wrapping_sub(low(&keys[1]))];
    assert_ne!(steps[0], steps[1], "{keys:?}");
    let state: serde_json::Value = serde_json::from_str(&server.get("/v1/once/a").await.body).unwrap();
    assert_eq!(state["holders"][0].get("note"), None, "{state}");
}

/// No test lasts until the end of such a slot, but for one minute a year.
async fn slot_sees_one_run(store: &Store) {
    let server = store.server(&[]);
    let begin = format!("/v1/once/a/begin?every={}&from=3600000", 366 * 24 * 60 * 60 * 1000_u64);
    let first = server.post(&begin).await;
    let (key, _) = run(&first);
    let slot = humantime::parse_rfc3339(first.header("locker-slot").unwrap()).unwrap();
    let hours = slot.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() % (366 * 24 * 60 * 60);
    assert_eq!((hours, first.header("locker-missed")), (60 * 60, Some("0")));
    assert_eq!(end(&server, "finish", &key).await, 204);
    assert_eq!(server.post(&begin).await.status, 204);
    let locker = store.locker().await;
    let per = locker.once("a").per(Duration::from_hours(366 * 24)).from(Duration::from_hours(1));
    assert_eq!(per.run(async |_: &Guard| Ok::<_, locker::Error>(())).await.unwrap(), None);
}

async fn rust_programs_share_records(store: &Store) {
    let (server, locker) = (store.server(&[]), store.locker().await);
    let here = async |locker: &Locker, name: &str, result: &str| {
        let once = locker.once(name).keep(Duration::from_hours(1)).max_size(16).same(&[&"x"]);
        once.run(async |_: &Guard| Ok::<_, locker::Error>(result.to_owned())).await
    };
    assert_eq!(here(&locker, "a", "of rust").await.unwrap(), "of rust");
    assert_eq!(replayed(&server.post(&format!("{KEEP}&same=x")).await), r#""of rust""#);
    assert_eq!(server.post(&format!("{KEEP}&same=y")).await.status, 422);
    let begin = "/v1/once/b/begin?keep=3600000&same=x";
    let (key, _) = run(&server.post(begin).await);
    let finish = format!("/v1/once/b/finish?key={key}&result=%22of%20http%22");
    assert_eq!(server.post(&finish).await.status, 204);
    assert_eq!(here(&locker, "b", "of rust").await.unwrap(), "of http");
    here(&locker, "c", "longer than it may be").await.unwrap();
    let unkept = server.post("/v1/once/c/begin?keep=3600000").await;
    assert_eq!(unkept.status, 409);
    assert!(unkept.body.contains("its result of 23 bytes was not kept"), "{}", unkept.body);
}

/// It is over when the reply of the store comes.
async fn shortest_lease_gets_its_answer(store: &Store) {
    let server = store.server(&[]);
    let first = run(&server.post(&format!("{KEEP}&expires=1")).await);
    let second = run(&in_time("the end of the lease", server.post(KEEP)).await);
    assert!(first.1 < second.1, "{first:?} {second:?}");
}

#[tokio::test]
async fn result_is_for_the_waiting_calls_alone_if_nothing_is_kept() {
    let server = Server::start(&[]);
    let begin = "/v1/once/a/begin?keep=0";
    let (key, _) = run(&server.post(begin).await);
    let waits = server.queue(begin, "once/a", 0).await;
    assert_eq!(end(&server, "finish?result=7", &key).await, 204);
    assert_eq!(replayed(&in_time("the result", waits).await.unwrap()), "7");
    run(&server.post(begin).await);
}

#[tokio::test]
async fn client_that_hangs_up_while_it_waits_begins_nothing() {
    let server = Server::start(&[]);
    let (key, _) = run(&server.post(KEEP).await);
    let waits = server.queue(KEEP, "once/a", 0).await;
    waits.abort();
    server.until_waiting("once/a", 0).await;
    assert_eq!(end(&server, "fail", &key).await, 204);
    run(&server.post(&format!("{KEEP}&maxwait=0")).await);
}

#[tokio::test]
async fn runs_are_counted() {
    let server = Server::start(&[]);
    let (key, _) = run(&server.post(KEEP).await);
    assert_eq!(server.post(&format!("{KEEP}&maxwait=0")).await.status, 408);
    assert_eq!(end(&server, "finish?result=7", &key).await, 204);
    replayed(&server.post(KEEP).await);
    let stats: serde_json::Value = serde_json::from_str(&server.get("/v1/once/a/stats").await.body).unwrap();
    let counts =
        ["acquired", "reacquired", "released", "timed_out", "expired"].map(|name| stats[name].as_u64());
    assert_eq!(counts, [1, 1, 1, 1, 0].map(Some), "{stats}");
}

#[tokio::test]
async fn wrong_parameters_are_refused_and_begin_nothing() {
    let server = Server::start(&[]);
    let long = format!("finish?key=k&result=%22{}%22", "x".repeat(6143));
    let deep = format!("finish?key=k&result={}{}", "[".repeat(1000), "]".repeat(1000));
    for (call, status, reason) in [
        ("begin", 400, "every or keep is missing"),
        ("begin?every=1000&keep=1", 400, "every and keep are both given"),
        ("begin?keep=1&key=mine", 400, "key is not for begin"),
        ("begin?every=500", 400, "every 500ms is out of range: give 1s to 366d"),
        ("begin?every=3600000&early=2400000", 400, "early 40m is more than half of every 1h"),
        ("begin?keep=1&from=1", 400, "from needs every"),
        ("begin?keep=1&early=1", 400, "early needs every"),
        ("begin?every=1000&same=1", 400, "same needs keep"),
        ("begin?keep=0&after_crash=refuse", 400, "forgets a crash at once"),
        ("begin?keep=1&after_crash=maybe", 400, "give repeat or refuse"),
        ("begin?keep=1&expires=0", 400, "expires is 0"),
        ("begin?keep=-1", 400, "keep is -1"),
        ("finish", 400, "key is missing"),
        ("begin?keep=1&expires=0&id=x", 400, "a run always ends"),
        ("finish?id=x", 400, "give the key that begin returned"),
        ("finish?key=k&result=%7B", 400, "result is no JSON text that all can read"),
        ("finish?key=k&result=1e999999", 400, "result is no JSON text that all can read"),
        ("finish?key=k&result=%22%5Cud800%22", 400, "result is no JSON text that all can read"),
        (&deep, 400, "result is no JSON text that all can read"),
        (&long, 413, "the result has 6145 bytes, at most 6144 are kept: finish without it"),
        ("finish?key=k", 409, "holds nothing"),
        ("finish?key=0123456789abcdef0123456789abcdef", 409, "holds nothing"),
        ("finish?key=0123456789abcdef0123456789abcdef.-1", 409, "holds nothing"),
        ("finish?key=0123456789abcdef0123456789abcdef.99999999999999999999", 409, "holds nothing"),
        ("fail?key=0123456789abcdef0123456789abcdef.1", 409, "holds nothing"),
        ("renew?key=0123456789abcdef0123456789abcdef.1&expires=0", 400, "expires is 0"),
    ] {
        let refused = server.post(&format!("/v1/once/a/{call}")).await;
        assert!(refused.status == status && refused.body.contains(reason), "{call}: {refused:?}");
    }
    assert_eq!(server.get("/v1").await.body, "[]");
    let python = Python::run(&["runs_are_for_http", &server.zmq()]);
    assert!(python.contains("begin is for HTTP"), "{python}");
}

/// The longest one that is kept, in a form.
#[tokio::test]
async fn results_have_up_to_six_kibibytes() {
    let server = Server::start(&[]);
    let (key, _) = run(&server.post(KEEP).await);
    let result = format!("\"{}\"", "x".repeat(6142));
    assert_eq!(finish(&server, &key, &result).await, 204);
    assert_eq!(replayed(&server.post(KEEP).await), result);
}
