//! The faults of a network.

use super::Pauses;
use locker_harness::{Fault, Proxy};
use std::time::Duration;

/// Those that a store takes whose clients reach it through proxies.
pub(super) const FAULTS: [&str; 5] = ["reset", "drop-replies", "execute-and-reset", "half-close", "delay"];

/// Breaks one of these proxies, or all at once if `fault` begins with `all-`, and mends it. Returns `None` if no fault
/// of a network has this name.
pub(super) fn strike(fault: &str, proxies: &[&Proxy], pauses: &mut Pauses<'_>) -> Option<()> {
    let (fault, shortest, longest) = match fault {
        "reset" => (Fault::Reset, 1, 300),
        "drop-replies" => (Fault::DropReplies, 50, 1_500),
        "drop-requests" => (Fault::DropRequests, 50, 1_500),
        "hold-requests" => (Fault::HoldRequests, 50, 1_500),
        "execute-and-reset" => (Fault::ExecuteAndReset, 1, 100),
        "half-close" => (Fault::HalfClose, 1, 300),
        "delay" => (Fault::Delay(Duration::from_millis(120)), 100, 1_000),
        _ => return None,
    };
    for proxy in proxies {
        proxy.set(fault.clone());
    }
    pauses.pause(shortest, longest);
    for proxy in proxies {
        proxy.set(Fault::None);
    }
    Some(())
}

/// Returns host and port of a proxy.
pub(super) fn address(proxy: &Proxy) -> String {
    proxy.url().trim_start_matches("redis://").to_owned()
}
