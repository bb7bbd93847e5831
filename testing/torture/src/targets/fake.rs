//! A backend in this process that refuses, delays and loses.

use super::Target;
use std::time::Duration;

/// With the name of its clock.
pub(super) struct Fake(pub(super) &'static str);

impl Target for Fake {
    fn url(&self) -> String {
        format!("fake://torture?clock={}&delay=1ms&faults=5", self.0)
    }

    fn direct_url(&self) -> String {
        format!("fake://torture?clock={}", self.0)
    }

    fn clock_is_late_by(&self) -> Duration {
        Duration::from_secs(if self.0 == "ticked" { 3 } else { 0 })
    }

    fn clock_gains(&self) -> Duration {
        Duration::from_secs(u64::from(self.0 == "ticked"))
    }

    fn has_processes(&self) -> bool {
        false
    }
}
