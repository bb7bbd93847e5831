//! What stood in the way of a call that was not granted.

use std::{fmt, time::Duration};

/// How many holders a message names.
const NAMED: usize = 3;

/// What stood in the way of a call that waited for a lock or for permits and was not granted: the holders as of the end
/// of the wait, the waiters ahead of it, and the place of the call. [`Error::blocked`](super::Error::blocked) returns
/// it.
///
/// `Display` writes `held by web-3:4711 in bank.withdraw (src/bank.rs:12) for 41s, fence 1732285812000000; 2 ahead;
/// asked at src/api.rs:88`, without the parts that are not known. It names the first three holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    holders: Vec<Holder>,
    ahead: Option<usize>,
    place: Option<String>,
}

impl Blocked {
    /// Creates the answer of a store.
    #[doc(hidden)]
    #[must_use]
    pub fn new(holders: Vec<Holder>, ahead: Option<usize>) -> Self {
        Self { holders, ahead, place: None }
    }

    /// Returns the holders, in the order of their fences. Empty if the store did not tell in time.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns how many callers waited ahead of this one. Returns `None` if that is not known: the store did not tell
    /// in time, the caller had left the queue, or 100 or more were ahead.
    #[must_use]
    pub fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    /// Returns the file and the line of the call, or of the function with the attribute, such as `src/api.rs:88`.
    /// Returns `None` for calls from other languages without a decorator, and for calls of the command line.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    pub(super) fn set_place(&mut self, place: String) {
        self.place = Some(place);
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.holders.is_empty() {
            let mut named: Vec<_> =
                self.holders.iter().take(NAMED).map(|holder| format!("by {holder}")).collect();
            named.extend(
                self.holders.len().checked_sub(NAMED + 1).map(|more| format!("by {} more", more + 1)),
            );
            parts.push(format!("held {}", named.join(" and ")));
        }
        parts.extend(self.ahead.map(|ahead| format!("{ahead} ahead")));
        parts.extend(self.place.as_ref().map(|place| format!("asked at {place}")));
        f.write_str(&parts.join("; "))
    }
}

/// A holder of a lock or of permits, with what is known of it.
///
/// `Display` writes `web-3:4711 in bank.withdraw (src/bank.rs:12) for 41s, fence 1732285812000000`, without the parts
/// that are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The text of the holder about itself: `LockerBuilder::note`, by default host and process. `None` if it is not
    /// known, such as for clients of a server.
    pub note: Option<String>,
    /// The annotated function that the key belongs to, by its path or its `name = ".."`. `None` for keys of names, and
    /// if no process has told the store about the function.
    pub function: Option<String>,
    /// The file of [`function`](Self::function). If functions of one program share a name, the places of the others are
    /// before it: `src/bank.rs:12, src/api.rs`.
    pub file: Option<String>,
    /// The line of [`function`](Self::function).
    pub line: Option<u32>,
    /// The fencing token. A run of waiters that hold a lock on Redis one after the other has the fence of its last
    /// member.
    pub fence: u64,
    /// The time since the grant. For a lock it follows from the fence and the clock of this host. It is `None` if the
    /// fence is ahead of that clock, and on etcd and ZooKeeper, where fences are no times.
    pub age: Option<Duration>,
    /// The time that is left without a renewal. `None` if the hold has no end.
    pub time_left: Option<Duration>,
    /// The number of permits.
    pub permits: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.note.as_deref().filter(|note| !note.is_empty()).unwrap_or("an unknown holder"))?;
        if let Some(function) = &self.function {
            write!(f, " in {function}")?;
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, " ({file}:{line})")?;
        }
        if let Some(age) = self.age {
            write!(f, " for {}", humantime::format_duration(rounded(age)))?;
        }
        write!(f, ", fence {}", self.fence)
    }
}

/// Returns whole seconds, or whole milliseconds of less than one second.
fn rounded(time: Duration) -> Duration {
    match time.as_secs() {
        0 => Duration::from_millis(u64::from(time.subsec_millis())),
        seconds => Duration::from_secs(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};

    fn holder(fence: u64) -> Holder {
        Holder { note: Some("web-3:4711".into()), fence, permits: 1, ..Holder::default() }
    }

    #[test]
    fn message_has_all_that_is_known() {
        let holder = Holder {
            function: Some("bank.withdraw".into()),
            file: Some("src/bank.rs".into()),
            line: Some(12),
            age: Some(Duration::from_millis(41_700)),
            ..holder(1732)
        };
        let error = Error::new(ErrorKind::TimedOut, "not acquired within 10s");
        let error = error.with_blocked(Blocked::new(vec![holder], Some(2))).asked_at("src/api.rs:88".into());
        assert_eq!(
            error.to_string(),
            "timed out: not acquired within 10s: held by web-3:4711 in bank.withdraw (src/bank.rs:12) for 41s, \
             fence 1732; 2 ahead; asked at src/api.rs:88"
        );
        let blocked = error.blocked().unwrap();
        assert_eq!(error.message(), format!("not acquired within 10s: {blocked}"));
        assert_eq!((blocked.ahead(), blocked.place()), (Some(2), Some("src/api.rs:88")));
        let of_all = error.with_message("not acquired within 20s");
        assert!(of_all.message().starts_with("not acquired within 20s: held by web-3:4711 in"), "{of_all}");
    }

    #[test]
    fn message_leaves_out_what_is_not_known() {
        let message = |holders: Vec<Holder>| Blocked::new(holders, None).to_string();
        assert_eq!(message(Vec::new()), "");
        let unknown =
            Holder { age: Some(Duration::from_micros(350_999)), ..Holder { note: None, ..holder(7) } };
        assert_eq!(message(vec![unknown]), "held by an unknown holder for 350ms, fence 7");
        let many = (1..=5).map(holder).collect();
        let named = "by web-3:4711, fence 1 and by web-3:4711, fence 2 and by web-3:4711, fence 3";
        assert_eq!(message(many), format!("held {named} and by 2 more"));
        let error = Error::new(ErrorKind::TimedOut, "not acquired within 1s").asked_at("a.rs:1".into());
        assert_eq!(error.message(), "not acquired within 1s", "nothing was asked");
        let error = error.with_blocked(Blocked::default());
        assert_eq!(error.message(), "not acquired within 1s");
        assert_eq!(error.asked_at("a.rs:1".into()).message(), "not acquired within 1s: asked at a.rs:1");
    }
}
