//! Bugs of other locks, each as a scenario that this library has to pass.

/// Tests that run on each of these stores.
macro_rules! exhibits {
    ($laws:tt on $($store:ident)+) => {
        $(exhibits!(@on $store $laws);)+
    };
    (@on $store:ident {$($law:ident),+}) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let Some(store) = crate::support::$store().await else { return };
                super::$law(&store).await;
            })+
        }
    };
}

mod crashes;
#[path = "../behaviour/gauges.rs"]
mod gauges;
mod late;
mod leases;
mod queues;
mod schedules;
#[path = "../behaviour/support.rs"]
#[allow(dead_code, reason = "the laws of the stores use more of it")]
mod support;
