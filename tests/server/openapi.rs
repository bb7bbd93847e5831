//! Answers of the server compared with the OpenAPI document.

use crate::support::{Answer, Server, answer, binary, client};
use serde_json::Value;
use std::{cell::RefCell, collections::BTreeSet};

struct Document {
    root: Value,
    /// The statuses and headers of answers that the document declares.
    seen: RefCell<BTreeSet<String>>,
}

impl Document {
    async fn of(server: &Server) -> Self {
        let text = server.get("/openapi.json").await.body;
        Self { root: serde_json::from_str(&text).unwrap(), seen: RefCell::default() }
    }

    /// The paths of kinds are declared with `/v1`. An undeclared method is answered 405 as everywhere.
    fn declared(&self, method: &str, path: &str, status: u16) -> &Value {
        let path = path.split('?').next().unwrap();
        let known = |path: &str| self.root["paths"].get(path).is_some();
        let path =
            if known(path) { path.to_owned() } else { format!("/v1{}", path.trim_start_matches("/v1")) };
        let mut parts: Vec<_> = path.split('/').collect();
        let name = if parts.get(3) == Some(&"by-key") { 4 } else { 3 };
        if parts.len() > name {
            parts[name] = "{name}";
        }
        let operations = &self.root["paths"][parts.join("/")];
        let operation = operations.get(method.to_lowercase()).unwrap_or(&operations["get"]);
        let response = &operation["responses"][status.to_string()];
        assert!(response.is_object(), "{method} {path}: {status} is not declared");
        response
    }

    fn check(&self, method: &str, path: &str, answer: &Answer) {
        let response = self.declared(method, path, answer.status);
        let kinds: Vec<_> =
            response["content"].as_object().into_iter().flat_map(|kinds| kinds.keys()).collect();
        let given: Vec<_> = answer.header("content-type").into_iter().collect();
        let is_declared = given.iter().all(|given| kinds.iter().any(|kind| kind == given));
        assert!(is_declared && given.is_empty() == kinds.is_empty(), "{method} {path}: {}", answer.status);
        for name in [
            "Locker-Fence",
            "Locker-Replayed",
            "Locker-Slot",
            "Locker-Missed",
            "Link",
            "Retry-After",
            "Allow",
            "WWW-Authenticate",
        ] {
            if answer.header(&name.to_lowercase()).is_some() {
                assert!(response["headers"].get(name).is_some(), "{method} {path}: {name} is not declared");
                self.seen.borrow_mut().insert(name.to_owned());
            }
        }
        if answer.header("content-type") == Some("application/json") {
            let body = serde_json::from_str(&answer.body).unwrap();
            let content = &response["content"]["application/json"];
            // The result of a run is any JSON.
            content.get("schema").into_iter().for_each(|schema| self.fits(schema, &body));
        }
        self.seen.borrow_mut().insert(answer.status.to_string());
    }

    /// Checks the types and the required fields, and that there are no other fields.
    fn fits(&self, schema: &Value, value: &Value) {
        if let Some(place) = schema["$ref"].as_str() {
            return self.fits(self.root.pointer(place.trim_start_matches('#')).unwrap(), value);
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let kinds = &schema["type"];
        assert!(
            kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.contains(&kind.into())),
            "{schema}"
        );
        for item in value.as_array().into_iter().flatten() {
            self.fits(&schema["items"], item);
        }
        let Some(fields) = schema["properties"].as_object() else { return };
        for needed in schema["required"].as_array().into_iter().flatten() {
            assert!(value.get(needed.as_str().unwrap()).is_some(), "{needed} in {value}");
        }
        for (name, value) in value.as_object().unwrap() {
            self.fits(fields.get(name).unwrap_or_else(|| panic!("{name} is not declared")), value);
        }
    }

    /// Returns all declared statuses and headers.
    fn all(&self) -> BTreeSet<String> {
        let objects = |value: &'_ Value| value.as_object().cloned().into_iter().flatten();
        let operations = objects(&self.root["paths"]).flat_map(|(_, methods)| objects(&methods));
        let responses = operations.flat_map(|(_, operation)| objects(&operation["responses"]));
        responses
            .flat_map(|(status, response)| {
                objects(&response["headers"]).map(|(name, _)| name).chain([status]).collect::<Vec<_>>()
            })
            .collect()
    }
}

#[tokio::test]
async fn answers_are_those_of_the_document() {
    let server = Server::start(&[]);
    let document = Document::of(&server).await;
    for (method, path, status) in [
        ("POST", "/v1/tokenbucket/n/acquire?interval=3600000", 204),
        ("POST", "/v1/tokenbucket/n/acquire?interval=3600000&maxwait=0", 408),
        ("POST", "/v1/semaphore/n/acquire?key=k", 200),
        ("POST", "/v1/semaphore/ever/acquire?key=k&expires=0", 200),
        ("POST", "/v1/semaphore/n/acquire?maxwait=0", 408),
        ("POST", "/v1/semaphore/n/renew?key=k", 204),
        ("POST", "/v1/semaphore/n/renew?key=other", 409),
        ("POST", "/v1/semaphore/n/release?key=other", 409),
        ("GET", "/v1/semaphore/n/release", 400),
        ("GET", "/v1/semaphore/n", 200),
        ("GET", "/v1/semaphore/ever", 200),
        ("POST", "/v1/semaphore/n/release?key=k", 204),
        ("POST", "/v1/event/n/wait?maxwait=0", 408),
        ("POST", "/v1/event/n/send?message=told", 204),
        ("POST", "/v1/event/n/send", 409),
        ("GET", "/v1/event/n/wait", 200),
        ("POST", "/v1/event/empty/send", 204),
        ("GET", "/v1/event/empty/wait", 204),
        ("POST", "/v1/watchdog/n/wait?maxwait=0", 408),
        ("POST", "/v1/watchdog/n/kick", 204),
        ("POST", "/v1/watchdog/n/kick?expires=0", 400),
        ("GET", "/v1/tokenbucket/n", 200),
        ("GET", "/v1/event/n", 200),
        ("GET", "/v1/watchdog/n", 200),
        ("GET", "/watchdog/n", 200),
        ("GET", "/event/n/wait", 200),
        ("POST", "/v1/lock/n/acquire?key=k", 200),
        ("POST", "/v1/lock/n/acquire?maxwait=0", 408),
        ("POST", "/v1/lock/n/renew?key=k", 204),
        ("POST", "/v1/lock/n/acquire?expires=0", 400),
        ("GET", "/v1/lock/n", 200),
        ("POST", "/v1/lock/n/release?key=other", 409),
        (
            "POST",
            "/v1/lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1/acquire",
            200,
        ),
        ("GET", "/lock/by-key/e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1", 200),
        ("POST", "/v1/rwlock/n/acquire?key=k&mode=read", 200),
        ("GET", "/v1/rwlock/n", 200),
        ("POST", "/v1/rwlock/n/release?key=k", 204),
        ("POST", "/v1/leader/n/acquire?key=k", 200),
        ("POST", "/v1/leader/n/acquire?maxwait=0", 408),
        ("POST", "/v1/leader/n/renew?key=k", 204),
        ("GET", "/v1/leader/n", 200),
        ("POST", "/v1/leader/n/release?key=other", 409),
        ("POST", "/v1/barrier/n/wait?maxwait=0", 408),
        ("POST", "/v1/barrier/n/wait?size=1", 204),
        ("POST", "/v1/barrier/n/wait?size=1", 409),
        ("GET", "/v1/barrier/n", 200),
        ("POST", "/v1/latch/n/countdown", 200),
        ("POST", "/v1/latch/n/wait", 204),
        ("GET", "/v1/latch/n", 200),
        ("GET", "/counter/n/count", 200),
        ("GET", "/counter/n/value", 200),
        ("GET", "/v1/counter/n", 200),
        ("GET", "/counter/n/reset", 204),
        ("GET", "/semaphore/n/stats", 200),
        ("GET", "/tokenbucket/n/stats", 200),
        ("GET", "/event/n/stats", 200),
        ("GET", "/watchdog/n/stats", 200),
        ("GET", "/counter/n/stats", 200),
        ("GET", "/barrier/n/stats", 200),
        ("GET", "/v1/latch/n/stats", 200),
        ("GET", "/v1/lock/unknown/stats", 404),
        ("GET", "/.well-known/ready", 200),
        ("GET", "/v1", 200),
        ("GET", "/v1?limit=1", 200),
        ("GET", "/v1/explain?key=lock%3An", 200),
        ("GET", "/v1/explain?key=other", 404),
        ("DELETE", "/v1/lock/n?fence=0", 409),
        ("DELETE", "/v1/event/n", 204),
        ("DELETE", "/event/n", 404),
        ("GET", "/v1?limit=1", 200),
        ("GET", "/v1/event/n", 404),
        ("PUT", "/v1/event/n/send", 405),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
    ] {
        let given = answer(client().request(method.parse().unwrap(), server.url(path))).await;
        assert_eq!(given.status, status, "{method} {path}");
        document.check(method, path, &given);
    }
    check_runs(&server, &document).await;
    for (method, path, given) in refusals().await {
        document.check(method, path, &given);
    }
    assert_eq!(*document.seen.borrow(), document.all(), "all that is declared was answered");
}

async fn check_runs(server: &Server, document: &Document) {
    for (method, path, status) in [
        ("POST", "/v1/once/n/begin?keep=60000&same=1", 200),
        ("POST", "/v1/once/n/begin?keep=60000&same=2", 422),
        ("POST", "/v1/once/n/begin?keep=60000&maxwait=0", 408),
        ("POST", "/v1/once/n/begin", 400),
        ("POST", "/v1/once/slots/begin?every=60000", 200),
        ("POST", "/v1/once/n/renew?key=other", 409),
        ("POST", "/v1/once/n/fail?key=other", 409),
        ("POST", "/v1/once/n/finish?key=other", 409),
        ("GET", "/v1/once/n", 200),
    ] {
        let given = answer(client().request(method.parse().unwrap(), server.url(path))).await;
        assert_eq!(given.status, status, "{method} {path}");
        document.check(method, path, &given);
    }
    let key = server.post("/v1/once/replayed/begin?keep=60000").await.body;
    server.post(&format!("/v1/once/replayed/finish?result=7&key={key}")).await;
    let path = "/v1/once/replayed/begin?keep=60000";
    document.check("POST", path, &server.post(path).await);
}

/// A generator of requests read the document, and the server refused some of what it allows.
#[tokio::test]
async fn bounds_of_the_document_are_the_servers() {
    let server = Server::start(&["--max-waits-per-name", "0"]);
    let (document, client, mut checked) = (Document::of(&server).await, client(), 0);
    let key = "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1";
    for (path, operations) in document.root["paths"].as_object().unwrap() {
        let declared = operations["get"]["parameters"].as_array().into_iter().flatten();
        let declared: Vec<_> = declared.filter(|one| one["in"] == "query").collect();
        let place = path.replace("{name}", if path.contains("by-key") { key } else { "n" });
        for parameter in &declared {
            let tested = parameter["name"].as_str().unwrap();
            let others = declared.iter().filter(|one| one["name"] != tested && one["required"] == true);
            let mut others: Vec<_> =
                others.map(|one| format!("&{}=read", one["name"].as_str().unwrap())).collect();
            // A schema cannot say that one of two is needed.
            match tested {
                "every" | "keep" => {}
                "from" | "early" => others.push("&every=31622400000".into()),
                _ if path.ends_with("/begin") => others.push("&keep=1".into()),
                _ => {}
            }
            for (value, is_allowed) in edges(&parameter["schema"]) {
                let url = server.url(&format!("{place}?{tested}={value}{}", others.concat()));
                let given = answer(client.get(url)).await;
                assert_eq!(given.status != 400, is_allowed, "{place} {tested}={value}: {}", given.body);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
}

/// Values at the edges of a schema, and whether it allows them.
fn edges(schema: &Value) -> Vec<(String, bool)> {
    let edge = |bound: &str, beyond: i128| {
        let number = schema[bound].as_i64().map(i128::from);
        number
            .into_iter()
            .flat_map(move |number| [(number.to_string(), true), ((number + beyond).to_string(), false)])
    };
    let numbers = edge("minimum", -1).chain(edge("maximum", 1));
    let known =
        schema["enum"].as_array().into_iter().flatten().map(|one| (one.as_str().unwrap().to_owned(), true));
    let unknown = schema["enum"].as_array().map(|_| ("other".to_owned(), false));
    let text = schema["type"] == "string" && schema["enum"].is_null();
    let empty = text.then(|| (String::new(), schema["minLength"].is_null()));
    numbers.chain(known).chain(unknown).chain(empty).collect()
}

/// Answers of every kind that needs a cap, a token or a malformed request.
async fn refusals() -> Vec<(&'static str, &'static str, Answer)> {
    let full = Server::start(&["--max-waits-per-name", "1", "--max-waits", "2"]);
    let _waiters = [
        full.queue("/v1/event/a/wait", "event/a", 0).await,
        full.queue("/v1/event/b/wait", "event/b", 0).await,
    ];
    let named = Server::start(&["--max-names", "1"]);
    assert_eq!(named.post("/v1/event/a/send").await.status, 204);
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "t".repeat(32)).unwrap();
    let closed = Server::start(&["--token-file", tokens.path().to_str().unwrap()]);
    let (wait, send) = ("/v1/event/c/wait", "/v1/event/c/send");
    let post = || client().post(named.url(send));
    let head = format!("POST {send} HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(9000));
    let refusals = vec![
        ("POST", wait, full.post(wait).await, 503),
        ("POST", send, named.post(send).await, 429),
        ("POST", send, closed.post(send).await, 401),
        ("POST", send, answer(post().header("origin", "http://evil.example")).await, 403),
        ("POST", send, answer(post().body("x".repeat(10_000))).await, 413),
        ("POST", send, answer(post().body("x")).await, 415),
        ("POST", send, read(&named.raw(head.as_bytes())), 431),
    ];
    let checked = refusals.into_iter().map(|(method, path, given, status)| {
        assert_eq!(given.status, status, "{given:?}");
        (method, path, given)
    });
    checked.collect()
}

fn read(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

/// Calls were added to the server, and its help still listed the first ones only.
#[tokio::test]
async fn help_names_every_call() {
    let server = Server::start(&[]);
    let document = Document::of(&server).await;
    let output = binary().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, calls) = help.split_once("\nCalls: ").expect("a list of the calls");
    let (calls, _) = calls.split_once("\n\n").expect("its end");
    let words: BTreeSet<_> = calls
        .split(|c: char| !(c.is_alphanumeric() || "-/.".contains(c)))
        .map(|word| word.trim_matches('.'))
        .collect();
    for path in document.root["paths"].as_object().unwrap().keys() {
        let Some((kind, action)) = path.strip_prefix("/v1/").and_then(|path| path.split_once("/{name}"))
        else {
            continue;
        };
        let action = action.trim_start_matches('/');
        let is_named = |word: &str| words.contains(word) || words.contains(format!("/{word}").as_str());
        assert!(is_named(kind) && (action.is_empty() || is_named(action)), "{path}: {calls}");
    }
}
