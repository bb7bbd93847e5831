//! The dashboard and the alerts name what server and library have.

use crate::support::Server;
use locker::{ErrorKind, Locker, stores::Memory};
use locker_harness::{ScriptedStore, in_time, is_renewal};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(20);

/// Metrics that need no panel.
const WITHOUT_A_PANEL: [&str; 0] = [];

/// The labels of each metric, with their values.
type Labels = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn page(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::read_to_string(docs.join(name)).unwrap()
}

fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&page("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

fn alerts() -> Vec<String> {
    let page = page("alerts.yml");
    let lines = page.lines().filter_map(|line| line.trim().strip_prefix("expr: '")?.strip_suffix('\''));
    lines.map(str::to_owned).collect()
}

/// Returns the parts of the text that match, and what follows each.
fn names(text: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = text.match_indices("locker_").map(|(at, _)| &text[at..]);
    starts.map(|rest| rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()))).collect()
}

/// Returns the metric without the ending of a part of a histogram.
fn metric(name: &str) -> &str {
    let endings = ["_bucket", "_count", "_sum"];
    endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// Returns `name="value"` pairs between braces, with their operators.
fn pairs(rest: &str) -> Vec<(&str, &str)> {
    let Some(inside) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        return Vec::new();
    };
    let split = |pair: &str| pair.find(['=', '!']);
    inside.0.split("\",").filter_map(|pair| Some(pair.trim().split_at(split(pair.trim())?))).collect()
}

/// Reads the text that Prometheus gets.
fn labels(text: &str) -> Labels {
    let mut all = Labels::new();
    for line in text.lines().filter(|line| line.starts_with("locker_")) {
        let (name, rest) = names(line)[0];
        let of = all.entry(metric(name).to_owned()).or_default();
        for (label, value) in pairs(rest) {
            let value = value.trim_matches(['=', '"']);
            of.entry(label.to_owned()).or_default().insert(value.to_owned());
        }
    }
    all
}

fn check(expression: &str, known: &Labels) {
    let by: Vec<&str> = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let by: Vec<&str> = by.iter().flat_map(|labels| labels.split(',')).map(str::trim).collect();
    assert!(!names(expression).is_empty(), "{expression}");
    for (name, rest) in names(expression) {
        let of =
            known.get(metric(name)).unwrap_or_else(|| panic!("no {name}, for {expression}, in {known:#?}"));
        for label in &by {
            assert!(of.contains_key(*label), "{name} has no label {label}, for {expression}: {of:?}");
        }
        for (label, value) in pairs(rest) {
            let values = of.get(label).unwrap_or_else(|| panic!("{name} has no label {label}: {of:?}"));
            let wanted = value.trim_matches(['=', '~', '!', '"']).split('|');
            wanted.for_each(|value| assert!(values.contains(value), "no {label}={value}, for {expression}"));
        }
    }
}

/// Calls a server so that it has every metric of its own.
async fn drive_a_server() -> String {
    let place = tempfile::tempdir().unwrap();
    let store = format!("file://{}", place.path().display());
    let server = Server::start(&["--store", &store, "--max-waits", "0"]);
    assert_eq!(server.get("/v1/lock/a/acquire?key=me").await.status, 200);
    assert_eq!(server.get("/v1/event/never/wait?maxwait=1000").await.status, 503);
    server.get("/metrics").await.body
}

#[locker::rate_limit(size = 1, interval = "1h", timeout = "0s", locker = locker)]
async fn limited(locker: &Locker) -> locker::Result<()> {
    Ok(())
}

/// Uses the library so that it has every metric.
async fn drive_the_library() -> String {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Prefix("locker_".into()), &[1.0]).unwrap();
    let recorder = Arc::new(builder.build_recorder());
    let metrics: PrometheusHandle = recorder.handle();
    let store = ScriptedStore::remote();
    let locker = |recorder: &Arc<_>| Locker::builder().recorder(Arc::clone(recorder) as _);
    let remote =
        locker(&recorder).store(store.clone()).lease(Duration::from_millis(600)).build().await.unwrap();
    let guard = remote.lock("a").acquire().await.unwrap();
    remote.lock("a").timeout(SHORT).acquire().await.unwrap_err();
    remote.lock("a").max_retry(2).retry_delay(SHORT).acquire().await.unwrap_err();
    store.fail(is_renewal, locker::Error::new(ErrorKind::Unavailable, "down").unknown());
    in_time("the loss", guard.lost()).await;
    store.fail(|_| true, locker::Error::new(ErrorKind::Unavailable, "down"));
    remote.lock("b").timeout(Duration::ZERO).acquire().await.unwrap_err();
    store.recover();
    let held = remote.lock("c").lease(Duration::from_millis(300)).acquire().await.unwrap();
    locker_harness::until("a renewal", async || metrics.render().contains(r#"{outcome="granted"}"#)).await;
    held.release().await.unwrap();
    remote.semaphore("s", 1).acquire().await.unwrap().release().await.unwrap();
    remote.read_lock("r").acquire().await.unwrap().release().await.unwrap();
    let memory = locker(&recorder).store(Memory::new()).build().await.unwrap();
    limited(&memory).await.unwrap();
    limited(&memory).await.unwrap_err();
    drop(guard);
    remote.settled().await;
    metrics.render()
}

#[tokio::test]
async fn dashboard_and_alerts_name_what_there_is() {
    let mut known = labels(&drive_a_server().await);
    // The time slots are those of a ZeroMQ client.
    let slots = labels(r#"locker_slots_total{slot="go"} 1"#);
    for (name, of) in labels(&drive_the_library().await).into_iter().chain(slots) {
        let all = known.entry(name).or_default();
        for (label, values) in of {
            all.entry(label).or_default().extend(values);
        }
    }
    for expression in dashboard().iter().chain(&alerts()) {
        check(expression, &known);
    }
    assert_eq!(alerts().len(), page("alerts.yml").matches("- alert:").count(), "one line each");
    let dashboard = dashboard();
    let shown: BTreeSet<_> =
        dashboard.iter().flat_map(|text| names(text)).map(|(name, _)| metric(name)).collect();
    for name in known.keys().filter(|name| !WITHOUT_A_PANEL.contains(&name.as_str())) {
        assert!(shown.contains(name.as_str()), "{name} has neither a panel nor an exception");
    }
}

/// In the cases of `alerts.yml` beside this file.
#[test]
fn alerts_fire_when_they_should() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/server/alerts.yml");
    let output = Command::new("promtool").args(["test", "rules"]).arg(cases).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Names that clients choose are no label, unless the operator has listed them.
#[tokio::test]
async fn listed_names_alone_are_labels() {
    let server = Server::start(&["--metric-names", "listed,spaced name"]);
    for path in [
        "/v1/lock/listed/acquire?key=1",
        "/v1/semaphore/listed/acquire?key=1",
        "/v1/lock/secret/acquire?key=1",
        "/v1/event/spaced%20name/wait?maxwait=0",
    ] {
        assert!([200, 408].contains(&server.get(path).await.status), "{path}");
    }
    let text = server.get("/metrics").await.body;
    for labels in [
        r#"{kind="lock",function="listed",outcome="granted"} 1"#,
        r#"{kind="semaphore",function="listed",outcome="granted"} 1"#,
        r#"{kind="lock",function="",outcome="granted"} 1"#,
        r#"{kind="event",function="spaced name",outcome="timed_out"} 1"#,
    ] {
        assert!(text.contains(&format!("locker_acquires_total{labels}")), "{labels} in\n{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

/// The gauges of the one are not those of the other.
#[tokio::test]
async fn waiting_calls_are_counted_where_they_wait() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let wait = server.get("/v1/event/e/wait?maxwait=60000");
    let seen = async {
        let line = r#"locker_waiting{kind="event"} 1"#;
        crate::support::until("it waits", async || server.get("/metrics").await.body.contains(line)).await;
        assert!(!other.get("/metrics").await.body.contains("locker_waiting{"));
        assert!([200, 204].contains(&server.get("/v1/event/e/send").await.status));
    };
    let (answer, ()) = tokio::join!(wait, seen);
    assert_eq!(answer.status, 204);
    let text = server.get("/metrics").await.body;
    assert!(text.contains(r#"locker_waiting{kind="event"} 0"#), "{text}");
    assert!(text.contains(r#"locker_wait_seconds_count{kind="event",function=""} 1"#), "{text}");
}
