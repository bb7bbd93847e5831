//! Strict mode: after anything that may have lost grants, nothing is granted until they are over.
//!
//! Each script for holds compares the server's replication id with its record (`lua/strict.lua`): a server with another
//! id may have lost writes. `model` has the reasons for each rule.

#[cfg(test)]
mod model;
#[cfg(test)]
pub(super) mod reference;

use locker_core::{
    error::Result,
    primitives::{HoldRequest, Request, record},
    ranges::misused,
};
use std::time::Duration;

/// How long a former master may go on, and how far the clocks of two servers may be apart, together.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// The settings of a locker in strict mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict {
    pub(super) longest: Duration,
}

impl Strict {
    /// Returns the last arguments of scripts in strict mode: the longest lease and the slack, in milliseconds.
    pub(super) fn limits(self) -> (u64, u64) {
        let whole = |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        (whole(self.longest), whole(SLACK))
    }

    /// Refuses leases that may outlast the time in which nothing is granted.
    pub(super) fn check(self, request: &Request) -> Result<()> {
        let lease = match request {
            Request::Lock(HoldRequest::Acquire { lease, .. } | HoldRequest::Renew { lease, .. })
            | Request::Semaphore(HoldRequest::Acquire { lease, .. } | HoldRequest::Renew { lease, .. })
            | Request::Record(record::Request::Hold(
                HoldRequest::Acquire { lease, .. } | HoldRequest::Renew { lease, .. },
            )) => *lease,
            _ => return Ok(()),
        };
        if lease <= self.longest {
            return Ok(());
        }
        let shown = match lease {
            Duration::MAX => "without end".to_owned(),
            lease => format!("of {}", humantime::format_duration(lease)),
        };
        let longest = humantime::format_duration(self.longest);
        misused(format!("a lease {shown} is longer than strict mode allows, which is {longest} here"))
    }
}
