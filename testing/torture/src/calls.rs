//! The calls of one worker that are under way, and those that do not return.

use crate::record::{now, say};
use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

/// No call waits for longer than 3 s, and no fault lasts for longer than 2.5 s. In nanoseconds.
const TOO_LONG: u64 = 12_000_000_000;

const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The latest call of each caller.
#[derive(Debug)]
pub(crate) struct Calls(Vec<Mutex<Call>>);

#[derive(Clone, Debug, Default)]
struct Call {
    name: String,
    since: u64,
    is_reported: bool,
}

impl Calls {
    pub(crate) fn new(callers: usize) -> Self {
        Self((0..callers).map(|_| Mutex::default()).collect())
    }

    /// Records that a caller begins a call, and so has ended the one before.
    pub(crate) fn begin(&self, caller: usize, name: &str) {
        let call = Call { name: name.to_owned(), since: now(), is_reported: false };
        *self.0[caller].lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    /// Reports calls that take too long, until the output is closed.
    pub(crate) fn watch(&self) {
        loop {
            thread::sleep(CHECK_INTERVAL);
            for line in self.hanging(now()) {
                if say(&line).is_none() {
                    return;
                }
            }
            if say("").is_none() {
                return;
            }
        }
    }

    fn hanging(&self, now: u64) -> Vec<String> {
        let line = |call: &Mutex<Call>| {
            let mut call = call.lock().unwrap_or_else(PoisonError::into_inner);
            let hangs = call.since > 0 && !call.is_reported && call.since + TOO_LONG < now;
            call.is_reported |= hangs;
            hangs.then(|| format!("hanging {} {} .", call.name, call.since))
        };
        self.0.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_that_does_not_return_is_reported_once() {
        let calls = Calls::new(2);
        calls.begin(1, "lock:0");
        let late = now() + TOO_LONG;
        assert_eq!(calls.hanging(now()), [""; 0]);
        assert!(calls.hanging(late).concat().starts_with("hanging lock:0 "));
        assert_eq!(calls.hanging(late + 1), [""; 0]);
        calls.begin(1, "lock:1");
        assert_eq!(calls.hanging(late), [""; 0]);
    }
}
