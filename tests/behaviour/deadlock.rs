//! Callers that wait for each other, through several lockers, as in several processes: one of each circle fails, and
//! nobody else. A wait is looked at after three seconds, so these laws take as long. The same looks find the traces of
//! holders.

use crate::support::{
    GENEROUS, Opened, builder, connect_apart, fresh_name, in_time, queued, until, waiting_at,
};
use locker::{Error, ErrorKind, Guard, LockRequest, Locker, Result};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::{Barrier, mpsc, watch},
    task::JoinHandle,
};

laws_of! {
    deadlock, store:
    cycle_of_two_fails_one_caller,
    cycle_of_three_fails_one_caller,
    writer_between_readers_is_found,
    several_locks_and_a_nested_one_are_found,
    tail_of_a_cycle_is_served,
    others_that_wait_are_not_failed,
    waits_are_linked_to_the_traces_of_their_holders,
    wait_is_linked_to_the_holder_among_waiters_of_its_process
}

type Call = JoinHandle<Result<()>>;

/// Three lockers on one store.
async fn lockers(store: &Opened) -> [Locker; 3] {
    [
        connect_apart(&store.url, 1).await,
        connect_apart(&store.url, 2).await,
        connect_apart(&store.url, 3).await,
    ]
}

/// Waits for a second lock with the first one, and releases both.
async fn nested(guard: Guard, second: LockRequest) -> Result<()> {
    let second = second.timeout(GENEROUS).holding(&guard).acquire().await?;
    second.release().await?;
    guard.release().await
}

fn start(call: impl Future<Output = Result<()>> + Send + 'static) -> Call {
    tokio::spawn(call)
}

/// Each caller takes a lock of its own, and once all have done so, the lock of the next caller.
fn circle(lockers: &[Locker], names: &[String]) -> Vec<Call> {
    let all_hold = Arc::new(Barrier::new(names.len()));
    let caller = |at: usize| {
        let (locker, all_hold) = (lockers[at % lockers.len()].clone(), Arc::clone(&all_hold));
        let (own, next) = (locker.lock(&names[at]), locker.lock(&names[(at + 1) % names.len()]));
        start(async move {
            let guard = own.acquire().await?;
            all_hold.wait().await;
            nested(guard, next).await
        })
    };
    (0..names.len()).map(caller).collect()
}

async fn ended(calls: Vec<Call>) -> Vec<Result<()>> {
    let mut ended = Vec::new();
    for call in calls {
        ended.push(in_time("a caller", call).await.unwrap());
    }
    ended
}

/// Returns the error of the one call that has failed.
fn only_error(ended: Vec<Result<()>>) -> Error {
    let mut errors: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let error = errors.remove(0);
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(error.is_temporary() && error.message().starts_with("would wait for itself: "), "{error}");
    let blocked = error.blocked().expect("what stood in the way");
    assert!(!blocked.holders().is_empty() && blocked.place().is_some_and(|place| place.contains(file!())));
    error
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|_| fresh_name()).collect()
}

async fn cycle_of_two_fails_one_caller(store: &Opened) {
    let names = names(2);
    let error = only_error(ended(circle(&lockers(store).await, &names)).await);
    let [one, other] = [&names[0], &names[1]].map(|name| format!("lock:{name}"));
    let says = |has: &str, asks: &str| error.message().contains(&format!("holds {has} and waits for {asks}"));
    assert!(says(&one, &other) && says(&other, &one), "{error}");
}

async fn cycle_of_three_fails_one_caller(store: &Opened) {
    only_error(ended(circle(&lockers(store).await, &names(3))).await);
}

/// The reader that comes last would fit, but the writer is served before it. Each of the two that hold something may
/// fail for the others.
async fn writer_between_readers_is_found(store: &Opened) {
    let lockers = lockers(store).await;
    let found =
        |writer_is_fair, reader_is_fair| writer_between_readers(&lockers, writer_is_fair, reader_is_fair);
    tokio::join!(found(true, true), found(true, false), found(false, true));
}

async fn writer_between_readers([one, two, three]: &[Locker; 3], writer_is_fair: bool, reader_is_fair: bool) {
    let (name, lock) = (fresh_name(), fresh_name());
    let reader = one.read_lock(&name).acquire().await.unwrap();
    let locked = three.lock(&lock).acquire().await.unwrap();
    let write = two.write_lock(&name).fair(writer_is_fair).timeout(GENEROUS).acquire();
    let write = queued(two, "rwlock", &name, write).await;
    let writer = start(async move { write.await?.release().await });
    let read = nested(locked, three.read_lock(&name).fair(reader_is_fair));
    let read = queued(three, "rwlock", &name, read).await;
    let mut ended = ended(vec![writer, start(nested(reader, one.lock(&lock))), start(read)]).await;
    ended.remove(0).unwrap();
    let errors: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert!(
        !errors.is_empty() && errors.iter().all(|error| error.kind() == ErrorKind::Deadlock),
        "{errors:?}"
    );
}

async fn several_locks_and_a_nested_one_are_found(store: &Opened) {
    let ([one, two, _], mut names) = (lockers(store).await, names(2));
    names.sort();
    let guard = two.lock(&names[1]).acquire().await.unwrap();
    let several = one.lock_all(&names).timeout(GENEROUS).acquire();
    let several = queued(&one, "lock", &names[1], several).await;
    let several = start(async move { several.await?.release().await });
    only_error(ended(vec![several, start(nested(guard, two.lock(&names[0])))]).await);
}

async fn tail_of_a_cycle_is_served(store: &Opened) {
    let ([one, two, three], names) = (lockers(store).await, names(3));
    let first = one.lock(&names[0]).acquire().await.unwrap();
    let second = two.lock(&names[1]).acquire().await.unwrap();
    let third = three.lock(&names[2]).acquire().await.unwrap();
    let tail = queued(&three, "lock", &names[0], nested(third, three.lock(&names[0]))).await;
    let cycle = vec![start(nested(first, one.lock(&names[1]))), start(nested(second, two.lock(&names[0])))];
    let tail = start(tail);
    only_error(ended(cycle).await);
    in_time("the tail", tail).await.unwrap().unwrap();
}

/// A chain, waits that converge, guards that are held elsewhere, and a hold that was evicted: by its key there is a
/// circle, by its fence there is none. They are looked at no later than circles that begin later.
#[expect(clippy::many_single_char_names, reason = "names in a row")]
async fn others_that_wait_are_not_failed(store: &Opened) {
    let ([one, two, three], names) = (lockers(store).await, names(8));
    let hold = async |locker: &Locker, name: &str| locker.lock(name).acquire().await.unwrap();
    let [a, b, c, d, e, f, m, n] = &*names else { unreachable!("eight names") };
    let idle = [hold(&three, c).await, hold(&one, m).await, hold(&two, n).await];
    let mut calls = Vec::new();
    for (locker, own, next) in [(&one, a, b), (&two, b, c), (&two, d, c)] {
        let guard = hold(locker, own).await;
        calls.push((locker, guard, next));
    }
    let evicted = hold(&one, e).await;
    assert!(one.admin().evict(&one.admin().key("lock", e)).await.unwrap());
    let successor = hold(&three, e).await;
    calls.extend([(&one, evicted, f), (&two, hold(&two, f).await, e)]);
    let nested = calls.into_iter().map(|(locker, guard, next)| start(nested(guard, locker.lock(next))));
    let mut calls: Vec<_> = nested.collect();
    for (locker, name) in [(&one, n), (&two, m)] {
        let request = locker.lock(name).timeout(GENEROUS);
        calls.push(start(async move { request.acquire().await?.release().await }));
    }
    for (name, count) in [(b, 1), (c, 2), (e, 1), (f, 1), (m, 1), (n, 1)] {
        waiting_at(&one, "lock", name, count).await;
    }
    for locker in [&one, &two] {
        only_error(ended(circle(std::slice::from_ref(locker), &self::names(2))).await);
    }
    assert!(calls.iter().all(|call| !call.is_finished()));
    explained(&one, &[a, b, c]).await;
    explained(&one, &[f, e]).await;
    drop((idle, successor));
    for error in ended(calls).await.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
}

/// Waits until an explanation of the first key has that its holder waits for the second one, and so on.
async fn explained(locker: &Locker, names: &[&String]) {
    let admin = locker.admin();
    let keys: Vec<_> = names.iter().map(|name| admin.key("lock", name)).collect();
    until("what the holders wait for", async || {
        let explanation = admin.explain(&keys[0]).await.unwrap();
        let mut next = vec![&explanation];
        for key in &keys {
            let [one] = next[..] else { return false };
            assert!(one.key() == key && one.holders().len() == 1, "{explanation}");
            next = one.waiting_for().iter().collect();
        }
        let text = explanation.to_string();
        let is_indented = |(depth, key)| text.contains(&format!("\n{}waits for {key}\n", "  ".repeat(depth)));
        assert!(keys.iter().enumerate().skip(1).all(is_indented), "{text}");
        next.is_empty()
    })
    .await;
}

tokio::task_local! {
    /// The trace of the code that runs.
    static TRACE: u8;
}

/// A locker that tells its holds.
async fn telling(store: &Opened, number: u64) -> Locker {
    let context = || TRACE.try_with(|trace| [*trace; 25]).ok();
    let builder = builder(&store.url, number).trace_context(context).tell_holds(Duration::ZERO);
    builder.build().await.unwrap()
}

/// What a locker was told in the code of a trace.
type Linked = mpsc::UnboundedReceiver<(u8, [u8; 25])>;

/// A locker whose waits are linked.
async fn linking(store: &Opened, number: u64) -> (Locker, Linked) {
    let (links, linked) = mpsc::unbounded_channel();
    let on_link = move |context: &[u8; 25]| links.send((TRACE.get(), *context)).unwrap();
    (builder(&store.url, number).on_link(on_link).build().await.unwrap(), linked)
}

/// A reader waits for the writer, and a caller that needs all permits for both of their holders. What is told in its
/// poll is what it waits for, each once.
async fn waits_are_linked_to_the_traces_of_their_holders(store: &Opened) {
    let (name, (waiter, mut linked)) = (fresh_name(), linking(store, 3).await);
    let (one, other) = (telling(store, 1).await, telling(store, 2).await);
    let write = TRACE.scope(1, one.write_lock(&name).acquire()).await.unwrap();
    let permits = [
        TRACE.scope(2, one.semaphore(&name, 2).acquire()).await.unwrap(),
        TRACE.scope(3, other.semaphore(&name, 2).acquire()).await.unwrap(),
    ];
    let read = waiter.read_lock(&name).timeout(GENEROUS).acquire();
    let all = waiter.semaphore(&name, 2).permits(2).timeout(GENEROUS).acquire();
    let read = start(TRACE.scope(4, async move { read.await?.release().await }));
    let all = start(TRACE.scope(5, async move { all.await?.release().await }));
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(in_time("a link", linked.recv()).await.unwrap());
    }
    told.sort_unstable();
    assert_eq!(told, [(4, [1; 25]), (5, [2; 25]), (5, [3; 25])]);
    for guard in [write].into_iter().chain(permits) {
        guard.release().await.unwrap();
    }
    assert!(ended(vec![read, all]).await.iter().all(Result::is_ok));
    drop(waiter);
    assert_eq!(linked.recv().await, None, "each is told once");
}

/// A store may grant several waiters of one process at once, one after the other of which holds.
async fn wait_is_linked_to_the_holder_among_waiters_of_its_process(store: &Opened) {
    let (name, (waiter, mut linked)) = (fresh_name(), linking(store, 2).await);
    let one = telling(store, 1).await;
    let first = one.lock(&name).acquire().await.unwrap();
    let ((done, _), (holding, mut holds)) = (watch::channel(false), mpsc::unbounded_channel());
    let mut calls = Vec::new();
    for trace in [1, 2] {
        let call = one.lock(&name).timeout(GENEROUS).acquire();
        let call = queued(&one, "lock", &name, TRACE.scope(trace, call)).await;
        let (holding, mut done) = (holding.clone(), done.subscribe());
        calls.push(start(async move {
            let guard = call.await?;
            holding.send(trace).unwrap();
            done.wait_for(|done| *done).await.expect("the law goes on");
            guard.release().await
        }));
    }
    first.release().await.unwrap();
    assert_eq!(in_time("the hand-off", holds.recv()).await, Some(1));
    let last = waiter.lock(&name).timeout(GENEROUS).acquire();
    calls.push(start(TRACE.scope(3, async move { last.await?.release().await })));
    assert_eq!(in_time("a link", linked.recv()).await, Some((3, [1; 25])));
    done.send_replace(true);
    assert!(ended(calls).await.iter().all(Result::is_ok));
}
