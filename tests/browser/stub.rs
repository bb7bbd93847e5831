//! A server that serves the files of the page, and tells it what a test says.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::sync::{broadcast, watch};

pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html", include_str!("../../locker-server/src/page/index.html")),
    ("/page.js", "text/javascript", include_str!("../../locker-server/src/page/page.js")),
    ("/page.css", "text/css", include_str!("../../locker-server/src/page/page.css")),
];

/// The stub. It ends with the runtime of its test.
pub(crate) struct Stub {
    url: String,
    told: Arc<Told>,
}

struct Told {
    role: Mutex<Option<&'static str>>,
    /// The status of new streams, and what they begin with.
    streams: Mutex<(StatusCode, String)>,
    /// What all open streams get. An empty text ends them.
    later: broadcast::Sender<String>,
    open: watch::Sender<usize>,
    /// The queries of all streams.
    queries: Mutex<Vec<String>>,
    /// The changes that the page has asked for.
    changes: Mutex<Vec<String>>,
    /// What they are answered with.
    change_status: Mutex<StatusCode>,
}

/// An open stream.
struct Open(Arc<Told>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

/// Returns an event as a server sends it.
pub(crate) fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

impl Stub {
    /// Starts a stub whose streams begin with these events. Each has the role `full`.
    pub(crate) async fn start(events: &[(&str, Value)]) -> Self {
        let told = Arc::new(Told {
            role: Mutex::new(Some("full")),
            streams: Mutex::default(),
            later: broadcast::channel(100).0,
            open: watch::channel(0).0,
            queries: Mutex::default(),
            changes: Mutex::default(),
            change_status: Mutex::new(StatusCode::NO_CONTENT),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(told.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let stub = Self { url, told };
        stub.begin_with(events);
        stub
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn begin_with(&self, events: &[(&str, Value)]) {
        let text = events.iter().map(|(name, data)| event(name, data)).collect();
        *self.told.streams.lock().unwrap() = (StatusCode::OK, text);
    }

    pub(crate) fn refuse_streams(&self, status: StatusCode) {
        self.told.streams.lock().unwrap().0 = status;
    }

    pub(crate) fn set_role(&self, role: Option<&'static str>) {
        *self.told.role.lock().unwrap() = role;
    }

    pub(crate) fn send(&self, name: &str, data: &Value) {
        self.told.later.send(event(name, data)).expect("an open stream");
    }

    pub(crate) fn end_streams(&self) {
        self.told.later.send(String::new()).expect("an open stream");
    }

    pub(crate) async fn until_open(&self, number: usize) {
        let mut open = self.told.open.subscribe();
        crate::server::in_time("open streams", open.wait_for(|open| *open == number)).await.unwrap();
    }

    pub(crate) fn last_query(&self) -> String {
        self.told.queries.lock().unwrap().last().expect("a stream").clone()
    }

    pub(crate) fn answer_changes(&self, status: StatusCode) {
        *self.told.change_status.lock().unwrap() = status;
    }

    pub(crate) fn changes(&self) -> Vec<String> {
        self.told.changes.lock().unwrap().clone()
    }
}

async fn answer(State(told): State<Arc<Told>>, request: Request) -> Response {
    let path = request.uri().path();
    if let Some((_, kind, text)) = FILES.into_iter().find(|file| file.0 == path) {
        return ([("content-type", kind), ("content-security-policy", POLICY)], text).into_response();
    }
    match (request.method().as_str(), path) {
        ("GET", "/session") => {
            let role = *told.role.lock().unwrap();
            json!({ "needs_token": true, "role": role, "server": "0.1.0", "store": "redis" })
                .to_string()
                .into_response()
        }
        ("GET", "/live") => {
            told.queries.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
            live(told)
        }
        (_, path) => {
            let call = format!("{} {path} {}", request.method(), header(request.headers()));
            told.changes.lock().unwrap().push(call);
            told.change_status.lock().unwrap().into_response()
        }
    }
}

fn header(headers: &HeaderMap) -> &str {
    headers.get("x-locker-page").map_or("", |value| value.to_str().unwrap())
}

fn live(told: Arc<Told>) -> Response {
    let (status, start) = told.streams.lock().unwrap().clone();
    if status != StatusCode::OK {
        return (status, [("retry-after", "1")], "not now").into_response();
    }
    let later = told.later.subscribe();
    told.open.send_modify(|open| *open += 1);
    let first = (Some(start), later, Open(told));
    let events = stream::unfold(first, async |(start, mut later, open)| {
        let text = match start {
            Some(start) => start,
            None => later.recv().await.ok().filter(|text| !text.is_empty())?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (None, later, open)))
    });
    Body::from_stream(events).into_response()
}

/// Returns a row of the table of names.
pub(crate) fn row(name: &str, waiting: u64) -> Value {
    json!({
        "key": format!("lock:{name}"), "kind": "lock", "name": name, "function": null, "file": null, "line": null,
        "used": 1, "size": 1, "waiting": waiting, "longest_ms": 65_000, "left_ms": 3_600_000, "age_ms": null,
    })
}

pub(crate) fn totals(matching: u64, shown: usize) -> Value {
    json!({
        "at": 0, "names": matching, "holds": 1, "waiting": 2, "grants": 3.5, "refusals": 0, "store": "redis",
        "round_trip_ms": 0.25, "seen_ms_ago": 0, "matching": matching, "shown": shown, "whole": true,
    })
}

/// Returns the events of a view of names with these rows.
pub(crate) fn names(rows: &[Value]) -> Vec<(&'static str, Value)> {
    let past = json!({ "every_ms": 1000, "grants": [1, 5, 2], "refusals": [0, 0, 1], "waiting": [2, 2, 2] });
    let totals = totals(rows.len() as u64, rows.len());
    vec![("past", past), ("rows", json!({ "rows": rows })), ("totals", totals)]
}

/// Returns the events of a view of one lock, with a holder, so many waiters, and the lines of its explanation.
pub(crate) fn key(name: &str, waiting: u64, text: &str, is_deadlock: bool) -> Vec<(&'static str, Value)> {
    let holder = json!({ "fence": 17, "note": "web-3:4711", "left_ms": 58_000, "permits": 1 });
    let explained = json!({
        "kind": "lock", "name": name, "key": format!("lock:{name}"), "function": null, "file": null, "line": null,
        "holders": [holder], "waiting": waiting,
    });
    let waiters = vec!["web-4:1"; usize::try_from(waiting).unwrap()];
    let release = json!({ "method": "DELETE", "path": "/v1/lock/its-name?fence=17" });
    let told = json!({
        "explained": explained, "text": text, "deadlock": is_deadlock, "can_release": true, "release": release,
        "ages_ms": [41_000], "waiters": waiters, "holders_in_all": 1,
    });
    let granted = json!({ "at": 1_700_000_000_000_u64, "what": "granted", "fence": 17, "waited_ms": 250 });
    vec![("key", told), ("events", json!({ "server": [granted], "elsewhere": [] }))]
}
