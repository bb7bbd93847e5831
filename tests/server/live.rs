//! The streams of the page.

use crate::support::{Server, answer, client, in_time, rest, until};
use locker_harness::RedisServer;
use serde_json::{Value, json};
use std::{io::Write, net::TcpStream, time::Duration};

/// A stream of events.
struct Stream {
    response: reqwest::Response,
    text: String,
}

impl Stream {
    async fn open(server: &Server, query: &str) -> Self {
        let response = client().get(server.url(&format!("/live?{query}"))).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{query}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// Returns the next event, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (name, data) = event.split_once('\n').unwrap();
                let name = name.strip_prefix("event: ").unwrap().to_owned();
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                let rest = rest.to_owned();
                self.text = rest;
                return Some((name, data));
            }
            let piece = in_time("a piece of the stream", self.response.chunk()).await.unwrap()?;
            self.text += std::str::from_utf8(&piece).unwrap();
        }
    }

    /// Returns the next event of this name that `is_expected`.
    async fn until(&mut self, name: &str, mut is_expected: impl FnMut(&Value) -> bool) -> Value {
        let found = async {
            loop {
                let (event, data) = self.next().await.expect("the stream goes on");
                if event == name && is_expected(&data) {
                    return data;
                }
            }
        };
        in_time(name, found).await
    }
}

fn memory_and_redis() -> Vec<(Server, Option<RedisServer>)> {
    let mut servers = vec![(Server::start(&[]), None)];
    if let Some(redis) = RedisServer::start() {
        servers.push((Server::start(&["--store", &redis.url()]), Some(redis)));
    }
    servers
}

fn row<'a>(rows: &'a Value, key: &str) -> Option<&'a Value> {
    rows.as_array().unwrap().iter().find(|row| row["key"] == key)
}

/// Puts the changes into the rows.
fn apply(rows: &mut Value, changes: &Value) {
    let rows = rows.as_array_mut().unwrap();
    rows.retain(|row| !changes["gone"].as_array().unwrap().contains(&row["key"]));
    for put in changes["put"].as_array().unwrap() {
        match rows.iter_mut().find(|row| row["key"] == put["key"]) {
            Some(row) => *row = put.clone(),
            None => rows.push(put.clone()),
        }
    }
    if let Some(order) = changes["order"].as_array() {
        rows.sort_by_key(|row| order.iter().position(|key| *key == row["key"]));
        assert_eq!(rows.len(), order.len());
    }
}

#[tokio::test]
async fn stream_follows_the_names() {
    for (server, redis) in memory_and_redis() {
        let idle = server.post("/v1/semaphore/db/acquire?size=3&key=k&expires=600000").await;
        assert_eq!(idle.status, 200);
        let mut stream = Stream::open(&server, "view=names").await;
        let (name, past) = stream.next().await.unwrap();
        assert_eq!((name.as_str(), &past["every_ms"]), ("past", &json!(1000)));
        let (name, data) = stream.next().await.unwrap();
        assert_eq!(name, "rows");
        let mut rows = data["rows"].clone();
        let found = row(&rows, "semaphore:db").unwrap();
        let facts =
            ["kind", "name", "function", "used", "size", "waiting", "longest_ms"].map(|name| &found[name]);
        assert_eq!(json!(facts), json!(["semaphore", "db", null, 1, 3, 0, null]));
        assert!((500_000..=600_000).contains(&found["left_ms"].as_u64().unwrap()), "{found}");
        assert!(found["age_ms"].as_u64().unwrap() < 60_000, "{found}");
        let totals = stream.until("totals", |_| true).await;
        let facts =
            ["names", "holds", "waiting", "matching", "shown"].map(|name| totals[name].as_u64().unwrap());
        assert_eq!(facts, [1, 1, 0, 1, 1]);

        let held = server.post("/v1/lock/a/acquire?key=k&expires=600000").await;
        let waiter = server.queue("/v1/lock/a/acquire?key=w", "lock/a", 0).await;
        let mut most_put = 0;
        let mut follow = async |stream: &mut Stream, is_expected: &dyn Fn(&Value) -> bool| {
            while !is_expected(&rows) {
                let changes = stream.until("changes", |_| true).await;
                most_put = most_put.max(changes["put"].as_array().unwrap().len());
                apply(&mut rows, &changes);
            }
            rows.clone()
        };
        let waits = |rows: &Value| row(rows, "lock:a").is_some_and(|row| row["waiting"] == 1);
        let seen = follow(&mut stream, &waits).await;
        assert_eq!(seen[0]["key"], "lock:a", "those that others wait for come first");
        assert!(seen[0]["longest_ms"].is_u64() && seen[0]["used"] == 1 && seen[0]["size"] == 1, "{seen}");
        assert_eq!(server.post("/v1/lock/a/release?key=k").await.status, 204);
        assert!(waiter.await.unwrap().header("locker-fence") > held.header("locker-fence"));
        follow(&mut stream, &|rows| row(rows, "lock:a").is_some_and(|row| row["waiting"] == 0)).await;
        assert_eq!(server.delete("/v1/lock/a").await.status, 204);
        follow(&mut stream, &|rows| row(rows, "lock:a").is_none()).await;
        assert_eq!(most_put, 1, "a row that has not changed is not sent again");
        let totals = stream.until("totals", |totals| totals["names"] == 1).await;
        assert_eq!(totals["store"], if redis.is_some() { "redis" } else { "memory" });
        assert_eq!(totals["round_trip_ms"].is_null(), redis.is_none(), "{totals}");
    }
}

#[tokio::test]
async fn views_filter_and_order() {
    let server = Server::start(&[]);
    for name in ["b", "ab", "a"] {
        assert_eq!(server.post(&format!("/v1/lock/{name}/acquire?key=k")).await.status, 200);
    }
    for number in 0..300 {
        assert_eq!(
            server.post(&format!("/v1/tokenbucket/t{number:03}/acquire?interval=600000")).await.status,
            204
        );
    }
    // The first overview is shown while it is being made.
    let mut first = Stream::open(&server, "view=names").await;
    first.until("totals", |totals| totals["names"] == 303).await;
    for (query, names, matching) in [
        ("kind=lock&order=name", &["a", "ab", "b"][..], 3),
        ("kind=lock&order=age", &["b", "ab", "a"], 3),
        ("prefix=a&order=name", &["a", "ab"], 2),
        ("kind=rwlock", &[], 0),
    ] {
        let mut stream = Stream::open(&server, &format!("view=names&{query}")).await;
        let rows = stream.until("rows", |_| true).await;
        let found: Vec<_> =
            rows["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{query}");
        let totals = stream.until("totals", |_| true).await;
        assert_eq!((&totals["names"], &totals["matching"]), (&json!(303), &json!(matching)), "{query}");
    }
    let mut stream = Stream::open(&server, "view=names&kind=tokenbucket&order=name").await;
    let rows = stream.until("rows", |_| true).await;
    assert_eq!(rows["rows"].as_array().unwrap().len(), 200);
    assert_eq!(rows["rows"][199]["name"], "t199");
    let totals = stream.until("totals", |_| true).await;
    assert_eq!((&totals["matching"], &totals["shown"]), (&json!(300), &json!(200)));
}

#[tokio::test]
async fn wrong_parameters_of_live_are_named() {
    let server = Server::start(&[]);
    for (query, named) in [
        ("", "view is missing"),
        ("view=all", "view is missing or unknown"),
        ("view=names&key=a", "key is for"),
        ("view=key", "key is missing"),
        ("view=key&key=a&prefix=b", "prefix is for"),
        ("view=names&kind=look", "kind is"),
        ("view=names&order=size", "order is"),
        ("view=names&limit=1", "unknown parameter"),
        ("view=names&view=names", "view is given twice"),
    ] {
        let refused = server.get(&format!("/live?{query}")).await;
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.body.contains(named), "{query}: {}", refused.body);
    }
}

#[tokio::test]
async fn view_of_a_key_explains_it() {
    for (server, _redis) in memory_and_redis() {
        for kind in ["lock", "leader"] {
            let held = server.post(&format!("/v1/{kind}/a%20b/acquire?key=k&expires=600000")).await;
            let fence: u64 = held.header("locker-fence").unwrap().parse().unwrap();
            let mut stream = Stream::open(&server, &format!("view=key&key={kind}:a%20b")).await;
            let seen = stream.until("key", |_| true).await;
            assert_eq!(seen["explained"]["holders"][0]["fence"], json!(fence));
            let start = format!("{kind}:a b\nheld by ");
            assert!(seen["text"].as_str().unwrap().starts_with(&start), "{seen}");
            assert_eq!((&seen["deadlock"], &seen["can_release"]), (&json!(false), &json!(true)));
            assert_eq!(seen["release"]["method"], "DELETE");
            let path = seen["release"]["path"].as_str().unwrap().to_owned();
            assert!(path.ends_with(&format!("?fence={fence}")), "{path}");
            assert_eq!(server.delete(&path).await.status, 204, "{path}");
            let seen = stream.until("key", |seen| seen["explained"]["holders"] == json!([])).await;
            assert_eq!((&seen["can_release"], &seen["release"]), (&json!(false), &Value::Null));
        }
    }
}

#[tokio::test]
async fn leaders_are_shown_as_locks() {
    let server = Server::start(&[]);
    assert_eq!(server.post("/v1/lock/a/acquire?key=k").await.status, 200);
    assert_eq!(server.post("/v1/leader/a/acquire?key=k").await.status, 200);
    let mut stream = Stream::open(&server, "view=names&kind=leader").await;
    let seen = stream.until("rows", |_| true).await;
    let [leader] = &seen["rows"].as_array().unwrap()[..] else { panic!("{seen}") };
    let numbers = ["used", "size", "waiting"].map(|name| &leader[name]);
    assert_eq!((&leader["kind"], numbers), (&json!("leader"), [&json!(1), &json!(1), &json!(0)]));
}

/// A token for one prefix showed the holders of all others.
#[tokio::test]
async fn key_beyond_the_prefix_is_unknown() {
    let server = Server::start(&["--prefix", "app/"]);
    assert_eq!(server.post("/v1/lock/a/acquire?key=k").await.status, 200);
    for key in ["lock:a", "other/lock:a", "app/a"] {
        let explained = server.get(&format!("/v1/explain?key={key}")).await;
        let response = client().get(server.url(&format!("/live?view=key&key={key}"))).send().await.unwrap();
        assert_eq!((explained.status, response.status().as_u16()), (404, 404), "{key}");
        assert_eq!(response.text().await.unwrap(), explained.body);
    }
    let seen = Stream::open(&server, "view=key&key=app/lock:a").await.until("key", |_| true).await;
    assert_eq!(seen["explained"]["key"], "app/lock:a");
}

/// A semaphore may have 10,000 holders, and each batch had all of them, twice.
#[tokio::test]
async fn view_of_a_key_has_the_first_holders() {
    let server = Server::start(&[]);
    let acquire = |number| {
        let path = format!("/v1/semaphore/s/acquire?size=150&key={number}");
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    };
    let last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answers = server.raw(((0..150).map(acquire).collect::<String>() + last).as_bytes());
    let fences: Vec<u64> =
        answers.lines().filter_map(|line| line.strip_prefix("locker-fence: ")?.parse().ok()).collect();
    assert_eq!(fences.len(), 150);
    let mut stream = Stream::open(&server, "view=key&key=semaphore:s").await;
    let seen = stream.until("key", |_| true).await;
    let holders = seen["explained"]["holders"].as_array().unwrap();
    let shown: Vec<u64> = holders.iter().map(|holder| holder["fence"].as_u64().unwrap()).collect();
    assert_eq!((&shown[..], &seen["holders_in_all"]), (&fences[..100], &json!(150)));
    assert_eq!(seen["ages_ms"].as_array().unwrap().len(), 100);
    let text = seen["text"].as_str().unwrap();
    assert_eq!(text.matches("held by an unknown holder").count(), 100, "{text}");
    assert!(text.ends_with("\nheld by 50 more"), "{text}");
    let path = seen["release"]["path"].as_str().unwrap();
    assert!(path.ends_with(&format!("?fence={}", fences[149])), "{path}");
}

/// A browser makes another path of such a name, also if it is percent-encoded.
#[tokio::test]
async fn names_that_browsers_change_have_no_release() {
    let server = Server::start(&[]);
    for (name, encoded, has_path) in
        [(".", "%2E", false), ("..", "%2E%2E", false), ("...", "%2E%2E%2E", true)]
    {
        let path = format!("/v1/lock/{encoded}/acquire?key=k&expires=600000");
        let answer = server
            .raw(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let mut stream = Stream::open(&server, &format!("view=key&key=lock:{name}")).await;
        let seen = stream.until("key", |_| true).await;
        assert_eq!(seen["explained"]["holders"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&seen["can_release"], seen["release"].is_object()),
            (&json!(has_path), has_path),
            "{name}"
        );
    }
}

/// The first events said that no name is in use.
#[tokio::test]
async fn outage_at_the_start_shows_no_empty_store() {
    let Some(mut redis) = RedisServer::start() else { return };
    let server = Server::start(&["--store", &redis.url()]);
    redis.kill();
    let mut stream = Stream::open(&server, "view=names").await;
    assert_eq!(stream.next().await.unwrap().0, "past");
    for _ in 0..2 {
        assert_eq!(stream.next().await.unwrap().0, "error");
    }
    redis.restart();
    let found = async {
        loop {
            let (name, _) = stream.next().await.expect("the stream goes on");
            if name != "error" {
                return name;
            }
        }
    };
    assert_eq!(in_time("what comes after the errors", found).await, "rows");
    let (name, totals) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), totals["seen_ms_ago"].is_u64()), ("totals", true), "{totals}");
}

#[tokio::test]
async fn stream_beyond_the_cap_is_refused() {
    let server = Server::start(&[]);
    let mut streams = Vec::new();
    for number in 0..64 {
        let view = if number % 2 == 0 { "view=names" } else { "view=key&key=lock:a" };
        streams.push(Stream::open(&server, view).await);
    }
    let refused = server.get("/live?view=names").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("the limit is 64"), "{}", refused.body);
    drop(streams.pop());
    until("room for another stream", async || {
        let response = client().get(server.url("/live?view=names")).send().await.unwrap();
        response.status().as_u16() == 200
    })
    .await;
}

#[tokio::test]
async fn shutdown_ends_the_streams() {
    let mut server = Server::start(&[]);
    let mut streams = Vec::new();
    for view in ["view=names", "view=key&key=lock:a"] {
        let mut stream = Stream::open(&server, view).await;
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let started = std::time::Instant::now();
    server.signal(rustix::process::Signal::TERM);
    for stream in &mut streams {
        while stream.next().await.is_some() {}
    }
    assert_eq!(server.ended().code(), Some(0));
    assert!(started.elapsed().as_secs() < 3, "answers are given up after 4 s");
}

#[tokio::test]
async fn stream_ends_with_its_session() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "0123456789abcdef0123456789abcdef read\n").unwrap();
    let server = Server::start(&["--token-file", tokens.path().to_str().unwrap()]);
    assert_eq!(server.get("/live?view=names").await.status, 401);
    let by_page = |request: reqwest::RequestBuilder| request.header("x-locker-page", "1");
    let form = client().post(server.url("/session")).body("token=0123456789abcdef0123456789abcdef");
    let form = by_page(form.header("content-type", "application/x-www-form-urlencoded"));
    let cookie = answer(form).await.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let open = client().get(server.url("/live?view=names")).header("cookie", &cookie);
    let mut stream = Stream { response: open.send().await.unwrap(), text: String::new() };
    stream.until("totals", |_| true).await;
    let end = client().delete(server.url("/session")).header("cookie", &cookie);
    assert_eq!(answer(by_page(end)).await.status, 204);
    while stream.next().await.is_some() {}
}

fn events(data: &Value, of: &str) -> Vec<(String, Option<u64>)> {
    let event = |event: &Value| (event["what"].as_str().unwrap().to_owned(), event["fence"].as_u64());
    data[of].as_array().unwrap().iter().map(event).collect()
}

/// What this server did, and what a program did beside it.
#[tokio::test]
async fn events_say_who_made_them() {
    let Some(redis) = RedisServer::start() else { return };
    let [server, other] = [(); 2].map(|()| Server::start(&["--store", &redis.url()]));
    let fence = |answer: &crate::support::Answer| {
        answer.header("locker-fence").map(|fence| fence.parse::<u64>().unwrap())
    };
    let first = fence(&server.post("/v1/lock/a/acquire?key=k").await);
    assert_eq!(server.post("/v1/lock/a/acquire?key=l&maxwait=0").await.status, 408);
    assert_eq!(server.post("/v1/lock/a/acquire?key=l&maxwait=1").await.status, 408);
    let mut stream = Stream::open(&server, "view=key&key=lock:a").await;
    let seen = stream.until("events", |_| true).await;
    let expected = [("timed_out", None), ("refused", None), ("granted", first)];
    let expected: Vec<_> = expected.map(|(what, fence)| (what.to_owned(), fence)).into();
    assert_eq!((events(&seen, "server"), events(&seen, "elsewhere")), (expected, vec![]));
    assert!(
        seen["server"][0]["waited_ms"].as_u64().unwrap() >= 1 && seen["server"][1]["waited_ms"].is_null()
    );

    // The overview has to see the lock before it changes.
    let mut names = Stream::open(&server, "view=names").await;
    names.until("totals", |totals| totals["holds"] == 1).await;
    assert_eq!(other.post("/v1/lock/a/release?key=k").await.status, 204);
    names.until("totals", |totals| totals["holds"] == 0).await;
    let second = fence(&other.post("/v1/lock/a/acquire?key=m").await);
    let expected = [("granted".to_owned(), second), ("released".to_owned(), first)];
    stream.until("events", |seen| events(seen, "elsewhere") == expected).await;
    names.until("totals", |totals| totals["holds"] == 1).await;
    assert_eq!(server.delete("/v1/lock/a").await.status, 204);
    assert_eq!(server.post("/v1/lock/a/release?key=m").await.status, 409);
    let ended = [("lost".to_owned(), None), ("evicted".to_owned(), None)];
    let seen = stream.until("events", |seen| events(seen, "server")[..2] == ended).await;
    names.until("totals", |totals| totals["holds"] == 0).await;
    assert_eq!(events(&seen, "elsewhere"), expected, "what this server did is not elsewhere");
}

#[tokio::test]
async fn totals_count_grants_and_refusals() {
    let server = Server::start(&[]);
    let mut stream = Stream::open(&server, "view=names").await;
    assert_eq!(server.post("/v1/lock/a/acquire?key=k").await.status, 200);
    for _ in 0..2 {
        assert_eq!(server.post("/v1/lock/a/acquire?key=l&maxwait=0").await.status, 408);
    }
    let _waiter = server.queue("/v1/lock/a/acquire?key=w", "lock/a", 0).await;
    let sum = |past: &Value, name: &str| {
        past[name].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).sum::<u64>()
    };
    until("all is counted", async || {
        let past = Stream::open(&server, "view=names").await.until("past", |_| true).await;
        (sum(&past, "grants"), sum(&past, "refusals")) == (1, 2)
            && past["waiting"].as_array().unwrap().last() == Some(&json!(1))
    })
    .await;
    stream.until("totals", |totals| (&totals["names"], &totals["waiting"]) == (&json!(1), &json!(1))).await;
}

/// The number of commands that Redis has carried out for others.
fn commands(redis: &RedisServer) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stream.write_all(b"INFO commandstats\r\nQUIT\r\n").unwrap();
    let own = ["info", "quit"].map(|name| format!("cmdstat_{name}:"));
    let calls = rest(&mut stream);
    let calls = calls.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
    let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

#[tokio::test]
async fn store_is_not_called_unless_somebody_looks() {
    let Some(redis) = RedisServer::start() else { return };
    let server = Server::start(&["--store", &redis.url()]);
    assert_eq!(server.post("/v1/lock/a/acquire?key=k&expires=600000").await.status, 200);
    let rests = async || {
        until("three seconds without a command", async || {
            let before = commands(&redis);
            // Under test: that nothing happens. While somebody looks, a second passes between two passes.
            tokio::time::sleep(Duration::from_secs(3)).await;
            before == commands(&redis)
        })
        .await;
    };
    rests().await;
    let before = commands(&redis);
    for view in ["view=names", "view=key&key=lock:a"] {
        let mut stream = Stream::open(&server, view).await;
        stream.next().await.unwrap();
        until("commands", async || commands(&redis) > before).await;
        drop(stream);
        rests().await;
    }
}

/// The batches of a client that does not read are not made.
#[tokio::test]
async fn unread_streams_take_no_memory() {
    let server = Server::start(&["--header-timeout", "600s"]);
    let name = |number: u32| format!("{}{number:03}", "n".repeat(97));
    let call = |action: &str, status: &str| {
        let request =
            |number| format!("POST /v1/lock/{}/{action} HTTP/1.1\r\nHost: localhost\r\n\r\n", name(number));
        let requests: String = (0..200).map(request).collect();
        let last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answers = server.raw((requests + last).as_bytes());
        assert_eq!(answers.matches(status).count(), 200);
    };
    call("acquire?key=k", "\r\nlocker-fence: ");
    let mut read = Stream::open(&server, "view=names").await;
    read.until("totals", |totals| totals["shown"] == 200).await;
    let _unread: Vec<_> = (0..63).map(|_| server.asking_for("/live?view=names", 1)).collect();
    until("all streams", async || {
        let another = client().get(server.url("/live?view=names")).send().await.unwrap();
        another.status().as_u16() == 503
    })
    .await;
    // All rows change with each round: a batch has some 60 KB.
    let mut change = async |round: u32| {
        call(&format!("renew?key=k&expires={}", 1_000_000 + 10_000 * round), "HTTP/1.1 204 ");
        let last = format!("lock:{}", name(199));
        read.until("changes", |changes| row(&changes["put"], &last).is_some()).await;
    };
    for round in 0..2 {
        change(round).await;
    }
    let before = memory(&server);
    for round in 2..6 {
        change(round).await;
    }
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 8_000, "{grown} KB of the 15 MB that were not read");
}

/// The resident memory in KB.
fn memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}
