//! Runs: the lock is granted to several waiters of one process at once, which hand it off to each other.

use crate::support::{
    LAST_FENCE, builder, clock, commands_run, connect, grant_at_the_server, hold, holder, in_time,
    nobody_is_left, until, waiting,
};
use futures_util::FutureExt;
use locker::{ErrorKind, Guard, Locker};
use locker_harness::{Fault, Proxy, RedisServer};
use std::{pin::pin, task::Poll, time::Duration};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// The grants of the waiters, in their order.
pub(crate) struct Turns {
    pub(crate) sender: UnboundedSender<(usize, Guard)>,
    pub(crate) receiver: UnboundedReceiver<(usize, Guard)>,
    waiters: JoinSet<()>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver, waiters: JoinSet::new() }
    }

    /// Adds a waiter for the lock `a`, behind all others.
    async fn queue(&mut self, server: &RedisServer, locker: &Locker) {
        self.queue_unheard(server, locker).await;
        // Its reply comes after the waiter's.
        hold(locker, "another").await.release().await.unwrap();
    }

    /// The same without waiting for its reply.
    async fn queue_unheard(&mut self, server: &RedisServer, locker: &Locker) {
        let (ahead, sender, request) = (waiting(server, "lock:a"), self.sender.clone(), locker.lock("a"));
        let number = self.waiters.len();
        self.waiters.spawn(async move {
            let guard = request.acquire().await.expect("the lock");
            drop(sender.send((number, guard)));
        });
        until("the place in the queue", async || waiting(server, "lock:a") > ahead).await;
    }

    pub(crate) async fn next(&mut self) -> (usize, Guard) {
        in_time("the next grant", self.receiver.recv()).await.expect("a grant")
    }

    /// Returns the next grant, which belongs to `number`.
    async fn of(&mut self, number: usize) -> Guard {
        let (granted, guard) = self.next().await;
        assert_eq!(granted, number);
        guard
    }
}

/// A server, a proxy before it, a locker behind that, and `count` waiters, of which the first holds the lock now.
async fn line(count: usize) -> Option<(RedisServer, Proxy, Locker, Turns, Guard)> {
    let server = RedisServer::start()?;
    let proxy = Proxy::to(server.port());
    let locker = connect(&proxy.url()).await;
    let (before, mut turns) = (hold(&locker, "a").await, Turns::new());
    for _ in 0..count {
        turns.queue(&server, &locker).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    Some((server, proxy, locker, turns, first))
}

#[tokio::test]
async fn handed_off_hold_is_renewed() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    let release = tokio::spawn(first.release());
    let second = turns.of(1).await;
    in_time("the release", release).await.unwrap().unwrap();
    let _: i64 = server.ask("PEXPIRE", &["lock:a", "3000"]);
    until("a renewal", async || server.ask::<i64>("PTTL", &["lock:a"]) > 4_000).await;
    second.check().unwrap();
    second.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn script_flush_keeps_the_order_of_hand_offs() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(6).await else { return };
    let _: () = server.ask("SCRIPT", &["FLUSH"]);
    let mut releases = JoinSet::new();
    releases.spawn(first.release());
    for number in 1..6 {
        releases.spawn(turns.of(number).await.release());
    }
    while let Some(release) = in_time("the releases", releases.join_next()).await {
        release.unwrap().unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn aborted_waiter_is_passed_over() {
    let Some((server, _proxy, locker, mut turns, first)) = line(1).await else { return };
    let quitter = tokio::spawn(locker.lock("a").acquire());
    until("the quitter's place", async || waiting(&server, "lock:a") == 1).await;
    turns.queue(&server, &locker).await;
    quitter.abort();
    assert!(quitter.await.unwrap_err().is_cancelled());
    first.release().await.unwrap();
    turns.of(1).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn other_processes_are_not_passed() {
    let Some(server) = RedisServer::start() else { return };
    // Another URL makes another connection, as another process would.
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let (before, mut turns) = (hold(&ours, "a").await, Turns::new());
    let order = [&ours, &ours, &theirs, &ours, &theirs, &theirs, &ours, &ours, &ours, &theirs];
    for locker in order {
        turns.queue(&server, locker).await;
    }
    before.release().await.unwrap();
    let mut fence = 0;
    for number in 0..order.len() {
        let guard = turns.of(number).await;
        assert!(guard.fence() > fence);
        fence = guard.fence();
        guard.release().await.unwrap();
    }
    nobody_is_left(&server);
}

/// The server also reports the next waiters of other processes to a holder. Waiters behind them do not come next.
#[tokio::test]
async fn other_processes_are_not_passed_by_newcomers() {
    let Some(server) = RedisServer::start() else { return };
    // Another URL makes another connection, as another process would.
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let (before, mut turns) = (hold(&ours, "a").await, Turns::new());
    turns.queue(&server, &ours).await;
    turns.queue(&server, &theirs).await;
    before.release().await.unwrap();
    let first = turns.of(0).await;
    turns.queue(&server, &ours).await;
    first.release().await.unwrap();
    for number in [1, 2] {
        turns.of(number).await.release().await.unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn unrenewed_successor_gets_its_whole_lease() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let of = |seconds| Duration::from_secs(seconds);
    let first = locker.lock("a").lease(of(50)).acquire().await.unwrap();
    let successor = tokio::spawn(locker.lock("a").lease(of(60)).renew(false).acquire());
    until("the place in the queue", async || waiting(&server, "lock:a") == 1).await;
    // Its reply comes after the waiter's.
    hold(&locker, "another").await.release().await.unwrap();
    first.release().await.unwrap();
    let successor = in_time("the successor", successor).await.unwrap().unwrap();
    assert!(successor.remaining() > of(55), "{:?}", successor.remaining());
    assert!(server.ask::<i64>("PTTL", &["lock:a"]) > 55_000);
    successor.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn run_hands_off_without_a_command() {
    let Some((server, proxy, _locker, mut turns, first)) = line(3).await else { return };
    let (run, fence) = (first.id().to_owned(), first.fence());
    proxy.set(Fault::HoldRequests);
    first.release().await.unwrap();
    let second = turns.of(1).await;
    second.check().unwrap();
    second.release().await.unwrap();
    let third = turns.of(2).await;
    assert_eq!(third.fence(), fence + 2);
    let known = holder(&server, "lock:a").unwrap();
    assert_eq!(
        (&known[..12], &known[13..]),
        (&run[..12], &run[13..]),
        "the server knows the run by its first member"
    );
    assert_ne!(known, run, "and by an id that no member has");
    let record: String = server.ask("GET", &["{lock:a}:f"]);
    assert!(record.starts_with(&format!("{} ", fence + 2)), "{record}");
    proxy.set(Fault::None);
    third.release().await.unwrap();
    nobody_is_left(&server);
}

/// If the client counted the fences within a run, they would be ahead of the fence on the server.
#[tokio::test]
async fn fences_rise_over_a_process_that_dies_in_a_run() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let doomed = builder(&proxy.url()).lease(Duration::from_secs(2)).build().await.unwrap();
    // As if the clock had been half a minute ahead.
    let now: (u64, u64) = server.ask("TIME", &[]);
    let _: String = server.ask("SET", &[LAST_FENCE, &((now.0 + 30) * 1_000_000).to_string()]);
    let (before, mut turns) = (hold(&doomed, "a").await, Turns::new());
    for _ in 0..4 {
        turns.queue(&server, &doomed).await;
    }
    before.release().await.unwrap();
    let mut highest = 0;
    for number in 0..4 {
        let guard = turns.of(number).await;
        if number == 1 {
            proxy.set(Fault::DropRequests);
        }
        guard.check().unwrap();
        assert!(guard.fence() > highest);
        highest = guard.fence();
        // The last one is never released: the process is gone.
        if number == 3 { std::mem::forget(guard) } else { guard.release().await.unwrap() }
    }
    let other = connect(&server.url()).await;
    let next = hold(&other, "a").await;
    assert!(next.fence() > highest, "{} after {highest}", next.fence());
    next.release().await.unwrap();
}

#[tokio::test]
async fn unpolled_run_is_ended_in_background() {
    let Some((server, proxy, locker, mut turns, first)) = line(2).await else { return };
    let theirs = connect(&server.url()).await;
    first.release().await.unwrap();
    let last = turns.of(1).await;
    let _: i64 = server.ask("PEXPIRE", &["lock:a", "600000"]);
    proxy.set_for_open(Fault::HoldRequests);
    let mut release = pin!(last.release());
    let look = std::future::poll_fn(|context| Poll::Ready(release.as_mut().poll(context)));
    assert!(look.await.is_pending());
    hold(&theirs, "a").await.release().await.unwrap();
    in_time("the release", release).await.unwrap();
    hold(&locker, "a").await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn last_member_learns_of_a_forced_loss() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    first.release().await.unwrap();
    let last = turns.of(1).await;
    let _: String = server.ask("SET", &["lock:a", "another", "PX", "60000"]);
    assert_eq!(last.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(&server, "lock:a").as_deref(), Some("another"));
}

/// The client that deletes the key sends no notification. The holder learns of it when it renews.
#[tokio::test]
async fn lost_run_queues_its_members_again() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(3).await else { return };
    let _: i64 = server.ask("DEL", &["lock:a"]);
    in_time("the loss", first.lost()).await;
    // They ask again when they learn of it, and the order of before is lost with the key.
    let mut granted = Vec::new();
    while granted.len() < 2 {
        let (number, guard) = turns.next().await;
        assert!(guard.fence() > first.fence() + 2, "a new grant");
        granted.push(number);
        guard.release().await.unwrap();
    }
    granted.sort_unstable();
    assert_eq!(granted, [1, 2]);
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

#[tokio::test]
async fn evicted_run_is_notified_at_once() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(Duration::from_secs(600)).build().await.unwrap();
    let (before, mut turns) = (hold(&locker, "a").await, Turns::new());
    for _ in 0..3 {
        turns.queue(&server, &locker).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    let admin = connect(&format!("{}/0", server.url())).await.admin();
    assert!(admin.evict(&admin.key("lock", "a")).await.unwrap());
    in_time("the loss", first.lost()).await;
    for number in [1, 2] {
        turns.of(number).await.release().await.unwrap();
    }
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

/// The server does not know which member holds.
#[tokio::test]
async fn run_is_seen_with_its_last_fence() {
    let Some((server, _proxy, locker, mut turns, first)) = line(3).await else { return };
    let (admin, key) = (locker.admin(), locker.admin().key("lock", "a"));
    let seen = admin.inspect(&key).await.unwrap().unwrap().holders[0].fence;
    assert_eq!(seen, first.fence() + 2);
    assert!(!admin.evict_up_to(&key, first.fence()).await.unwrap());
    first.check().unwrap();
    assert!(admin.evict_up_to(&key, seen).await.unwrap());
    in_time("the loss", first.lost()).await;
    for number in [1, 2] {
        turns.of(number).await.release().await.unwrap();
    }
    nobody_is_left(&server);
}

#[tokio::test]
async fn deletion_fails_waiting_members() {
    let Some((server, _proxy, locker, mut turns, first)) = line(1).await else { return };
    let other = tokio::spawn(locker.lock("a").acquire());
    until("the other's place", async || waiting(&server, "lock:a") == 1).await;
    let member = tokio::spawn(locker.lock("a").acquire());
    until("the member's place", async || waiting(&server, "lock:a") == 2).await;
    first.release().await.unwrap();
    let held = in_time("the run", other).await.unwrap().unwrap();
    let admin = locker.admin();
    assert!(admin.delete(&admin.key("lock", "a")).await.unwrap());
    let error = in_time("the member's end", member).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    in_time("the holder's loss", held.lost()).await;
    drop(turns.receiver.try_recv());
}

#[tokio::test]
async fn unpolled_member_is_passed_over() {
    let Some(server) = RedisServer::start() else { return };
    let locker = builder(&server.url()).lease(Duration::from_secs(600)).build().await.unwrap();
    let first = hold(&locker, "a").await;
    let mut silent = Box::pin(locker.lock("a").acquire());
    until("the place in the queue", async || {
        assert!(silent.as_mut().now_or_never().is_none());
        waiting(&server, "lock:a") == 1
    })
    .await;
    hold(&locker, "another").await.release().await.unwrap();
    assert!(silent.as_mut().now_or_never().is_none());
    let (mut turns, other) = (Turns::new(), connect(&format!("{}/0", server.url())).await);
    turns.queue(&server, &locker).await;
    turns.queue(&server, &other).await;
    first.release().await.unwrap();
    for number in [0, 1] {
        turns.of(number).await.release().await.unwrap();
    }
    in_time("the waiter that was passed over", silent).await.unwrap().release().await.unwrap();
    nobody_is_left(&server);
}

/// Its cancel arrives after the lock was granted to it and to the next waiter together.
#[tokio::test]
async fn aborted_first_member_does_not_end_the_run() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
    let quitter = tokio::spawn(ours.lock("a").acquire());
    until("the quitter's place", async || waiting(&server, "lock:a") == 1).await;
    let run: Vec<String> = server.ask("ZRANGE", &["{lock:a}:q", "0", "0"]);
    turns.queue(&server, &ours).await;
    turns.queue(&server, &theirs).await;
    proxy.set(Fault::HoldRequests);
    quitter.abort();
    assert!(quitter.await.unwrap_err().is_cancelled());
    before.release().await.unwrap();
    let granted = holder(&server, "lock:a");
    assert_eq!(granted.as_ref().map(|run| &run[..12]), Some(&run[0][..12]));
    proxy.set(Fault::None);
    let next = turns.of(0).await;
    assert_eq!(holder(&server, "lock:a"), granted, "the same run");
    next.release().await.unwrap();
    turns.of(1).await.release().await.unwrap();
    nobody_is_left(&server);
}

#[tokio::test]
async fn run_without_waiters_is_ended() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let before = hold(&theirs, "a").await;
    let quitters: Vec<_> = (0..3).map(|_| tokio::spawn(ours.lock("a").acquire())).collect();
    until("their places", async || waiting(&server, "lock:a") == 3).await;
    proxy.set(Fault::HoldRequests);
    for quitter in quitters {
        quitter.abort();
        assert!(quitter.await.unwrap_err().is_cancelled());
    }
    before.release().await.unwrap();
    assert!(holder(&server, "lock:a").is_some(), "it was granted to them");
    proxy.set(Fault::None);
    until("its end", async || holder(&server, "lock:a").is_none()).await;
    in_time("the background calls", ours.settled()).await;
    nobody_is_left(&server);
}

/// The first member that rechecks learns of the run, and the others are served in turn.
#[tokio::test]
async fn recheck_finds_a_run_after_a_lost_message() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    let guard = hold(&locker, "a").await;
    let mut turns = Turns::new();
    for _ in 0..2 {
        turns.queue(&server, &locker).await;
    }
    let ids: Vec<String> = server.ask("ZRANGE", &["{lock:a}:q", "0", "-1"]);
    let channels: Vec<String> = server.ask("PUBSUB", &["CHANNELS", "locker:push:*"]);
    let fence = guard.fence() + 2;
    let run = format!("{}8{}", &ids[0][..12], &ids[0][13..]);
    let record = format!("{fence} {}:6000,{}:6000 {} {run}", ids[0], ids[1], channels[0]);
    grant_at_the_server(&server, &run, &record);
    for (number, fence) in [(0, fence - 1), (1, fence)] {
        let guard = turns.of(number).await;
        assert_eq!(guard.fence(), fence);
        guard.release().await.unwrap();
    }
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    nobody_is_left(&server);
}

/// Its first request got no reply, so a copy of it may arrive late. That copy is refused after the release.
#[tokio::test]
async fn member_that_asked_twice_releases_its_hold() {
    for members in [1, 2] {
        let Some(server) = RedisServer::start() else { return };
        let proxy = Proxy::to(server.port());
        let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
        let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
        for _ in 0..members {
            proxy.set_for_open(Fault::DropReplies);
            turns.queue_unheard(&server, &ours).await;
        }
        hold(&ours, "another").await.release().await.unwrap();
        before.release().await.unwrap();
        for number in 0..members {
            let guard = turns.of(number).await;
            let refused = format!("x{}", guard.id());
            guard.release().await.unwrap();
            assert!(server.ask::<Option<String>>("ZSCORE", &["{lock:a}:q", &refused]).is_some());
        }
        nobody_is_left(&server);
    }
}

/// The replies to its renewals are lost. The next member holds the lock when the first one releases.
#[tokio::test]
async fn late_member_release_spares_the_next_one() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let (ours, theirs) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let (before, mut turns) = (hold(&theirs, "a").await, Turns::new());
    for _ in 0..2 {
        turns.queue(&server, &ours).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;
    proxy.set(Fault::DropReplies);
    in_time("the loss", first.lost()).await;
    proxy.set(Fault::None);
    let second = turns.of(1).await;
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    in_time("the background calls", ours.settled()).await;
    second.check().unwrap();
    let third = theirs.lock("a").try_acquire().await.unwrap();
    assert!(second.check().is_err() || third.is_none(), "two hold at once");
    second.release().await.unwrap();
    nobody_is_left(&server);
}

/// In the same run its lease would begin with the rest of a longer one.
#[tokio::test]
async fn shorter_lease_begins_another_run() {
    let Some(server) = RedisServer::start() else { return };
    let (ours, theirs) = (connect(&server.url()).await, connect(&format!("{}/0", server.url())).await);
    let before = hold(&theirs, "a").await;
    let mut waiters = Vec::new();
    for (place, lease) in [(1, 600), (2, 600), (3, 60)] {
        waiters.push(tokio::spawn(ours.lock("a").lease(Duration::from_secs(lease)).acquire()));
        until("the place in the queue", async || waiting(&server, "lock:a") == place).await;
    }
    before.release().await.unwrap();
    for (waiter, left) in waiters.into_iter().zip([590_000, 590_000, 1_000]) {
        let guard = in_time("the grant", waiter).await.unwrap().unwrap();
        until("the lease", async || server.ask::<i64>("PTTL", &["lock:a"]) > left).await;
        if left < 60_000 {
            assert!(server.ask::<i64>("PTTL", &["lock:a"]) <= 60_000);
        }
        guard.release().await.unwrap();
    }
    nobody_is_left(&server);
}

/// Another server has become the master, and lacks the run. Its members began holds even when their process knew that,
/// until a renewal was answered.
#[tokio::test]
async fn no_member_begins_after_a_known_failover() {
    let (Some(former), Some(next)) = (RedisServer::start(), RedisServer::start()) else { return };
    let way = Proxy::to(next.port());
    let names = |port: u16, number: u8| {
        RedisServer::sentinel(&format!(
            "sentinel monitor main 127.0.0.1 {port} 1\nsentinel config-epoch main {number}"
        ))
    };
    let (Some(old), Some(new)) = (names(former.port(), 1), names(way.port(), 2)) else { return };
    let sentinel = Proxy::to(old.port());
    let locker = connect(&format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port())).await;
    let (before, mut turns) = (hold(&locker, "a").await, Turns::new());
    for _ in 0..3 {
        turns.queue(&former, &locker).await;
    }
    before.release().await.unwrap();
    let first = turns.of(0).await;

    way.set(Fault::HoldRequests);
    let asked = sentinel.accepted();
    sentinel.lead_to(new.port());
    sentinel.set(Fault::Reset);
    until("another question", async || sentinel.accepted() > asked).await;
    sentinel.set(Fault::None);
    let channels = || former.ask::<Vec<String>>("PUBSUB", &["CHANNELS", "locker:push:*"]).len();
    until("the end of the connection to the former master", async || channels() == 0).await;
    // The next master does not know the hold, and the run was not ended there either.
    drop(in_time("the release", first.release()).await);
    let opened = clock(&next);
    way.set(Fault::None);
    for _ in 1..3 {
        let (_, guard) = turns.next().await;
        assert!(guard.fence() >= opened.as_micros().try_into().unwrap(), "a grant of the former master");
        guard.release().await.unwrap();
    }
}

/// Sends a message as a user does that may publish and has no right on the keys. It has overheard the grant.
fn forge(server: &RedisServer, channel: &str, message: &str) {
    assert_eq!(server.ask::<i64>("PUBLISH", &[channel, message]), 1);
}

/// Returns the id, the members and the last fence of the run that holds the lock `a`, and its channel.
fn overhear(server: &RedisServer) -> [String; 4] {
    let (run, record) = (holder(server, "lock:a").unwrap(), server.ask::<String>("GET", &["{lock:a}:f"]));
    let [fence, members, channel, id] = record.split(' ').collect::<Vec<_>>()[..] else { panic!("{record}") };
    assert_eq!(run, id);
    [id, members, fence, channel].map(str::to_owned)
}

#[tokio::test]
async fn forged_end_ends_no_hold() {
    for word in ["lost", "deleted"] {
        let Some((server, _proxy, locker, mut turns, first)) = line(2).await else { return };
        let [run, _, fence, channel] = overhear(&server);
        forge(&server, &channel, &format!("lock {word} {run} {fence} lock:a"));
        // The server was asked about the run, and all that was sent before has been replied to.
        let renewals = || server.ask::<i64>("PTTL", &["lock:a"]);
        let _: i64 = server.ask("PEXPIRE", &["lock:a", "3000"]);
        forge(&server, &channel, &format!("lock {word} {run} {fence} lock:a"));
        until("the question", async || renewals() > 3_000).await;
        hold(&locker, "another").await.release().await.unwrap();
        first.check().unwrap();
        assert!(turns.receiver.try_recv().is_err(), "two hold after a forged message: {word}");
        first.release().await.unwrap();
        turns.of(1).await.release().await.unwrap();
    }
}

/// The lease is in the message.
#[tokio::test]
async fn forged_grant_sets_no_lease() {
    let Some((server, _proxy, locker, _turns, first)) = line(1).await else { return };
    let scripts = || commands_run(&server, |name| name == "evalsha");
    let [run, _, fence, channel] = overhear(&server);
    let (before, later) = (scripts(), fence.parse::<u64>().unwrap() + 1);
    forge(&server, &channel, &format!("lock run {run}:86400000 {later} lock:a"));
    // The renewal of two keys, and after it the one of all.
    until("the question", async || scripts() >= before + 2).await;
    assert!(server.ask::<i64>("PTTL", &["lock:a"]) <= 6_000);
    first.release().await.unwrap();
    let (next, before) = (hold(&locker, "a").await, scripts());
    forge(&server, &channel, &format!("lock run {}:86400000 {} lock:a", next.id(), next.fence()));
    until("the return of the grant", async || scripts() > before).await;
    assert!(server.ask::<i64>("PTTL", &["lock:a"]) <= 6_000);
    next.release().await.unwrap();
}

/// The message names a waiter of another process as a member.
#[tokio::test]
async fn forged_run_grants_nothing() {
    let Some((server, _proxy, _locker, mut turns, first)) = line(2).await else { return };
    let (other, mut others) = (connect(&server.url()).await, Turns::new());
    others.queue(&server, &other).await;
    let [_, members, fence, _] = overhear(&server);
    let waiters: Vec<String> = server.ask("HGETALL", &["{lock:a}:w"]);
    let [id, record] = &waiters[..] else { panic!("{waiters:?}") };
    let channel = record.rsplit(' ').next().unwrap();
    let (first_member, _) = members.split_once(',').unwrap();
    forge(&server, channel, &format!("lock run {first_member},{id}:6000 {fence} lock:a"));
    hold(&other, "another").await.release().await.unwrap();
    first.check().unwrap();
    assert!(others.receiver.try_recv().is_err(), "two hold after a forged grant");
    first.release().await.unwrap();
    turns.of(1).await.release().await.unwrap();
    others.of(0).await.release().await.unwrap();
}
