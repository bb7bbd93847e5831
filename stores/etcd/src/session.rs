//! The session of this process: its inbox under a lease that is kept alive, and the watch on its mail.

use super::{
    client::{Client, Repeat},
    clock::EtcdClock,
    endpoints::Member,
    errors::{Failure, Meaning},
    health,
    keys::Keys,
    leases::{self, Leases},
    mails::texts,
    messages::{Compare, Op, Txn, TxnAnswer},
    watch::{Watch, keep_alive},
};
use locker_cas::{
    Draw, Inbox, Received,
    ticked::Source,
    ticker::{self, Ticking},
};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind},
    id::Id,
    panics,
};
use prost::bytes::Bytes;
use std::{
    fmt,
    str::from_utf8,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::watch;

/// Takes the messages to this process.
type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

/// What the store and its session share.
pub(super) struct Shared {
    pub(super) receiver: OnceLock<Receiver>,
    draw: Draw,
    inbox: AtomicU32,
    /// Below every fence of this cluster. 0 until it is known.
    base: AtomicU64,
    /// The last revision of the cluster that this process has seen.
    revision: AtomicI64,
}

impl Shared {
    pub(super) fn new(draw: Draw) -> Self {
        let inbox = AtomicU32::new(draw());
        let (receiver, base, revision) = (OnceLock::new(), AtomicU64::default(), AtomicI64::default());
        Self { receiver, draw, inbox, base, revision }
    }

    pub(super) fn inbox(&self) -> Inbox {
        self.inbox.load(Ordering::Acquire)
    }

    /// Draws another inbox: this one is that of another process.
    fn draw_inbox(&self) {
        self.inbox.store((self.draw)(), Ordering::Release);
    }

    pub(super) fn saw(&self, revision: i64) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns a number above every fence of a key that was seen to be absent. Fences rise by less than 65,536 with
    /// each write, and each write has a revision of its own.
    pub(super) fn fence_floor(&self) -> u64 {
        let revision = self.revision.load(Ordering::Acquire).unsigned_abs();
        self.base.load(Ordering::Acquire).saturating_add(revision.saturating_mul(FENCES_PER_REVISION))
    }

    fn tell(&self, received: Received<'_>) {
        if let Some(receiver) = self.receiver.get() {
            panics::contain(|| receiver(received));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// The state of the first connection.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Connecting,
    /// From now on calls are made, whatever becomes of the session.
    Ready,
    Failed(Failure),
}

pub(super) struct Session {
    /// The URL without user, password and files, for messages.
    pub(super) address: String,
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    pub(super) leases: Arc<Leases>,
    pub(super) clock: Arc<EtcdClock>,
    pub(super) shared: Arc<Shared>,
    pub(super) state: State,
}

/// A random text.
#[derive(Debug)]
struct Mark(Bytes);

impl Default for Mark {
    fn default() -> Self {
        Self(Id::random().to_string().into())
    }
}

/// What is known from the last connection.
#[derive(Debug, Default)]
pub(super) struct State {
    lease: Option<i64>,
    /// What the inbox of this process holds, by which it knows it.
    mark: Mark,
    cluster: u64,
    /// The revision that the watch resumes at. 0 for the present one.
    next: i64,
    /// The last revision that was seen before the cluster was last restored from a copy.
    gone_back_from: i64,
    /// Whether messages may have been lost, which the receiver has not been told.
    has_gap: bool,
}

impl Session {
    /// Keeps the session alive until the store is dropped, which holds the other side of `status`.
    pub(super) async fn keep(mut self, status: watch::Sender<Status>) {
        let _ending = background::Ending::new();
        let clock = Arc::clone(&self.clock);
        tokio::select! {
            () = self.stay_connected(&status) => {}
            () = ticker::keep(&*clock) => {}
            () = status.closed() => {}
        }
        ticker::leave(&*clock).await;
        if let Some(lease) = self.state.lease {
            leases::revoke(&self.client, lease).await;
        }
        self.leases.revoke().await;
    }

    /// Connects again and again.
    async fn stay_connected(&mut self, status: &watch::Sender<Status>) {
        let mut backoff = Backoff::default();
        loop {
            let ended = self.run(status, &mut backoff).await;
            let is_first = !matches!(*status.borrow(), Status::Ready);
            if is_first {
                panics::contain(|| status.send_replace(Status::Failed(ended)));
            }
            background::sleep(backoff.next_delay()).await;
        }
    }

    /// Resumes the session, and runs it until its connection fails.
    async fn run(&mut self, status: &watch::Sender<Status>, backoff: &mut Backoff) -> Failure {
        let (member, lease, mut watch) = match self.resume().await {
            Ok(resumed) => resumed,
            Err(failure) => return failure,
        };
        *backoff = Backoff::default();
        if !matches!(*status.borrow(), Status::Ready) {
            panics::contain(|| status.send_replace(Status::Ready));
            let address = std::mem::take(&mut self.address);
            background::spawn(health::check(Arc::clone(&self.client), self.keys.clone(), address));
        }
        if std::mem::take(&mut self.state.has_gap) {
            self.shared.tell(Received::Gap);
        }
        let beats = beat(Arc::clone(&self.client), Arc::clone(&member), lease);
        let failure = tokio::select! {
            failure = self.receive(&mut watch) => failure,
            failure = beats => failure,
        };
        self.failed(&member, &failure);
        failure
    }

    /// Draws the conclusions for the next connection.
    fn failed(&mut self, member: &Member, failure: &Failure) {
        match failure.meaning {
            Meaning::Unreachable | Meaning::Elsewhere | Meaning::Unknown => {
                self.client.endpoints.leave(member);
            }
            Meaning::Compacted => self.state.skip(),
            Meaning::LeaseGone => self.state.lease = None,
            _ => {}
        }
    }

    async fn receive(&mut self, watch: &mut Watch) -> Failure {
        loop {
            let seen = match watch.next().await {
                Ok(seen) => seen,
                Err(failure) => return failure,
            };
            if let Some(tick) = seen.tick {
                // A text that cannot be read is reported to callers.
                drop(self.clock.find(&tick, Source::Told, Timestamp::now()));
            }
            for change in seen.changes {
                for text in texts(&change.value) {
                    self.shared.tell(Received::Text(text));
                }
            }
            self.state.next = seen.next.unwrap_or(self.state.next);
        }
    }

    /// Puts the inbox in place and opens the watch.
    async fn resume(&mut self) -> Result<(Arc<Member>, i64, Watch), Failure> {
        let lease = if let Some(lease) = self.state.lease {
            lease
        } else {
            let (lease, _) = leases::grant_for(&self.client, SESSION_TTL.as_secs()).await?;
            *self.state.lease.insert(lease)
        };
        loop {
            match self.announce(lease).await {
                Ok(true) => break,
                // Waiters of this process have its number already.
                Ok(false) if self.state.cluster != 0 => return Err(inbox_is_taken()),
                Ok(false) => self.shared.draw_inbox(),
                Err(failure) => {
                    if failure.meaning == Meaning::LeaseGone {
                        self.state.lease = None;
                    }
                    return Err(failure);
                }
            }
        }
        let member = Arc::clone(self.client.endpoints.current());
        let resumed = async {
            if !keep_alive(&self.client, &member, lease).await? {
                return Err(lease_is_over());
            }
            let mail = self.keys.mail(self.shared.inbox());
            Watch::open(&self.client, &member, (mail, self.state.next), self.keys.clock()).await
        };
        match resumed.await {
            Ok(watch) => Ok((member, lease, watch)),
            Err(failure) => {
                self.failed(&member, &failure);
                Err(failure)
            }
        }
    }

    /// Writes the base and the inbox, unless they are there. Returns `false` if the inbox is that of another process.
    async fn announce(&mut self, lease: i64) -> Result<bool, Failure> {
        let (base, inbox, mark) =
            (self.keys.base(), self.keys.inbox(self.shared.inbox()), &self.state.mark.0);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros().to_string();
        let either = |compare, success, failure| Op::txn(Txn { compare: vec![compare], success, failure });
        let claim = || vec![Op::put(inbox.clone(), mark.clone(), lease)];
        let success = vec![
            either(Compare::exists(base.clone()), vec![], vec![Op::put(base.clone(), Bytes::from(now), 0)]),
            Op::get(base),
            either(
                Compare::is_of(inbox.clone(), 0),
                claim(),
                vec![either(
                    Compare::has(inbox.clone(), mark.clone()),
                    vec![either(Compare::is_under(inbox.clone(), lease), vec![], claim())],
                    vec![],
                )],
            ),
            self.clock.get(),
        ];
        let request = Txn { compare: vec![], success, failure: vec![] };
        // Before the request: other calls may see later revisions than its answer has.
        let seen = self.shared.revision();
        let answer: TxnAnswer = self.client.call("/etcdserverpb.KV/Txn", request, Repeat::Yes).await?;
        let revision = answer.revision();
        let base = answer.read(1).and_then(|base| from_utf8(&base.value).ok()?.parse::<u64>().ok());
        let Some(base) = base else {
            let what = format!("the key {} of etcd holds no number", self.keys.base_text());
            return Err(Failure { meaning: Meaning::Refused, error: Error::new(ErrorKind::Conflict, what) });
        };
        let before = self.shared.base.swap(base, Ordering::AcqRel);
        self.shared.saw(revision);
        let nested = |answer: &TxnAnswer, place: usize| answer.responses.get(place)?.txn.clone();
        let is_new = nested(&answer, 2).is_some_and(|txn| txn.succeeded);
        let own = nested(&answer, 2).and_then(|txn| nested(&txn, 0)).filter(|txn| txn.succeeded);
        if !is_new && own.is_none() {
            return Ok(false);
        }
        let was_there = own.and_then(|txn| nested(&txn, 0)).is_some_and(|txn| txn.succeeded);
        let cluster = answer.header.map_or(0, |header| header.cluster_id);
        let has_new_base = before != 0 && before != base;
        if self.state.meet(cluster, revision, was_there, seen) || has_new_base {
            self.clock.went_back();
        }
        self.clock.clock().doubt();
        self.clock.ensure(answer.read(3)).await.map(|()| true)
    }
}

impl State {
    /// Records the present state of the cluster, and whether the inbox was in place. `seen` is the last revision of
    /// which this process knew. Returns whether the cluster is another one, or was restored from a copy.
    pub(super) fn meet(&mut self, cluster: u64, revision: i64, has_inbox: bool, seen: i64) -> bool {
        let (is_first, next) = (self.cluster == 0, revision.saturating_add(1));
        let has_gone_back = next < self.next || revision < seen && seen != self.gone_back_from;
        let is_other = !is_first && (self.cluster != cluster || has_gone_back);
        if is_other {
            self.gone_back_from = seen;
        }
        if is_other || self.next == 0 {
            self.next = next;
        }
        // Without an inbox, others have sent nothing.
        self.has_gap |= is_other || !(has_inbox || is_first);
        self.cluster = cluster;
        is_other
    }

    /// Records that the changes since the last watch are not known any more.
    fn skip(&mut self) {
        (self.next, self.has_gap) = (0, true);
    }
}

/// Keeps the lease of the session alive, until that fails.
async fn beat(client: Arc<Client>, member: Arc<Member>, lease: i64) -> Failure {
    loop {
        tokio::select! {
            () = background::sleep(BEAT) => {}
            // A call has failed: does this member still answer?
            () = client.endpoints.left() => {}
        }
        match keep_alive(&client, &member, lease).await {
            Ok(true) => {}
            Ok(false) => return lease_is_over(),
            Err(failure) => return failure,
        }
    }
}

fn inbox_is_taken() -> Failure {
    let error = Error::new(ErrorKind::Unavailable, "another process has the inbox of this one at etcd");
    Failure { meaning: Meaning::Refused, error }
}

fn lease_is_over() -> Failure {
    let error = Error::new(ErrorKind::Unavailable, "the lease of this process at etcd is over");
    Failure { meaning: Meaning::LeaseGone, error }
}

const FENCES_PER_REVISION: u64 = 1 << 16;

/// How long the inbox outlives this process.
const SESSION_TTL: Duration = Duration::from_secs(10);

const BEAT: Duration = Duration::from_millis(2500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_noticed() {
        let mut state = State::default();
        state.meet(1, 10, false, 0);
        assert_eq!((state.next, state.has_gap), (11, false), "the first connection");
        state.next = 15;
        state.meet(1, 20, true, 20);
        assert_eq!((state.next, state.has_gap), (15, false), "resumed");
        state.meet(1, 14, true, 14);
        assert_eq!((state.next, state.has_gap), (15, false), "nothing has happened");
        for (what, cluster, revision, has_inbox, next) in
            [("no inbox", 1, 20, false, 15), ("a copy", 1, 9, true, 10), ("another cluster", 2, 30, true, 31)]
        {
            let mut state = State { cluster: 1, next: 15, ..State::default() };
            let is_other = state.meet(cluster, revision, has_inbox, 14);
            assert_eq!(is_other, has_inbox, "{what}");
            assert_eq!((state.next, state.has_gap), (next, true), "{what}");
        }
        for (revision, seen, is_other) in [(30, 88, true), (31, 88, false), (90, 90, false), (80, 90, true)] {
            state.next = 0;
            assert_eq!(state.meet(1, revision, true, seen), is_other, "{revision}");
        }
        state.next = 0;
        assert!(!state.meet(1, i64::MAX, true, i64::MAX), "no revision follows the greatest one");
        state.skip();
        state.meet(1, 40, true, 40);
        assert_eq!((state.next, state.has_gap), (41, true), "compacted");
    }
}
