//! Each action of the API, row by row.

use crate::support::{Server, answer, client};
use locker_harness::until;
use serde_json::Value;

#[tokio::test]
async fn a_token_bucket_admits_its_size_per_interval() {
    let server = Server::start(&[]);
    let path = "/v1/tokenbucket/b/acquire?size=3&interval=3600000";
    for _ in 0..3 {
        assert_eq!(server.post(path).await.status, 204);
    }
    for maxwait in [0, 5] {
        let refused = server.post(&format!("{path}&maxwait={maxwait}")).await;
        assert_eq!(refused.status, 408);
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3600).contains(&after), "{after}");
    }
    let parked = server.get("/v1/tokenbucket/b/acquire?size=0&interval=3600000&maxwait=5").await;
    assert_eq!((parked.status, parked.header("retry-after")), (408, None));
}

#[tokio::test]
async fn a_token_bucket_is_refilled() {
    let server = Server::start(&[]);
    let started = std::time::Instant::now();
    for _ in 0..7 {
        assert_eq!(server.get("/v1/tokenbucket/b/acquire?size=2&interval=100").await.status, 204);
    }
    assert!(started.elapsed() >= std::time::Duration::from_millis(300), "three refills");
}

#[tokio::test]
async fn a_smaller_bucket_counts_what_was_taken() {
    let server = Server::start(&[]);
    let take = async |size| {
        server.get(&format!("/v1/tokenbucket/b/acquire?size={size}&interval=3600000&maxwait=0")).await.status
    };
    assert_eq!(
        [take(5).await, take(5).await, take(2).await, take(3).await, take(3).await],
        [204, 204, 408, 204, 408]
    );
}

#[tokio::test]
async fn semaphore_grants_and_releases_by_key() {
    let server = Server::start(&[]);
    let held = server.post("/v1/semaphore/s/acquire?size=2").await;
    assert_eq!((held.status, held.body.len()), (200, 36), "{}", held.body);
    assert_eq!((&held.body[14..15], held.body.matches('-').count()), ("4", 4), "a UUID of version 4");
    let fence: u64 = held.header("locker-fence").unwrap().parse().unwrap();
    let other = server.post("/v1/semaphore/s/acquire?size=2&key=mine").await;
    assert_eq!((other.status, other.body.as_str()), (200, "mine"));
    assert!(other.header("locker-fence").unwrap().parse::<u64>().unwrap() > fence);
    assert_eq!(server.post("/v1/semaphore/s/acquire?size=2&maxwait=0").await.status, 408);
    let release = format!("/v1/semaphore/s/release?key={}", held.body);
    assert_eq!(server.post(&release).await.status, 204);
    assert_eq!(server.post(&release).await.status, 409);
    assert_eq!(server.post("/v1/semaphore/s/acquire?size=2&maxwait=0").await.status, 200);
}

#[tokio::test]
async fn held_key_takes_no_second_slot() {
    let server = Server::start(&[]);
    let first = server.post("/v1/semaphore/s/acquire?size=2&key=k&expires=50000").await;
    let again = server.post("/v1/semaphore/s/acquire?size=2&key=k&expires=3600000&maxwait=0").await;
    assert_eq!((again.status, again.body.as_str()), (200, "k"));
    assert_eq!(first.header("locker-fence"), again.header("locker-fence"));
    let state: Value = serde_json::from_str(&server.get("/v1/semaphore/s").await.body).unwrap();
    assert_eq!(state["holders"].as_array().unwrap().len(), 1);
    assert!(state["holders"][0]["time_left"].as_u64().unwrap() <= 50_000);
    assert_eq!(server.post("/v1/semaphore/s/acquire?size=2&maxwait=0").await.status, 200);
}

#[tokio::test]
async fn holds_expire_unless_renewed_or_endless() {
    let server = Server::start(&[]);
    let acquire = async |query| server.post(&format!("/v1/semaphore/s/acquire?size=3&{query}")).await.status;
    let state = async || serde_json::from_str::<Value>(&server.get("/v1/semaphore/s").await.body).unwrap();
    assert_eq!(acquire("key=renewed&expires=60000").await, 200);
    assert_eq!(server.post("/v1/semaphore/s/renew?key=renewed&expires=3600000").await.status, 204);
    let renewed = state().await;
    assert!(renewed["holders"][0]["time_left"].as_u64().unwrap() > 3_000_000, "{renewed}");
    assert_eq!(acquire("key=ever&expires=0").await, 200);
    assert_eq!(acquire("key=short&expires=80").await, 200);
    assert_eq!(acquire("key=next").await, 200, "waits for the one that expires");
    assert_eq!(server.post("/v1/semaphore/s/release?key=short").await.status, 409);
    assert_eq!(server.post("/v1/semaphore/s/renew?key=short").await.status, 409);
    assert_eq!(server.post("/v1/semaphore/s/release?key=renewed").await.status, 204);
    let state = state().await;
    assert_eq!(state["holders"][0]["time_left"], Value::Null, "{state}");
}

#[tokio::test]
async fn an_event_happens_once() {
    let server = Server::start(&["--event-ttl", "10y"]);
    assert_eq!(server.get("/v1/event/e/wait?maxwait=0").await.status, 408);
    assert_eq!(server.get("/v1/event/e/wait?maxwait=20").await.status, 408);
    assert_eq!(server.get("/v1/event/e/send").await.status, 204);
    assert_eq!(server.get("/v1/event/e/send?message=late").await.status, 409);
    let latched = server.get("/v1/event/e/wait").await;
    assert_eq!((latched.status, latched.body.as_str(), latched.header("content-type")), (204, "", None));
    assert_eq!(server.get("/v1/event/told/send?message=wake+up%21").await.status, 204);
    let told = server.get("/v1/event/told/wait").await;
    assert_eq!((told.status, told.body.as_str()), (200, "wake up!"));
    assert_eq!(server.get("/v1/event/empty/send?message=").await.status, 204);
    assert_eq!(server.get("/v1/event/empty/wait").await.status, 204);
}

#[tokio::test]
async fn a_sent_event_is_forgotten_in_time() {
    let server = Server::start(&["--event-ttl", "50ms"]);
    assert_eq!(server.post("/v1/event/e/send").await.status, 204);
    crate::support::until("it can be sent again", async || {
        server.post("/v1/event/e/send").await.status == 204
    })
    .await;
}

#[tokio::test]
async fn a_watchdog_expires_when_it_is_not_kicked() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/v1/watchdog/w/wait?maxwait=10").await.status, 408, "60 s from the first wait on");
    assert_eq!(server.get("/v1/watchdog/w/kick?expires=60").await.status, 204);
    assert_eq!(server.get("/v1/watchdog/w/wait").await.status, 204);
    assert_eq!(server.get("/v1/watchdog/w/wait?maxwait=0").await.status, 204, "it stays expired");
    assert_eq!(server.get("/v1/watchdog/w/kick").await.status, 204);
    assert_eq!(server.get("/v1/watchdog/w/wait?maxwait=0").await.status, 408);
}

#[tokio::test]
async fn names_are_shown_listed_and_deleted() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/v1").await.body, "[]");
    assert_eq!(server.get("/v1/semaphore/s").await.status, 404);
    assert_eq!(server.delete("/v1/semaphore/s").await.status, 404);
    let held = server.post("/v1/semaphore/s/acquire?size=5&key=secret").await;
    let state = server.get("/v1/semaphore/s").await;
    assert_eq!((state.status, state.header("content-type")), (200, Some("application/json")));
    assert!(!state.body.contains("secret"), "keys are not shown");
    let state: Value = serde_json::from_str(&state.body).unwrap();
    assert_eq!((&state["size"], &state["used"], &state["waiting"]), (&5.into(), &1.into(), &0.into()));
    let holder = &state["holders"][0];
    assert_eq!(holder["fence"].to_string(), held.header("locker-fence").unwrap());
    assert!(holder["age"].is_u64() && holder["time_left"].as_u64().unwrap() <= 60_000);
    assert_eq!(server.get("/v1").await.body, r#"[{"kind":"semaphore","name":"s","key":"semaphore:s"}]"#);
    assert_eq!(server.delete("/v1/semaphore/s").await.status, 204);
    assert_eq!(server.post("/v1/semaphore/s/release?key=secret").await.status, 409);
    assert_eq!(server.get("/v1").await.body, "[]");
}

/// The end of a request, after which the server closes the connection.
const CLOSE: &str = "Connection: close\r\n\r\n";

/// `curl -X DELETE -d fence=17` deleted the name, with the holds granted since.
#[tokio::test]
async fn deletion_with_a_body_is_refused() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/lock/a/acquire?key=k&expires=600000").await.status, 200);
    let delete = |path: &str, rest: &str| format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n{rest}");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let long = "x".repeat(20_000);
    for rest in [
        &format!("{form}Content-Length: 8\r\n\r\nfence=17"),
        &format!("{form}Transfer-Encoding: chunked\r\n\r\n8\r\nfence=17\r\n0\r\n\r\n"),
        "Content-Length: 2\r\n\r\n{}",
        &format!("Content-Length: 20000\r\n\r\n{long}"),
    ] {
        let answers = server.raw((delete("/v1/lock/a", rest) + &delete("/v1/lock/b", CLOSE)).as_bytes());
        assert!(answers.starts_with("HTTP/1.1 400 "), "{rest}: {answers}");
        assert!(answers.contains("parameters of DELETE belong into the query"), "{rest}: {answers}");
        let is_next_answered = answers.contains("HTTP/1.1 404 ");
        assert_eq!(is_next_answered, !rest.contains(&long), "{rest}: {answers}");
    }
    assert_eq!(server.get("/v1/lock/a").await.status, 200, "the name is still in use");
    for rest in ["Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "\r\n"] {
        assert_eq!(server.post("/v1/event/e/send").await.status, 204);
        let answers = server.raw((delete("/v1/event/e", rest) + &delete("/v1/lock/b", CLOSE)).as_bytes());
        assert!(
            answers.starts_with("HTTP/1.1 204 ") && answers.contains("HTTP/1.1 404 "),
            "{rest}: {answers}"
        );
    }
}

#[tokio::test]
async fn holds_end_up_to_a_fence_and_waiters_go_on() {
    let server = Server::start(&[]);
    for (name, mode) in [("/v1/lock/a", ""), ("/v1/semaphore/a", ""), ("/v1/rwlock/a", "&mode=write")] {
        let first = server.post(&format!("{name}/acquire?key=one&expires=600000{mode}")).await;
        let first: u64 = first.header("locker-fence").unwrap().parse().unwrap();
        let evict = async |fence: u64| server.delete(&format!("{name}?fence={fence}")).await.status;
        let waiting = format!("{name}/acquire?key=two&expires=600000{mode}");
        let waiting = async { server.post(&waiting).await };
        let evicted = async {
            until("a waiter", async || server.get(name).await.body.contains(r#""waiting":1"#)).await;
            assert_eq!([evict(first - 1).await, evict(first).await], [409, 204]);
        };
        let (second, ()) = tokio::join!(waiting, evicted);
        let fence: u64 = second.header("locker-fence").unwrap().parse().unwrap();
        assert!(second.status == 200 && fence > first);
        assert_eq!(evict(first).await, 409, "the next holder stays");
        assert_eq!(server.post(&format!("{name}/release?key=one")).await.status, 409);
        assert_eq!(server.post(&format!("{name}/release?key=two")).await.status, 204);
    }
}

#[tokio::test]
async fn kinds_are_independent() {
    let server = Server::start(&[]);
    for path in ["tokenbucket/n/acquire", "semaphore/n/acquire", "event/n/send", "watchdog/n/kick"] {
        assert!(server.post(&format!("/v1/{path}")).await.status < 300);
    }
    assert_eq!(server.delete("/v1/event/n").await.status, 204);
    assert_eq!(server.get("/v1").await.body.matches("\"n\"").count(), 3);
}

#[tokio::test]
async fn idle_names_are_forgotten() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/v1/tokenbucket/b/acquire?interval=10").await.status, 204);
    assert_eq!(server.get("/v1/semaphore/s/acquire?expires=10").await.status, 200);
    assert_eq!(server.get("/v1/event/e/wait?maxwait=0").await.status, 408);
    crate::support::until("no name is in use", async || server.get("/v1").await.body == "[]").await;
}

#[tokio::test]
async fn paths_of_the_newest_bouncer_work() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/tokenbucket/b/acquire?id=job-7&maxWait=5").await.status, 204);
    let held = server.get("/semaphore/s/acquire?ID=job%0A8&KEY=k").await;
    assert_eq!((held.status, held.body.as_str()), (200, "k"));
    assert_eq!(server.get("/semaphore/s/release?key=k").await.status, 204);
    assert_eq!(server.get("/event/e/send").await.status, 204);
    assert_eq!(server.get("/watchdog/w/kick").await.status, 204);
    let log = server.errors();
    assert!(log.contains(r#"kind="tokenbucket" action="acquire" name="b" id="job-7" status=204"#), "{log}");
    assert!(log.contains(r#"kind="semaphore" action="acquire" name="s" id="job\n8" status=200"#), "{log}");
    assert!(!log.contains("key"), "{log}");
}

#[tokio::test]
async fn parameters_come_in_the_query_or_in_a_form() {
    let server = Server::start(&[]);
    let post = async |query: &str, form: &str| {
        let request = client().post(server.url(&format!("/v1/semaphore/s/acquire{query}")));
        let kind = "application/x-www-form-urlencoded; charset=utf-8";
        answer(request.header("content-type", kind).body(form.to_owned())).await
    };
    assert_eq!(post("", "size=5&key=one").await.body, "one");
    assert_eq!(post("?size=5", "key=two").await.body, "two");
    assert_eq!(post("?size=5", "size=5").await.status, 400);
    let request = client().post(server.url("/v1/semaphore/s/acquire?size=5&key=three")).body("");
    assert_eq!(answer(request).await.body, "three");
    let request = client().get(server.url("/v1/semaphore/s/acquire?size=5&key=four")).body("key=ignored");
    assert_eq!(answer(request).await.body, "four");
    let json =
        client().post(server.url("/v1/semaphore/s/acquire")).header("content-type", "application/json");
    assert_eq!(answer(json.body("{}")).await.status, 415);
}

#[tokio::test]
async fn answers_have_no_store() {
    let server = Server::start(&[]);
    for path in [
        "/v1/event/e/send",
        "/v1/event/e/wait",
        "/v1/event/e",
        "/v1/nothing",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/event/e/wait?x",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let text = answer.header("content-type").is_none_or(|kind| kind == "text/plain; charset=utf-8");
        assert!(text || answer.header("content-type") == Some("application/json"), "{path}");
        assert_eq!(answer.header("x-content-type-options").is_some(), answer.status != 204, "{path}");
    }
}

#[tokio::test]
async fn server_paths_are_answered() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    server.get("/v1/event/e/wait?maxwait=1").await;
    let metrics = server.get("/metrics").await.body;
    assert!(
        metrics.contains(r#"locker_requests_total{call="event/wait",status="408",transport="http"} 1"#),
        "{metrics}"
    );
    let document: Value = serde_json::from_str(&server.get("/openapi.json").await.body).unwrap();
    assert!(document["paths"]["/v1/semaphore/{name}/acquire"]["post"].is_object());
}

#[tokio::test]
async fn methods_that_a_path_does_not_have_are_405() {
    let server = Server::start(&[]);
    for (method, path, allow) in [
        ("HEAD", "/v1/event/e/send", "GET, POST"),
        ("PUT", "/v1/event/e/send", "GET, POST"),
        ("OPTIONS", "/v1/event/e/send", "GET, POST"),
        ("DELETE", "/v1/event/e/send", "GET, POST"),
        ("POST", "/v1/event/e", "GET, DELETE"),
        ("HEAD", "/v1/event/e", "GET, DELETE"),
        ("POST", "/v1", "GET"),
        ("HEAD", "/healthz", "GET"),
        ("POST", "/readyz", "GET"),
        ("POST", "/metrics", "GET"),
        ("DELETE", "/openapi.json", "GET"),
    ] {
        let request = client().request(method.parse().unwrap(), server.url(path));
        let answer = answer(request).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
    assert_eq!(server.get("/v1/event/e/wait?maxwait=0").await.status, 408, "HEAD has sent nothing");
}
