//! A throttle for log lines that would otherwise repeat with every call.

use crate::sync::lock;
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// The minimum time between two lines about the same event.
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits each [`LogEvent`] to one log line per interval.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle([Mutex<Option<Instant>>; 5]);

/// An event that may repeat with every call or connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogEvent {
    HttpRefused,
    ZmqRefused,
    AcceptFailed,
    StoreUnavailable,
    UnreadAnswers,
}

impl LogThrottle {
    /// Returns `true` if a line about `event` may be logged now.
    pub(crate) fn is_due(&self, event: LogEvent) -> bool {
        let mut last = lock(&self.0[event as usize]);
        let due = last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_due_once_per_interval() {
        let (throttle, one, other) =
            (LogThrottle::default(), LogEvent::HttpRefused, LogEvent::StoreUnavailable);
        assert_eq!([one, other, one, other].map(|event| throttle.is_due(event)), [true, true, false, false]);
    }
}
