//! Elections: one term at a time, whatever ends it, and what observers see of it.

use crate::support::{fresh_name, in_time, pass, queued, span, until, waiting_at};
use locker::{Error, ErrorKind, Guard, Locker, Observer, Result};
use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

laws_of! {
    leader, lockers:
    one_leads_at_a_time_and_fences_rise,
    who_steps_down_is_followed_by_the_next_in_the_queue,
    body_of_a_lost_term_is_dropped_and_runs_again_behind_the_others,
    failed_body_ends_its_term,
    dropped_leader_ends_its_body_first,
    leader_has_a_margin,
    leader_of_a_process_that_is_gone_is_followed,
    observer_sees_each_leader_of_one_process,
    observer_sees_the_leaders_of_other_processes,
    observer_sees_the_end_of_a_silent_leader,
    note_of_a_term_is_told_to_operators,
}

/// A candidate in a task of its own, whose terms a test ends.
struct Candidate {
    /// The fence of each term.
    terms: mpsc::UnboundedReceiver<u64>,
    step_down: oneshot::Sender<()>,
    run: JoinHandle<Result<u64>>,
}

impl Candidate {
    fn start(locker: &Locker, name: &str, note: &str) -> Self {
        let (sender, terms) = mpsc::unbounded_channel();
        let (step_down, asked) = oneshot::channel();
        let election = locker.elect(name).note(note).lease(span().max(Duration::from_secs(10)));
        let run = tokio::spawn(async move {
            let mut asked = asked;
            let body = async move |term: &Guard| {
                sender.send(term.fence()).unwrap();
                (&mut asked).await.unwrap();
                Ok(term.fence())
            };
            election.run(body).await
        });
        Self { terms, step_down, run }
    }

    /// Starts a candidate that waits.
    async fn queue(locker: &Locker, name: &str, note: &str, others: u64) -> Self {
        let candidate = Self::start(locker, name, note);
        waiting_at(locker, "leader", name, others + 1).await;
        candidate
    }

    async fn elected(&mut self) -> u64 {
        in_time("the election", self.terms.recv()).await.unwrap()
    }

    async fn step_down(self) -> u64 {
        self.step_down.send(()).unwrap();
        in_time("the end of the term", self.run).await.unwrap().unwrap()
    }
}

pub(crate) async fn one_leads_at_a_time_and_fences_rise(lockers: [Locker; 3]) {
    let name = fresh_name();
    let (leads, fences) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let candidates: Vec<JoinHandle<Result<()>>> = (0..6)
        .map(|at| {
            let (locker, name) = (lockers[at % 3].clone(), name.clone());
            let (leads, fences) = (Arc::clone(&leads), Arc::clone(&fences));
            tokio::spawn(async move {
                for _ in 0..3 {
                    let (leads, fences) = (Arc::clone(&leads), Arc::clone(&fences));
                    let body = async move |term: &Guard| {
                        assert!(!leads.swap(true, Ordering::SeqCst), "two lead");
                        tokio::task::yield_now().await;
                        fences.lock().unwrap().push(term.fence());
                        term.check()?;
                        assert!(leads.swap(false, Ordering::SeqCst));
                        Ok::<_, Error>(())
                    };
                    locker.elect(&name).run(body).await?;
                }
                Ok(())
            })
        })
        .collect();
    for candidate in candidates {
        in_time("all terms", candidate).await.unwrap().unwrap();
    }
    let fences = fences.lock().unwrap();
    assert!(fences.len() == 18 && fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

pub(crate) async fn who_steps_down_is_followed_by_the_next_in_the_queue(lockers: [Locker; 3]) {
    let name = fresh_name();
    let mut first = Candidate::start(&lockers[0], &name, "first");
    let fence = first.elected().await;
    let mut second = Candidate::queue(&lockers[1], &name, "second", 0).await;
    let mut third = Candidate::queue(&lockers[0], &name, "third", 1).await;
    assert_eq!(first.step_down().await, fence);
    let next = second.elected().await;
    assert!(next > fence && third.terms.is_empty());
    second.step_down().await;
    assert!(third.elected().await > next);
    third.step_down().await;
}

pub(crate) async fn body_of_a_lost_term_is_dropped_and_runs_again_behind_the_others(lockers: [Locker; 3]) {
    let name = fresh_name();
    let (ends, mut ended) = mpsc::unbounded_channel();
    let (sender, mut terms) = mpsc::unbounded_channel();
    let election = lockers[0].elect(&name).lease(Duration::from_secs(3));
    let run = tokio::spawn(async move {
        let mut before = 0;
        let body = async move |term: &Guard| {
            let is_first = before == 0;
            assert!(term.fence() > before);
            before = term.fence();
            let _end = OnDrop(|| ends.send(before).unwrap());
            sender.send(term.fence()).unwrap();
            if is_first {
                pending::<()>().await;
            }
            Ok::<_, Error>(term.fence())
        };
        election.run(body).await
    });
    let fence = in_time("the election", terms.recv()).await.unwrap();
    let mut other = Candidate::queue(&lockers[1], &name, "other", 0).await;
    let key = lockers[1].admin().key("leader", &name);
    assert!(lockers[1].admin().evict(&key).await.unwrap());
    let next = other.elected().await;
    assert!(next > fence);
    assert_eq!(in_time("the end of the body", ended.recv()).await, Some(fence));
    waiting_at(&lockers[0], "leader", &name, 1).await;
    assert!(terms.is_empty());
    other.step_down().await;
    let last = in_time("the second term", run).await.unwrap().unwrap();
    assert!(last > next);
    assert_eq!((terms.recv().await, ended.recv().await), (Some(last), Some(last)));
}

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) async fn failed_body_ends_its_term(lockers: [Locker; 3]) {
    let name = fresh_name();
    let fails = async |_: &Guard| Err::<(), _>(lockers[0].lock("").permits(2).acquire().await.unwrap_err());
    let error = in_time("the failure", lockers[0].elect(&name).run(fails)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    let mut next = Candidate::start(&lockers[1], &name, "next");
    next.elected().await;
    next.step_down().await;
}

pub(crate) async fn dropped_leader_ends_its_body_first(lockers: [Locker; 3]) {
    let name = fresh_name();
    let (ends, mut ended) = mpsc::unbounded_channel();
    let (sender, mut terms) = mpsc::unbounded_channel();
    let election = lockers[0].elect(&name);
    let run = tokio::spawn(async move {
        let body = async move |term: &Guard| {
            let _end = OnDrop(|| ends.send(term.is_held()).unwrap());
            sender.send(term.fence()).unwrap();
            pending::<Result<()>>().await
        };
        election.run(body).await
    });
    let fence = in_time("the election", terms.recv()).await.unwrap();
    let mut next = Candidate::queue(&lockers[1], &name, "next", 0).await;
    run.abort();
    assert!(next.elected().await > fence);
    assert_eq!(ended.try_recv(), Ok(true), "the body ended after its term");
    next.step_down().await;
}

pub(crate) async fn leader_has_a_margin(lockers: [Locker; 3]) {
    let (name, lease) = (fresh_name(), Duration::from_secs(100));
    let left = |election: locker::Election| {
        election.lease(lease).run(async |term: &Guard| Ok::<_, Error>(term.remaining()))
    };
    let election = || lockers[0].elect(&name);
    let default = in_time("a term", left(election())).await.unwrap();
    assert!(default <= lease * 4 / 5 && default > lease / 2, "{default:?}");
    let none = in_time("a term", left(election().stop_before(Duration::ZERO))).await.unwrap();
    assert!(none > lease * 4 / 5, "{none:?}");
    let error = left(election().stop_before(lease * 3 / 5)).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Misused
            && error.message().contains("stop_before 1m is more than half of the lease 1m 40s"),
        "{error}"
    );
}

/// Nobody renews the lease of a process that is killed.
pub(crate) async fn leader_of_a_process_that_is_gone_is_followed(lockers: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 5);
    let gone = lockers[0].elect(&name).lease(lease).renew(false);
    let (sender, elected) = oneshot::channel();
    let mut sender = Some(sender);
    let gone = tokio::spawn(async move {
        let body = async move |term: &Guard| {
            sender.take().expect("one term").send(term.fence()).unwrap();
            pending::<Result<()>>().await
        };
        gone.run(body).await
    });
    let fence = in_time("the election", elected).await.unwrap();
    let mut next = Candidate::queue(&lockers[1], &name, "next", 0).await;
    pass(lease);
    assert!(next.elected().await > fence);
    gone.abort();
    next.step_down().await;
}

/// Looks until the leader has a note.
async fn seen_with_a_note(observer: &Observer) -> (u64, String) {
    in_time("a leader", async {
        loop {
            match observer.leader() {
                Some(leader) if leader.note.is_some() => return (leader.fence, leader.note.unwrap()),
                _ => observer.changed().await,
            }
        }
    })
    .await
}

async fn seen_without_a_leader(observer: &Observer) {
    in_time("no leader", async {
        while observer.leader().is_some() {
            observer.changed().await;
        }
    })
    .await;
}

async fn observe(locker: &Locker, candidates: [&Locker; 2]) {
    let name = fresh_name();
    let observer = locker.elect(&name).observe().await.unwrap();
    assert_eq!(observer.leader(), None);
    let mut first = Candidate::start(candidates[0], &name, "first");
    let fence = first.elected().await;
    assert_eq!(seen_with_a_note(&observer).await, (fence, "first".to_owned()));
    let leader = observer.leader().unwrap();
    // The fences of etcd are no times.
    if let Some(since) = leader.since {
        let minute = Duration::from_secs(60);
        assert!(since.elapsed().is_ok_and(|age| age < minute) || since.elapsed().is_err(), "{since:?}");
    }
    let mut second = Candidate::queue(candidates[1], &name, "second", 0).await;
    // Two that wait in one process would be granted together.
    let mut third = Candidate::queue(candidates[1], &name, "third", 1).await;
    first.step_down().await;
    let next = second.elected().await;
    assert!(next > fence);
    in_time("the next leader", async {
        loop {
            observer.changed().await;
            let leader = observer.leader().expect("somebody leads all the time");
            assert!(leader.fence >= fence, "an observer goes back");
            if leader.fence == next {
                break;
            }
        }
    })
    .await;
    assert_eq!(seen_with_a_note(&observer).await, (next, "second".to_owned()));
    second.step_down().await;
    let last = third.elected().await;
    until("the last leader", async || observer.leader().is_some_and(|leader| leader.fence == last)).await;
    third.step_down().await;
    seen_without_a_leader(&observer).await;
}

/// On Redis, waiters of one process share a grant otherwise.
pub(crate) async fn observer_sees_each_leader_of_one_process([locker, other, _]: [Locker; 3]) {
    observe(&other, [&locker, &locker]).await;
}

pub(crate) async fn observer_sees_the_leaders_of_other_processes([locker, other, third]: [Locker; 3]) {
    observe(&locker, [&other, &third]).await;
}

pub(crate) async fn observer_sees_the_end_of_a_silent_leader([locker, other, _]: [Locker; 3]) {
    let (name, lease) = (fresh_name(), span() * 10);
    let fence = silent_leader(&other, &name, lease).await;
    let observer = locker.elect(&name).lease(Duration::from_secs(1)).observe().await.unwrap();
    let leader = observer.leader().unwrap();
    assert_eq!((leader.fence, leader.note), (fence, None));
    pass(lease);
    seen_without_a_leader(&observer).await;
}

/// Returns the fence of a leader that is not renewed and does nothing more.
async fn silent_leader(locker: &Locker, name: &str, lease: Duration) -> u64 {
    let key = locker.admin().key("leader", name);
    let grant = locker.keyed_lock_at(key).acquire("elsewhere", lease, Duration::ZERO).await.unwrap();
    grant.fence
}

pub(crate) async fn note_of_a_term_is_told_to_operators([locker, other, _]: [Locker; 3]) {
    let name = fresh_name();
    let mut leader = Candidate::start(&other, &name, "http://10.0.0.7:80");
    let fence = leader.elected().await;
    let (admin, key) = (locker.admin(), locker.admin().key("leader", &name));
    until("the note", async || {
        let state = admin.inspect(&key).await.unwrap().expect("a leader");
        assert_eq!(state.holders[0].fence, fence);
        state.holders[0].note.as_deref() == Some("http://10.0.0.7:80")
    })
    .await;
    let explained = admin.explain(&key).await.unwrap();
    assert_eq!(explained.holders()[0].note.as_deref(), Some("http://10.0.0.7:80"));
    // A later term of the same process may have another note.
    leader.step_down().await;
    let mut leader = Candidate::start(&other, &name, "elsewhere");
    leader.elected().await;
    let state = admin.inspect(&key).await.unwrap().expect("a leader");
    assert_ne!(state.holders[0].note.as_deref(), Some("http://10.0.0.7:80"));
    let waits = locker.elect(&name);
    let body = async |_: &Guard| Ok::<_, Error>(());
    let waits = queued(&locker, "leader", &name, waits.run(body)).await;
    drop(waits);
    leader.step_down().await;
}
