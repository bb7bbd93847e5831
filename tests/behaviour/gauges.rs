//! The gauges of the locker under test: after each law nothing is held, and nobody waits.

#[cfg(feature = "metrics")]
mod recorded {
    use locker::LockerBuilder;
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
    use std::sync::Arc;

    pub(crate) struct Gauges(PrometheusHandle);

    impl Gauges {
        pub(crate) fn of(builder: LockerBuilder) -> (Self, LockerBuilder) {
            let recorder = PrometheusBuilder::new().build_recorder();
            (Self(recorder.handle()), builder.recorder(Arc::new(recorder)))
        }

        /// Waits until they are zero: a law may leave tasks that are about to end.
        pub(crate) async fn fall(&self) {
            let is_up = |line: &&str| {
                let is_gauge = ["locker_held{", "locker_waiting{"].iter().any(|name| line.starts_with(name));
                is_gauge && !line.ends_with(" 0")
            };
            let up = || self.0.render().lines().filter(is_up).map(str::to_owned).collect::<Vec<_>>();
            locker_harness::until("the gauges are zero", async || up().is_empty()).await;
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod recorded {
    use locker::LockerBuilder;

    pub(crate) struct Gauges;

    impl Gauges {
        pub(crate) fn of(builder: LockerBuilder) -> (Self, LockerBuilder) {
            (Self, builder)
        }

        #[expect(clippy::unused_async, clippy::unused_self, reason = "there are none")]
        pub(crate) async fn fall(&self) {}
    }
}

pub(crate) use recorded::Gauges;
