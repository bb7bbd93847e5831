//! Handing a lock on within this process, before Redis knows.
//!
//! The answers to those who queue, and to a contended release, say who comes next. As long as these wait in this very
//! process, a holder that releases chooses its heir, tells it at once, and names it in the release: the next one runs
//! while the release is on its way, and the order in the queue is kept. What makes this safe:
//!
//! - Redis keeps the lock for the one who releases until it hears of the heir; the heir's lease ends when his would
//!   have ended, until a renewal of its own.
//! - Releases go out in order, on one connection. One whose answer stays away is told again, with the same heir,
//!   before anything is said of the heir ([`Lines::may_have_lost`]).
//! - Answers are worked on in any order. That a release was carried out is certain, and so are those before it; that it
//!   was refused is certain only when those before it have had their answers, and no copy of it was carried out
//!   unheard.
//! - Who joins the queue follows the one that Redis names, which may be another than is believed to hold: a hold can be
//!   ended by force, and the lock be somebody else's, before the one who had it hears of that.
//! - A release that names an heir never becomes one that names none: then Redis could choose another.

use crate::{
    clock::Timestamp,
    id::Id,
    key::Key,
    lease::deadline,
    primitives::TOMBSTONE,
    sync::{Mutex, lock},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, OnceLock},
    time::Duration,
};

/// How many releases may be on their way at one key.
const UNANSWERED: usize = 16;

/// Of how many waiters Redis is asked to tell.
const TELL: usize = 32;

/// A release that names who holds next.
#[derive(Clone, Debug)]
pub(super) struct Bequest {
    pub(super) from: Id,
    pub(super) heir: Id,
    pub(super) lease: Duration,
    pub(super) fence: u64,
    /// Of how many who come after the heir Redis is to tell.
    pub(super) tell: usize,
    /// The connection it went out on; none when its answer did not come.
    sent_on: Option<u64>,
    /// A copy of it may have been carried out unheard.
    doubtful: bool,
    /// Whether it was carried out, once that is known.
    fate: Arc<OnceLock<bool>>,
}

impl Bequest {
    pub(super) fn was_carried_out(&self) -> bool {
        self.fate.get() == Some(&true)
    }

    fn end(&self, carried_out: bool) {
        // Read only by a release whose own copy was not carried out; what was told first counts.
        let _ = self.fate.set(carried_out);
    }
}

/// How a release is to be sent.
#[derive(Debug)]
pub(super) enum Release {
    /// Without an heir. Redis is to tell of so many waiters; if it is `quiet`, none of this process is known.
    Plain { tell: usize, quiet: bool },
    /// With one who is to be told that it holds until then.
    New(Bequest, Timestamp),
    /// As it was sent before.
    Again(Bequest),
}

/// What is known about one key.
#[derive(Debug, Default)]
struct Line {
    /// Who holds; of this process, and with a place for an heir.
    holder: Option<Id>,
    fence: u64,
    /// Until when the holder surely holds.
    until: Timestamp,
    /// Who comes after it, and for how long each wants to hold: all of this process.
    following: VecDeque<(Id, Duration)>,
    /// What is to be told about them was asked for.
    asked: bool,
    /// Somebody of this process has joined the queue since the holder came.
    wanted: bool,
    /// Releases that have not been answered, in their order.
    bequests: VecDeque<Bequest>,
    /// Nothing here is of use after that.
    stale_at: Timestamp,
    /// Whose turn it is to tell releases again.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Line {
    /// Whose turn is next, if there is time left for it.
    fn heir(&mut self, now: Timestamp, waits: impl Fn(Id) -> bool) -> Option<(Id, Duration)> {
        while let Some((id, lease)) = self.following.pop_front() {
            if waits(id) {
                // Else renewing it would be due at once.
                return (now + lease / 4 * 3 < self.until).then_some((id, lease));
            }
        }
        None
    }

    fn end(&mut self) {
        self.holder = None;
        self.following.clear();
        self.asked = false;
        self.wanted = false;
    }
}

/// What is known about the keys that this process holds and more than one of its waiters want.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<Key, Line>>);

impl Lines {
    /// Whether nobody of this process is known to hold the lock at `key`.
    pub(super) fn is_quiet(&self, key: &Key) -> bool {
        !lock(&self.0).contains_key(key)
    }

    /// How `id` is to be released at `key` over `connection`; `waits` tells who still waits here.
    pub(super) fn release(&self, key: &Key, id: Id, connection: u64, waits: impl Fn(Id) -> bool) -> Release {
        let mut lines = lock(&self.0);
        let Some(line) = lines.get_mut(key) else { return Release::Plain { tell: TELL, quiet: true } };
        if let Some(bequest) = line.bequests.iter().find(|bequest| bequest.from == id) {
            return Release::Again(bequest.clone());
        }
        if line.holder != Some(id) {
            return Release::Plain { tell: TELL, quiet: false };
        }
        let now = Timestamp::now();
        let is_full = line.bequests.len() >= UNANSWERED;
        let Some((heir, lease)) = line.heir(now, waits).filter(|_| !is_full) else {
            let quiet = !line.wanted;
            line.end();
            tidy(&mut lines, key);
            return Release::Plain { tell: TELL, quiet };
        };
        let runs_low = line.following.len() < TELL / 4 && !std::mem::replace(&mut line.asked, true);
        line.holder = Some(heir);
        line.fence += 1;
        line.until = line.until.min(now + lease);
        line.stale_at = line.until + lease + TOMBSTONE;
        let tell = if runs_low { TELL } else { 0 };
        let bequest = Bequest {
            from: id,
            heir,
            lease,
            fence: line.fence,
            tell,
            sent_on: Some(connection),
            doubtful: false,
            fate: Arc::default(),
        };
        line.bequests.push_back(bequest.clone());
        Release::New(bequest, line.until)
    }

    /// Whether a release that led to `id` holding may not have reached the server over `connection`.
    pub(super) fn may_have_lost(&self, key: &Key, id: Id, connection: u64) -> bool {
        let lines = lock(&self.0);
        let Some(Line { bequests, .. }) = lines.get(key) else { return false };
        let led = bequests.iter().position(|bequest| bequest.heir == id).map_or(0, |last| last + 1);
        bequests.iter().take(led).any(|bequest| bequest.sent_on != Some(connection))
    }

    /// The first of the releases that led to `id` holding and have had no answer.
    pub(super) fn first_unanswered(&self, key: &Key, id: Id) -> Option<Bequest> {
        let lines = lock(&self.0);
        let bequests = &lines.get(key)?.bequests;
        bequests.iter().any(|bequest| bequest.heir == id).then(|| bequests.front().cloned())?
    }

    /// To be locked by who tells releases at `key` again.
    pub(super) fn turn(&self, key: &Key) -> Option<Arc<tokio::sync::Mutex<()>>> {
        lock(&self.0).get(key).map(|line| Arc::clone(&line.turn))
    }

    /// The release of `from`, sent at that time, was carried out, and so were those before it.
    pub(super) fn carried_out(&self, key: &Key, from: Id, sent: Timestamp) {
        let mut lines = lock(&self.0);
        let Some(line) = lines.get_mut(key) else { return };
        let Some(at) = line.bequests.iter().position(|bequest| bequest.from == from) else { return };
        for bequest in line.bequests.drain(..=at) {
            bequest.end(true);
            if bequest.from == from && line.holder == Some(bequest.heir) {
                line.until = line.until.max(deadline(sent, bequest.lease));
            }
        }
        tidy(&mut lines, key);
    }

    /// The release of `from`, with none before it, was refused. Says whether the hold was lost; else an earlier copy
    /// may have ended it.
    pub(super) fn refused(&self, key: &Key, from: Id) -> bool {
        let mut lines = lock(&self.0);
        let Some(Line { bequests, .. }) = lines.get_mut(key) else { return false };
        if bequests.front().is_none_or(|first| first.from != from) {
            return false;
        }
        let Some(bequest) = bequests.pop_front() else { return false };
        bequest.end(bequest.doubtful);
        tidy(&mut lines, key);
        !bequest.doubtful
    }

    /// The release of `from` ended without an answer, or was not carried out; nothing if it has been told otherwise.
    pub(super) fn not_answered(&self, key: &Key, from: Id, doubtful: bool) {
        let mut lines = lock(&self.0);
        let bequests = lines.get_mut(key).map(|line| line.bequests.iter_mut());
        if let Some(bequest) = bequests.and_then(|mut all| all.find(|bequest| bequest.from == from)) {
            bequest.sent_on = None;
            bequest.doubtful |= doubtful;
        }
    }

    /// Redis has told who holds at `key` and who comes next: `HOLDER FENCE` and ` ID LEASE` for each.
    pub(super) fn told(&self, key: &Key, text: &str, waits: impl Fn(Id) -> bool) {
        let mut words = text.split(' ');
        let mut word = || words.next();
        let (Some(holder), Some(fence)) =
            (word().and_then(Id::parse), word().and_then(|fence| fence.parse().ok()))
        else {
            return;
        };
        let mut following = VecDeque::new();
        while let (Some(id), Some(lease)) =
            (word().and_then(Id::parse), word().and_then(|lease| lease.parse().ok()))
        {
            following.push_back((id, Duration::from_millis(lease)));
        }
        let mut lines = lock(&self.0);
        match lines.get_mut(key) {
            // It has been handed on since.
            Some(line) if line.fence > fence => {
                let Some(at) = following.iter().position(|(id, _)| Some(*id) == line.holder) else { return };
                line.following = following.split_off(at + 1);
                line.asked = false;
            }
            Some(line) if line.holder == Some(holder) => {
                // They are all of one process. If it is another, nobody here is next behind them.
                let are_ours = following.iter().any(|(id, _)| waits(*id));
                line.following = if are_ours { following } else { VecDeque::new() };
                line.asked = false;
            }
            // Who still waits has not released yet.
            _ if waits(holder) && !following.is_empty() => {
                let line = begin(&mut lines, key, holder, fence);
                line.following = following;
            }
            _ => {}
        }
    }

    /// The hold was granted or renewed for `lease` by a request sent at that time. Only who `waits` for that answer
    /// is news: others may have released meanwhile.
    pub(super) fn held(
        &self,
        key: &Key,
        id: Id,
        fence: u64,
        (sent, lease): (Timestamp, Duration),
        waits: impl Fn(Id) -> bool,
    ) {
        let mut lines = lock(&self.0);
        let line = match lines.get_mut(key) {
            Some(line) if line.holder == Some(id) && line.fence >= fence => line,
            // Also one that has come back to the end of the queue: others come after it now.
            _ if waits(id) => begin(&mut lines, key, id, fence),
            _ => return,
        };
        line.until = line.until.max(deadline(sent, lease));
        line.stale_at = line.until + lease + TOMBSTONE;
    }

    /// `id` has joined the queue for `lease`, right behind `before`: the last who waits, else the holder.
    pub(super) fn queued(&self, key: &Key, id: Id, before: Id, lease: Duration) {
        let mut lines = lock(&self.0);
        let Some(line) = lines.get_mut(key).filter(|line| line.holder.is_some()) else { return };
        line.wanted = true;
        let last = line.following.back().map(|(id, _)| *id).or(line.holder);
        if last == Some(before) {
            line.following.push_back((id, lease));
        }
    }

    /// The server says that `id` holds: what is believed of another is wrong.
    pub(super) fn granted(&self, key: &Key, id: Id) {
        self.end(key, |line| line.holder != Some(id));
    }

    /// `id` holds no more, and has no heir.
    pub(super) fn over(&self, key: &Key, id: Id) {
        self.end(key, |line| line.holder == Some(id));
    }

    /// Nobody here holds any more.
    pub(super) fn lost(&self, key: &Key) {
        self.end(key, |_| true);
    }

    fn end(&self, key: &Key, which: impl Fn(&Line) -> bool) {
        let mut lines = lock(&self.0);
        let Some(line) = lines.get_mut(key).filter(|line| which(line)) else { return };
        line.end();
        tidy(&mut lines, key);
    }
}

/// Forgets a line that nobody holds and nothing is on its way at.
fn tidy(lines: &mut HashMap<Key, Line>, key: &Key) {
    if lines.get(key).is_some_and(|line| line.holder.is_none() && line.bequests.is_empty()) {
        lines.remove(key);
    }
}

/// What is known from now on, in place of what was; releases that are on their way stay.
fn begin<'a>(lines: &'a mut HashMap<Key, Line>, key: &Key, holder: Id, fence: u64) -> &'a mut Line {
    let now = Timestamp::now();
    if lines.len() >= lines.capacity() {
        lines.retain(|_, line| line.stale_at > now);
    }
    let line = lines.entry(key.clone()).or_default();
    line.end();
    (line.holder, line.fence, line.until) = (Some(holder), fence, Timestamp::default());
    line.stale_at = now + TOMBSTONE;
    line
}

#[cfg(test)]
mod tests;
