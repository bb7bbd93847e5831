//! What is counted, for Prometheus.

use crate::calls::{Answer, Sort, table::ROWS};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::{fmt, sync::OnceLock, time::Duration};

const METADATA: Metadata<'static> = Metadata::new("locker", Level::INFO, None);
const WAITED: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0];
const STATUSES: [u16; 13] = [200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 503];
/// The column after those of the statuses.
const GONE: usize = STATUSES.len();

/// The way a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// HTTP.
    Http,
    /// ZeroMQ.
    ZeroMq,
}

impl Via {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::ZeroMq => "zeromq",
        }
    }
}

/// What the time-slot limiter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Lets somebody pass.
    Go,
    /// Sends somebody away.
    Sorry,
    /// Counts a `go` of a peer.
    Peer,
}

/// The counters, made when first used.
pub struct Metrics {
    recorder: PrometheusRecorder,
    requests: [[[OnceLock<Counter>; STATUSES.len() + 1]; CALLS]; 2],
    slots: [OnceLock<Counter>; 3],
    waited: Histogram,
    refused: [Counter; 2],
    waiting: Gauge,
    connections: Gauge,
    zmq_connections: Gauge,
}

/// Every action, `delete`, `show`, `list`, and what is none of them.
const CALLS: usize = ROWS.len() + 4;

impl Metrics {
    /// None counted yet.
    ///
    /// # Errors
    /// None that depends on anything outside this file.
    pub fn new() -> Result<Self, BuildError> {
        let waited = Matcher::Full("locker_waited_seconds".into());
        let recorder = PrometheusBuilder::new().set_buckets_for_metric(waited, &WAITED)?.build_recorder();
        for (name, unit, text) in [
            (
                "locker_requests_total",
                Unit::Count,
                "requests by call, status (`gone`: the client was, while it waited) and transport",
            ),
            (
                "locker_slots_total",
                Unit::Count,
                "what the time-slot limiter answered, and what it was told by peers",
            ),
            (
                "locker_refused_connections_total",
                Unit::Count,
                "connections that were one too many, by transport",
            ),
        ] {
            recorder.describe_counter(KeyName::from(name), Some(unit), text.into());
        }
        recorder.describe_histogram(
            KeyName::from("locker_waited_seconds"),
            Some(Unit::Seconds),
            "how long calls waited that were not answered at once".into(),
        );
        let gauge = |name: &'static str, text: &'static str| {
            recorder.describe_gauge(KeyName::from(name), Some(Unit::Count), text.into());
            recorder.register_gauge(&Key::from_name(name), &METADATA)
        };
        let refused = [Via::Http, Via::ZeroMq].map(|via| {
            let labels = vec![Label::from_static_parts("transport", via.name())];
            let key = Key::from_parts("locker_refused_connections_total", labels);
            recorder.register_counter(&key, &METADATA)
        });
        Ok(Self {
            refused,
            zmq_connections: gauge("locker_zmq_connections", "established ZeroMQ connections"),
            waiting: gauge("locker_waiting", "calls that wait now"),
            connections: gauge("locker_connections", "open HTTP connections"),
            waited: recorder.register_histogram(&Key::from_name("locker_waited_seconds"), &METADATA),
            recorder,
            requests: Default::default(),
            slots: Default::default(),
        })
    }

    /// Counts an answer; `None`: to a path that is none of a call.
    pub fn answered(&self, via: Via, call: Option<Sort>, answer: &Answer) {
        if let Some(column) = STATUSES.iter().position(|&known| known == answer.status) {
            self.count(via, call.map_or(CALLS - 1, index), column);
        }
    }

    /// Counts a call whose client went while it waited.
    pub fn gone(&self, via: Via, call: Sort) {
        self.count(via, index(call), GONE);
    }

    fn count(&self, via: Via, call: usize, column: usize) {
        let counter = self.requests[via as usize][call][column].get_or_init(|| {
            let status = STATUSES.get(column).map_or("gone".into(), u16::to_string);
            let labels = vec![
                Label::from_static_parts("call", NAMES[call]),
                Label::new("status", status),
                Label::from_static_parts("transport", via.name()),
            ];
            self.recorder.register_counter(&Key::from_parts("locker_requests_total", labels), &METADATA)
        });
        counter.increment(1);
    }

    /// Counts a connection that was one too many.
    pub fn refused(&self, via: Via) {
        self.refused[via as usize].increment(1);
    }

    /// Counts what the time-slot limiter did.
    pub fn slot(&self, slot: Slot) {
        let counter = self.slots[slot as usize].get_or_init(|| {
            let text = match slot {
                Slot::Go => "go",
                Slot::Sorry => "sorry",
                Slot::Peer => "peer",
            };
            let labels = vec![Label::from_static_parts("slot", text)];
            self.recorder.register_counter(&Key::from_parts("locker_slots_total", labels), &METADATA)
        });
        counter.increment(1);
    }

    /// Notes the end of a wait.
    pub fn waited(&self, time: Duration) {
        self.waited.record(time.as_secs_f64());
    }

    /// The text for Prometheus, with what is so at this moment.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    pub fn render(&self, waiting: usize, connections: usize, zmq_connections: usize) -> String {
        self.waiting.set(waiting as f64);
        self.connections.set(connections as f64);
        self.zmq_connections.set(zmq_connections as f64);
        self.recorder.handle().render()
    }

    /// Has to be called now and then (see [`PrometheusHandle::run_upkeep`]).
    #[must_use]
    pub fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

const NAMES: [&str; CALLS] = [
    "tokenbucket/acquire",
    "semaphore/acquire",
    "semaphore/release",
    "semaphore/renew",
    "event/wait",
    "event/send",
    "watchdog/wait",
    "watchdog/kick",
    "delete",
    "show",
    "list",
    "none",
];

fn index(call: Sort) -> usize {
    match call {
        Sort::Act(action) => action as usize,
        Sort::Delete => ROWS.len(),
        Sort::Show => ROWS.len() + 1,
        Sort::List => ROWS.len() + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_table() {
        for (row, name) in ROWS.iter().zip(NAMES) {
            assert_eq!(format!("{}/{}", row.kind.segment(), row.segment), name);
        }
        assert_eq!(NAMES[index(Sort::Delete)], "delete");
    }

    #[test]
    fn renders_what_was_counted() {
        let metrics = Metrics::new().unwrap();
        metrics.answered(Via::Http, Some(Sort::List), &Answer::done());
        metrics.gone(Via::Http, Sort::List);
        metrics.answered(Via::ZeroMq, None, &Answer::bad_request("no"));
        metrics.slot(Slot::Go);
        metrics.waited(Duration::from_millis(3));
        metrics.refused(Via::ZeroMq);
        let text = metrics.render(7, 2, 3);
        for line in [
            r#"locker_requests_total{call="list",status="204",transport="http"} 1"#,
            r#"locker_requests_total{call="list",status="gone",transport="http"} 1"#,
            r#"locker_requests_total{call="none",status="400",transport="zeromq"} 1"#,
            r#"locker_slots_total{slot="go"} 1"#,
            "locker_waited_seconds_count 1",
            "locker_waiting 7",
            "locker_connections 2",
            "locker_zmq_connections 3",
            r#"locker_refused_connections_total{transport="zeromq"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
