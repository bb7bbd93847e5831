//! The value of one key: its state, and what outlives the state.

use super::{messages::Holds, ticked::Next, time::Time};
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    primitives::{AnyState, Context, Reply, Request, TOMBSTONE, Tombstones},
};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The first byte of every value.
const MAGIC: u8 = b'L';

/// The newest format that is known. A change of a state is a new format, and so is a new kind of state: its values
/// alone have the new format, so that former versions still share the others.
const FORMAT: u8 = 3;

/// The oldest format that is read, which is that of all states but records.
const OLDEST: u8 = 2;

/// The bytes before the nonce: magic, format, oldest reader.
const NONCE_AT: usize = 3;

/// The bytes before the body: those before the nonce, nonce, stamp.
pub(super) const HEAD_LEN: usize = NONCE_AT + 8 + 8;

/// A value with a higher fence, or of a later time, is damaged: the next fence is at least that time, and fences could
/// not rise from there for long.
pub(super) const HIGHEST_FENCE: u64 = u64::MAX / 2;

/// What is kept for one key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    state: Option<AnyState>,
    /// The highest fence of the states that are over.
    last_fence: u64,
    /// Requests for a deletion of which late copies are rejected.
    deletions: Tombstones,
    /// Whether the key was deleted: its state only keeps replies for retries.
    is_deleted: bool,
}

/// A value as it is stored. The default is that of a key without one.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    /// The entry as bytes. Equal entries have equal bytes.
    pub(super) body: Vec<u8>,
    /// When the latest step ran, on the clock of the key.
    pub(super) stamp: Timestamp,
    /// A random number that is different in every write.
    pub(super) nonce: u64,
}

impl Default for Stored {
    fn default() -> Self {
        let entry = Entry::default();
        Self { body: entry.to_bytes(), entry, stamp: Timestamp::default(), nonce: 0 }
    }
}

impl Stored {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_LEN + self.body.len());
        // The second number is the oldest format whose readers understand the value.
        let format = self.entry.format();
        bytes.extend([MAGIC, format, format]);
        bytes.extend(self.nonce.to_be_bytes());
        bytes.extend(self.stamp.as_micros().to_be_bytes());
        bytes.extend(&self.body);
        bytes
    }

    /// Returns the nonce of a value, if it is one of this library.
    pub(super) fn nonce_of(value: Option<&[u8]>) -> Option<u64> {
        let (head, _) = value?.split_at_checked(HEAD_LEN)?;
        Some(number(&head[NONCE_AT..NONCE_AT + 8])).filter(|_| head[0] == MAGIC)
    }

    /// # Errors
    /// `Conflict` if the bytes are of a later version of this library, or of something else. They are never taken for
    /// an absent value.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let foreign = || Error::new(ErrorKind::Conflict, "the key has a value that is not of this library");
        let (head, body) = bytes.split_at_checked(HEAD_LEN).ok_or_else(foreign)?;
        let (marks, numbers) = head.split_at(NONCE_AT);
        if marks[0] != MAGIC {
            return Err(foreign());
        }
        let (format, oldest_reader) = (marks[1], marks[2]);
        if oldest_reader > FORMAT || format < OLDEST {
            let other = if format < OLDEST { "an earlier" } else { "a later" };
            let message = format!(
                "the key was written by {other} version of this library, in format {format}; this version has format \
                 {FORMAT}: let all processes of the store have one version"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let (nonce, stamp) = numbers.split_at(8);
        let damaged =
            || Error::new(ErrorKind::Conflict, "the key has a value that cannot be read: it is damaged");
        let entry: Entry = postcard::from_bytes(body).map_err(|error| damaged().with_source(error))?;
        let stamp = number(stamp);
        if entry.last_fence().max(stamp) > HIGHEST_FENCE || entry.is_held_above_its_last_fence() {
            return Err(damaged());
        }
        let stamp = Timestamp::from_micros(stamp);
        Ok(Self { entry, body: body.to_vec(), stamp, nonce: number(nonce) })
    }
}

/// When a value was written, by a clock that processes move on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    pub(super) at: Timestamp,
    /// Whether its time goes on while no process moves the clock. Of what is left of a former state nobody knows.
    counts_gaps: Option<bool>,
}

impl Stamped {
    /// Returns the time of a value, if it can be read.
    #[must_use]
    pub fn of(value: &[u8]) -> Option<Self> {
        let Stored { entry, stamp, .. } = Stored::from_bytes(value).ok()?;
        Some(Self { at: stamp, counts_gaps: entry.counts_gaps() })
    }

    /// Returns whether it was surely written at least `ago` before the present time.
    #[must_use]
    pub fn is_past(&self, time: &Time, ago: Duration) -> bool {
        let gaps = if self.counts_gaps == Some(true) { time.gaps } else { Duration::ZERO };
        time.now + gaps >= self.at + ago
    }
}

/// The latest time of all values, at which a clock is made anew that was lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latest {
    time: Timestamp,
    with_gaps: Timestamp,
}

impl Latest {
    /// Takes note of a value.
    pub fn see(&mut self, value: &[u8]) {
        match Stamped::of(value) {
            Some(Stamped { at, counts_gaps: Some(false) }) => self.time = self.time.max(at),
            // What is left of a former state may be that of a limit.
            Some(Stamped { at, .. }) => self.with_gaps = self.with_gaps.max(at),
            None => {}
        }
    }

    /// Takes note of the time of a process that knew the last clock.
    pub fn know(&mut self, time: &Time) {
        self.time = self.time.max(time.now);
        self.with_gaps = self.with_gaps.max(time.now + time.gaps);
    }

    /// Returns where the clock begins: at the wall clock only if nothing is known. Values that count gaps are ahead of
    /// the others by the gaps.
    #[must_use]
    pub fn next(self) -> Next {
        let Self { time, with_gaps } = self;
        let mut time = if time == Timestamp::default() { with_gaps } else { time };
        if time == Timestamp::default() {
            time = time + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        }
        Next { time, gaps: with_gaps.since(time) }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Entry {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data in memory can be written")
    }

    /// Returns the format that the value has.
    fn format(&self) -> u8 {
        if matches!(self.state, Some(AnyState::Record(_))) { FORMAT } else { OLDEST }
    }

    /// Carries out one request, as the embedded store does.
    pub(super) fn step(&mut self, request: &Request, context: &mut Context<'_>) -> Reply {
        self.deletions.forget_until(context.now);
        if let Request::Delete(once) = request
            && self.deletions.is_late(Some(*once), context.now)
        {
            return Reply::Unknown;
        }
        let is_for_any_kind = matches!(request, Request::Inspect | Request::Delete(_));
        if is_for_any_kind && !self.is_in_use_at(context) {
            return Reply::Unknown;
        }
        if let Some(state) = &mut self.state {
            let reply = state.step(request, context);
            if reply == Reply::WrongKind {
                state.tick(context);
            }
            self.is_deleted |= reply == Reply::Deleted;
            self.forget_idle();
            if reply != Reply::WrongKind || self.state.is_some() {
                return reply;
            }
        }
        let Some(mut state) = AnyState::for_request(request) else { return Reply::Unknown };
        state.raise_fence(self.last_fence);
        let reply = state.step(request, context);
        self.state = Some(state);
        self.forget_idle();
        reply
    }

    fn forget_idle(&mut self) {
        if let Some(state) = self.state.take_if(|state| state.is_idle()) {
            self.last_fence = self.last_fence.max(state.last_fence());
        }
        self.is_deleted &= self.state.as_ref().is_some_and(|state| !state.is_in_use());
    }

    /// Applies what is due, and returns whether the key has a state that was not deleted.
    pub(super) fn is_in_use_at(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(state) = &mut self.state {
            state.tick(context);
        }
        self.forget_idle();
        self.state.is_some() && !self.is_deleted
    }

    /// Returns whether the key counts the gaps of the store's clock, if it has a state.
    pub(super) fn counts_gaps(&self) -> Option<bool> {
        self.state.as_ref().map(AnyState::counts_gaps)
    }

    /// Returns whether a request asks for a hold by name that is held. In a quiet time it may have been released since.
    pub(super) fn regrants(&self, request: &Request, now: Timestamp) -> bool {
        let held = |name| self.state.as_ref().is_some_and(|state| state.is_held(name, now));
        request.hold_name().is_some_and(held)
    }

    /// Returns whether a refused caller that does not wait would hold what is free, if it were not a quiet time.
    pub(super) fn would_grant(&self, request: &Request, reply: &Reply) -> bool {
        matches!(reply, Reply::Busy { .. })
            && self.state.as_ref().is_none_or(|state| state.is_free_for(request))
    }

    /// Returns until when the waiter `id` has its place.
    pub(super) fn place(&self, id: Id) -> Option<Timestamp> {
        self.state.as_ref()?.place(id)
    }

    /// Returns the fence and the end of the hold, if the key is an exclusive lock that is held.
    pub(super) fn exclusive_holder(&self) -> Option<(u64, Timestamp)> {
        self.state.as_ref()?.exclusive_holder()
    }

    /// Whether the next fence could be as low as a holder's.
    fn is_held_above_its_last_fence(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.held_fence() > state.last_fence())
    }

    /// Returns how long the longest hold lasts after `now`.
    pub(super) fn holds_for(&self, now: Timestamp) -> Duration {
        match self.state.as_ref().map_or(now, AnyState::held_until) {
            Timestamp::NEVER => Duration::MAX,
            until => until.since(now),
        }
    }

    /// Returns the highest fence so far.
    pub(super) fn last_fence(&self) -> u64 {
        self.state.as_ref().map_or(0, AnyState::last_fence).max(self.last_fence)
    }

    /// Returns how long the value matters after `now` if no request comes.
    pub(super) fn lasts(&self, now: Timestamp) -> Duration {
        match self.state.as_ref().map_or(now, AnyState::lasts_until) {
            Timestamp::NEVER => Duration::MAX,
            until => until.since(now) + TOMBSTONE,
        }
    }

    /// Returns what can be held at the key.
    pub(super) fn holds(&self) -> Holds {
        match self.state {
            Some(AnyState::Lock(_)) => Holds::Lock,
            Some(AnyState::Semaphore(_)) => Holds::Permits,
            Some(AnyState::Record(ref record)) => record.run().map_or(Holds::Nothing, Holds::Run),
            _ => Holds::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::{
        key::Key,
        primitives::{HoldKind, record},
    };

    const LEASE: Duration = Duration::from_secs(60);

    fn read(last_fence: u64, stamp: u64) -> Result<Stored> {
        let entry = Entry { last_fence, ..Entry::default() };
        let stamp = Timestamp::from_micros(stamp);
        Stored::from_bytes(&Stored { body: entry.to_bytes(), stamp, ..Stored::default() }.to_bytes())
    }

    /// The next holder got a lower fence than the present one.
    #[test]
    fn holder_above_the_last_fence_is_damaged() {
        let (key, now, id) = (Key::new("k"), Timestamp::from_micros(1 << 50), Id::random());
        let begin = record::Ask::default().begin(id, LEASE, None);
        let kinds = [HoldKind::Lock, HoldKind::Semaphore { size: 2, permits: 1 }]
            .map(|kind| kind.acquire(id, LEASE, None));
        for request in kinds.into_iter().chain([Request::Record(begin)]) {
            let (mut entry, mut notifications) = (Entry::default(), Vec::new());
            entry.step(&request, &mut Context::new(&key, now, &mut notifications));
            let fence = entry.last_fence();
            let [present, lower] = [fence, fence - 1].map(|fence| postcard::to_stdvec(&fence).unwrap());
            let body = entry.to_bytes();
            let places = (0..body.len()).filter(|at| body[*at..].starts_with(&present)).collect::<Vec<_>>();
            // Those of the holder, and the last one, which alone makes the value damaged.
            assert!(places.len() > 1, "{request:?}");
            let damaged = places.into_iter().filter(|at| {
                let mut body = body.clone();
                body.splice(*at..at + present.len(), lower.iter().copied());
                Stored::from_bytes(&Stored { body, ..Stored::default() }.to_bytes()).is_err()
            });
            assert_eq!(damaged.count(), 1, "{request:?}");
        }
    }

    /// Two holders got the highest of all fences. After a grant at a later time, nobody could read the value.
    #[test]
    fn fence_that_none_follows_is_damaged() {
        let highest = read(HIGHEST_FENCE, HIGHEST_FENCE).unwrap();
        assert_eq!((highest.entry.last_fence(), highest.stamp.as_micros()), (HIGHEST_FENCE, HIGHEST_FENCE));
        for beyond in [HIGHEST_FENCE + 1, u64::MAX] {
            for damaged in [read(beyond, 0), read(0, beyond)] {
                let error = damaged.unwrap_err();
                assert!(
                    error.kind() == ErrorKind::Conflict && error.message().contains("damaged"),
                    "{error}"
                );
            }
        }
    }
}
