//! Metrics: each call and each hold is recorded once, never with a key or an argument.

#![cfg(feature = "metrics")]

mod calls;
mod holds;
mod installed;
mod recorders;

use locker::{Locker, LockerBuilder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::{collections::BTreeMap, sync::Arc};

/// A recorder of one test.
struct Metrics(PrometheusHandle);

impl Metrics {
    /// Returns the recorder, and a builder of lockers that it counts.
    fn new() -> (Self, LockerBuilder) {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        (Self(handle), Locker::builder().recorder(Arc::new(recorder)))
    }

    /// Returns the recorder, and a locker on an embedded store that it counts.
    fn memory() -> (Self, Locker) {
        let (metrics, builder) = Self::new();
        (metrics, builder.store(locker::stores::Memory::new()).build_blocking().unwrap())
    }

    /// Returns the values of a metric by its labels, without those that are zero.
    fn of(&self, name: &str) -> BTreeMap<String, u64> {
        let text = self.0.render();
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let values = lines.filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'));
        let values = values.map(|(labels, value)| (labels.to_owned(), value.parse::<f64>().unwrap()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]
        values.filter(|(_, value)| *value != 0.0).map(|(labels, value)| (labels, value as u64)).collect()
    }

    /// Returns how many calls without a function have ended so.
    fn acquires(&self, kind: &str, outcome: &str) -> u64 {
        let labels = format!(r#"{{kind="{kind}",function="",outcome="{outcome}"}}"#);
        self.of("locker_acquires_total").get(&labels).copied().unwrap_or(0)
    }

    fn all_acquires(&self) -> u64 {
        self.of("locker_acquires_total").values().sum()
    }

    fn waiting(&self, kind: &str) -> u64 {
        self.of("locker_waiting").get(&format!(r#"{{kind="{kind}"}}"#)).copied().unwrap_or(0)
    }

    fn held(&self, kind: &str) -> u64 {
        self.of("locker_held").get(&format!(r#"{{kind="{kind}"}}"#)).copied().unwrap_or(0)
    }

    /// Returns how many waits and how many holds were measured.
    fn measured(&self) -> [u64; 2] {
        ["locker_wait_seconds_count", "locker_hold_seconds_count"].map(|name| self.of(name).values().sum())
    }

    fn assert_idle(&self) {
        for name in ["locker_waiting", "locker_held"] {
            assert_eq!(self.of(name), BTreeMap::new(), "{name} in\n{}", self.0.render());
        }
    }
}
