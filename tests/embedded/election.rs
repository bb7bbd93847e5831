//! Elections when the store fails or answers with what is old, and settings that a candidate does not have.

use locker::{Error, ErrorKind, Guard, Held, Inspection, Locker};
use locker_core::{
    primitives::{HoldRequest, Reply, Request},
    store::Store,
};
use locker_harness::{ScriptedStore, Step, in_time, until};
use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};

const LEASE: Duration = Duration::from_millis(600);

fn remote() -> (ScriptedStore, Locker) {
    let store = ScriptedStore::remote();
    let locker = Locker::builder().store(store.clone()).lease(LEASE).build_blocking().unwrap();
    (store, locker)
}

/// Requests do not arrive from now on.
fn cut(store: &ScriptedStore) {
    store.fail(|_| true, Error::new(ErrorKind::Unavailable, "the link is cut"));
}

/// Starts a candidate whose terms end with a permit. Returns the fence of each.
fn start(locker: &Locker, name: &str) -> (mpsc::UnboundedReceiver<u64>, Arc<Semaphore>, JoinHandle<u64>) {
    let ((sender, terms), ends) = (mpsc::unbounded_channel(), Arc::new(Semaphore::new(0)));
    let (election, end) = (locker.elect(name), Arc::clone(&ends));
    let run = tokio::spawn(async move {
        let body = async move |term: &Guard| {
            sender.send(term.fence()).unwrap();
            end.acquire().await.unwrap().forget();
            Ok::<_, Error>(term.fence())
        };
        election.run(body).await.unwrap()
    });
    (terms, ends, run)
}

#[tokio::test]
async fn candidate_outlives_an_outage() {
    let (store, locker) = remote();
    cut(&store);
    let (mut terms, ends, run) = start(&locker, "a");
    until("several calls", async || store.count(|request| matches!(request, Request::Lock(_))) > 3).await;
    assert!(terms.is_empty());
    store.recover();
    let fence = in_time("the election", terms.recv()).await.unwrap();
    ends.add_permits(1);
    assert_eq!(in_time("the end", run).await.unwrap(), fence);
}

#[tokio::test]
async fn leader_that_was_cut_off_leads_again() {
    let (store, locker) = remote();
    let (mut terms, ends, run) = start(&locker, "a");
    let first = in_time("the election", terms.recv()).await.unwrap();
    cut(&store);
    let acquires = |request: &Request| matches!(request, Request::Lock(HoldRequest::Acquire { .. }));
    let before = store.count(acquires);
    until("campaigns", async || store.count(acquires) > before + 1).await;
    store.recover();
    let second = in_time("the second term", terms.recv()).await.unwrap();
    assert!(second > first);
    ends.add_permits(1);
    assert_eq!(in_time("the end", run).await.unwrap(), second);
}

#[tokio::test]
async fn candidate_waits_whatever_the_locker_says() {
    let builder = Locker::builder().timeout(Duration::ZERO).max_retry(1).note("till 7");
    let locker = builder.build_blocking().unwrap();
    let (mut terms, ends, run) = start(&locker, "a");
    in_time("the election", terms.recv()).await.unwrap();
    let observer = locker.elect("a").observe().await.unwrap();
    until("the note of the locker", async || observer.leader().is_some_and(|leader| leader.note.is_some()))
        .await;
    assert_eq!(observer.leader().unwrap().note.as_deref(), Some("till 7"));
    let (mut later, later_ends, later_run) = start(&locker, "a");
    let key = locker.admin().key("leader", "a");
    until("the wait", async || locker.admin().inspect(&key).await.unwrap().unwrap().waiting == 1).await;
    ends.add_permits(1);
    run.await.unwrap();
    in_time("the election", later.recv()).await.unwrap();
    later_ends.add_permits(1);
    later_run.await.unwrap();
}

#[tokio::test]
async fn other_errors_end_the_campaign() {
    let locker = Locker::memory();
    let lead = async |locker: &Locker| {
        locker.elect("a").run(async |_: &Guard| pending::<Result<(), Error>>().await).await
    };
    let error = locker.elect("a").note("a\nb").run(async |_: &Guard| Ok::<_, Error>(())).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("note"), "{error}");
    let nested = async |_: &Guard| lead(&locker).await;
    let error = in_time("the refusal", locker.elect("a").run(nested)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("wait for itself"), "{error}");
    let key = locker.admin().key("leader", "a");
    let semaphore =
        locker.keyed_lock_at(key.clone()).acquire("other", Duration::from_secs(60), Duration::ZERO);
    semaphore.await.unwrap();
    let waits = tokio::spawn({
        let election = locker.elect("a");
        async move { election.run(async move |_: &Guard| Ok::<_, Error>(())).await }
    });
    until("the wait", async || locker.admin().inspect(&key).await.unwrap().unwrap().waiting == 1).await;
    assert!(locker.admin().delete(&key).await.unwrap());
    let error = in_time("the deletion", waits).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// A replica that takes over may be behind, and a store may not answer.
#[tokio::test]
async fn observer_keeps_the_leader_that_it_knows() {
    let (store, locker) = remote();
    let (mut terms, ends, run) = start(&locker, "a");
    let fence = in_time("the election", terms.recv()).await.unwrap();
    let observer = locker.elect("a").observe().await.unwrap();
    let is_look = |request: &Request| matches!(request, Request::Inspect);
    let looks_twice = async || {
        let before = store.count(is_look);
        until("two looks", async || store.count(is_look) > before + 2).await;
    };
    let old = move || {
        let mut old = Inspection::default();
        old.holders.push(Held::new(fence - 1, 1));
        Step::Answer(Ok(Reply::Inspected(Box::new(old))))
    };
    store.on_call(move |request| if is_look(request) { old() } else { Step::CarryOut });
    looks_twice().await;
    assert_eq!(observer.leader().unwrap().fence, fence);
    store.fail(is_look, Error::new(ErrorKind::Unavailable, "the link is cut"));
    looks_twice().await;
    assert_eq!(observer.leader().unwrap().fence, fence);
    store.recover();
    ends.add_permits(1);
    run.await.unwrap();
    in_time("the end of the term", async {
        while observer.leader().is_some() {
            observer.changed().await;
        }
    })
    .await;
}

#[tokio::test]
async fn observer_fails_without_a_store() {
    let (store, locker) = remote();
    store.fail(|_| true, Error::new(ErrorKind::Misused, "wrong password"));
    assert_eq!(locker.elect("a").observe().await.unwrap_err().kind(), ErrorKind::Misused);
}

/// The background task looks as long as somebody may ask.
#[tokio::test]
async fn dropped_observer_looks_no_more() {
    let alive = Arc::new(());
    let is_alive = Arc::downgrade(&alive);
    let hook = move || {
        let _ = &alive;
        None
    };
    let locker = Locker::builder().store(ScriptedStore::remote()).trace_context(hook).build().await.unwrap();
    let observer = locker.elect("a").observe().await.unwrap();
    drop((observer, locker));
    until("the end of the locker", async || is_alive.strong_count() == 0).await;
}

/// The host's clock may be behind that of the store.
#[tokio::test]
async fn observer_learns_when_a_term_began() {
    let (store, locker) = remote();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let fence = u64::try_from((now + Duration::from_millis(1500)).as_micros()).unwrap();
    store.on_call(move |request| {
        let mut seen = Inspection::default();
        seen.holders.push(Held::new(fence, 1));
        match request {
            Request::Inspect => Step::Answer(Ok(Reply::Inspected(Box::new(seen)))),
            _ => Step::CarryOut,
        }
    });
    let observer = locker.elect("a").observe().await.unwrap();
    assert_eq!(observer.leader().unwrap().since, None);
    until("the time", async || observer.leader().unwrap().since.is_some()).await;
    assert_eq!(observer.leader().unwrap().since, Some(UNIX_EPOCH + Duration::from_micros(fence)));
}

/// The locker's `retry_delay` would make them ask all the time.
#[tokio::test]
async fn candidates_do_not_ask_all_the_time() {
    let store = ScriptedStore::remote();
    let builder = Locker::builder().store(store.clone()).retry_delay(Duration::from_millis(1));
    let locker = builder.build().await.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    store.on_call(move |request| {
        if matches!(request, Request::Lock(HoldRequest::Acquire { .. })) {
            times.lock().unwrap().push(Instant::now());
        }
        Step::Answer(Err(Error::new(ErrorKind::Unavailable, "the link is cut")))
    });
    let (_terms, _ends, run) = start(&locker, "a");
    until("several calls", async || asked.lock().unwrap().len() > 4).await;
    run.abort();
    let asked = asked.lock().unwrap();
    let pauses: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(50)), "{pauses:?}");
}

#[tokio::test]
async fn terms_that_are_lost_at_once_are_apart() {
    let (store, locker) = remote();
    let (sender, mut terms) = mpsc::unbounded_channel();
    let is_renewal = |request: &Request| matches!(request, Request::Lock(HoldRequest::Renew { .. }));
    store.on_call(
        move |request| {
            if is_renewal(request) { Step::Answer(Ok(Reply::Lost)) } else { Step::CarryOut }
        },
    );
    let election = locker.elect("a").lease(Duration::from_millis(60));
    let run = tokio::spawn(async move {
        let body = async move |_: &Guard| {
            sender.send(Instant::now()).unwrap();
            pending::<Result<(), Error>>().await
        };
        election.run(body).await
    });
    let mut before = in_time("a term", terms.recv()).await.unwrap();
    for _ in 0..3 {
        let next = in_time("the next term", terms.recv()).await.unwrap();
        assert!(next - before >= Duration::from_millis(95), "{:?}", next - before);
        before = next;
    }
    run.abort();
}

/// Nobody asks for the text of a term that is over.
#[tokio::test]
async fn texts_of_terms_that_are_over_end() {
    let (store, locker) = remote();
    let mut subjects = Vec::new();
    for _ in 0..100 {
        let body = async |term: &Guard| {
            // So that the background thread tells most terms before their end: it does not tell those that are over.
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok::<_, Error>(term.fence())
        };
        let fence = locker.elect("a").run(body).await.unwrap();
        // printf leader:a | md5sum
        subjects.push(format!("elected:dea44c4148e5370f2ad41b6d55a0d8bc:{fence}"));
    }
    until("the end of all but the last texts", async || {
        let left = store.memory().descriptions("", &subjects).await.unwrap();
        left.into_iter().flatten().count() < 5
    })
    .await;
}
