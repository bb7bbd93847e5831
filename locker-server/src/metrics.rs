//! Metrics for Prometheus: those of requests and connections. The locker writes its own to the same recorder.

use crate::api::{Answer, CallKind, ROWS};
use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::{
    array::from_fn,
    fmt,
    sync::{Arc, OnceLock},
};

const METADATA: Metadata<'static> = Metadata::new("locker", Level::INFO, None);
const WAIT_BUCKETS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0];
const STORE_BUCKETS: [f64; 8] = [0.0001, 0.0005, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0];
const STATUSES: [u16; 14] = [200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503];
/// The column for calls that ended with a disconnect.
const GONE: usize = STATUSES.len();

/// The transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    ZeroMq,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::ZeroMq => "zeromq",
        }
    }
}

/// An event of the time-slot limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotEvent {
    Go,
    Sorry,
    /// A `go` that a peer published.
    Peer,
}

/// The metrics. Counters are created on first use.
pub(crate) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    requests: [[[OnceLock<Counter>; STATUSES.len() + 1]; CALLS]; 2],
    slots: [OnceLock<Counter>; 3],
    refused: [Counter; 2],
    connections: Gauge,
    zmq_connections: Gauge,
}

/// All actions, `delete`, `show`, `stats`, `list`, and `none` for unknown paths.
const CALLS: usize = ROWS.len() + 6;

impl Metrics {
    pub(crate) fn new() -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in [
            ("locker_wait_seconds", &WAIT_BUCKETS[..]),
            ("locker_hold_seconds", &WAIT_BUCKETS),
            ("locker_store_seconds", &STORE_BUCKETS),
        ] {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), buckets)?;
        }
        let recorder = Arc::new(builder.build_recorder());
        for (name, unit, text) in [
            (
                "locker_requests_total",
                Unit::Count,
                "requests by call, status (`gone` if the client disconnected while it waited) and transport",
            ),
            (
                "locker_slots_total",
                Unit::Count,
                "answers of the time-slot limiter, and grants published by peers",
            ),
            ("locker_refused_connections_total", Unit::Count, "connections beyond the cap, by transport"),
        ] {
            recorder.describe_counter(KeyName::from(name), Some(unit), text.into());
        }
        let gauge = |name: &'static str, text: &'static str| {
            recorder.describe_gauge(KeyName::from(name), Some(Unit::Count), text.into());
            recorder.register_gauge(&Key::from_name(name), &METADATA)
        };
        let refused = [Transport::Http, Transport::ZeroMq].map(|transport| {
            let labels = vec![Label::from_static_parts("transport", transport.name())];
            let key = Key::from_parts("locker_refused_connections_total", labels);
            recorder.register_counter(&key, &METADATA)
        });
        Ok(Self {
            refused,
            zmq_connections: gauge("locker_zmq_connections", "established ZeroMQ connections"),
            connections: gauge("locker_connections", "open HTTP connections"),
            recorder,
            requests: from_fn(|_| from_fn(|_| from_fn(|_| OnceLock::new()))),
            slots: Default::default(),
        })
    }

    /// Counts an answer. `call` is `None` for an unknown path.
    pub(crate) fn answered(&self, transport: Transport, call: Option<CallKind>, answer: &Answer) {
        if let Some(column) = STATUSES.iter().position(|&known| known == answer.status) {
            self.count(transport, call.map_or(CALLS - 1, index), column);
        }
    }

    /// Counts a call that ended because its client disconnected.
    pub(crate) fn gone(&self, transport: Transport, call: CallKind) {
        self.count(transport, index(call), GONE);
    }

    fn count(&self, transport: Transport, call: usize, column: usize) {
        let counter = self.requests[transport as usize][call][column].get_or_init(|| {
            let status = STATUSES.get(column).map_or("gone".into(), u16::to_string);
            let labels = vec![
                Label::from_static_parts("call", NAMES[call]),
                Label::new("status", status),
                Label::from_static_parts("transport", transport.name()),
            ];
            self.recorder.register_counter(&Key::from_parts("locker_requests_total", labels), &METADATA)
        });
        counter.increment(1);
    }

    /// Counts a connection beyond the cap.
    pub(crate) fn refused(&self, transport: Transport) {
        self.refused[transport as usize].increment(1);
    }

    /// Counts an event of the time-slot limiter.
    pub(crate) fn slot(&self, slot: SlotEvent) {
        let counter = self.slots[slot as usize].get_or_init(|| {
            let text = match slot {
                SlotEvent::Go => "go",
                SlotEvent::Sorry => "sorry",
                SlotEvent::Peer => "peer",
            };
            let labels = vec![Label::from_static_parts("slot", text)];
            self.recorder.register_counter(&Key::from_parts("locker_slots_total", labels), &METADATA)
        });
        counter.increment(1);
    }

    /// Returns what the locker of this server writes to. Not a recorder of the process: a process may have two servers.
    pub(crate) fn recorder(&self) -> Arc<PrometheusRecorder> {
        Arc::clone(&self.recorder)
    }

    /// Returns the text for Prometheus, with the given current counts.
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    pub(crate) fn render(&self, connections: usize, zmq_connections: usize) -> String {
        self.connections.set(connections as f64);
        self.zmq_connections.set(zmq_connections as f64);
        self.recorder.handle().render()
    }

    /// Returns the handle. Its [`PrometheusHandle::run_upkeep`] must be called regularly.
    pub(crate) fn handle(&self) -> PrometheusHandle {
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
    "lock/acquire",
    "lock/release",
    "lock/renew",
    "lock/by-key/acquire",
    "lock/by-key/release",
    "lock/by-key/renew",
    "rwlock/acquire",
    "rwlock/release",
    "rwlock/renew",
    "leader/acquire",
    "leader/release",
    "leader/renew",
    "once/begin",
    "once/finish",
    "once/fail",
    "once/renew",
    "barrier/wait",
    "latch/wait",
    "latch/countdown",
    "counter/count",
    "counter/value",
    "counter/reset",
    "delete",
    "show",
    "stats",
    "list",
    "explain",
    "none",
];

fn index(call: CallKind) -> usize {
    match call {
        CallKind::Action(action) => action as usize,
        CallKind::Delete => ROWS.len(),
        CallKind::Show => ROWS.len() + 1,
        CallKind::Stats => ROWS.len() + 2,
        CallKind::List => ROWS.len() + 3,
        CallKind::Explain => ROWS.len() + 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_table() {
        for (row, name) in ROWS.iter().zip(NAMES) {
            assert_eq!(format!("{}/{}", row.resource.segment(), row.segment), name);
        }
        for (kind, name) in [
            (CallKind::Delete, "delete"),
            (CallKind::Stats, "stats"),
            (CallKind::List, "list"),
            (CallKind::Explain, "explain"),
        ] {
            assert_eq!(NAMES[index(kind)], name);
        }
    }

    #[test]
    fn counted_events_are_rendered() {
        let metrics = Metrics::new().unwrap();
        metrics.answered(Transport::Http, Some(CallKind::List), &Answer::done());
        metrics.gone(Transport::Http, CallKind::List);
        metrics.answered(Transport::ZeroMq, None, &Answer::bad_request("no"));
        metrics.slot(SlotEvent::Go);
        metrics.refused(Transport::ZeroMq);
        let text = metrics.render(2, 3);
        for line in [
            r#"locker_requests_total{call="list",status="204",transport="http"} 1"#,
            r#"locker_requests_total{call="list",status="gone",transport="http"} 1"#,
            r#"locker_requests_total{call="none",status="400",transport="zeromq"} 1"#,
            r#"locker_slots_total{slot="go"} 1"#,
            "locker_connections 2",
            "locker_zmq_connections 3",
            r#"locker_refused_connections_total{transport="zeromq"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
