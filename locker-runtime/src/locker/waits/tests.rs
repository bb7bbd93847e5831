use super::*;
use crate::locker::Around;
use locker_core::{
    blocking::block_on,
    key::Key,
    primitives::{HoldKind, Request},
    store::{Store, memory::Memory},
};
use locker_harness::{GENEROUS, ScriptedStore, Step, eventually, until};
use std::{sync::atomic::AtomicUsize, thread};

fn wait(locker: &Locker, key: &str, holds: usize) -> Wait {
    let around = |number: usize| Around { key: Key::new("held"), fence: number as u64, tag: 1 };
    Wait {
        id: locker.new_id(),
        key: Key::new(key),
        permits: 1,
        fair: true,
        function: String::new(),
        place: String::new(),
        around: (0..holds).map(around).collect(),
    }
}

#[test]
fn waits_with_holds_are_told_first_then_the_oldest_calls() {
    let (locker, now) = (Locker::memory(), Timestamp::now());
    // The task must not end while the list is filled.
    let listed: Vec<_> = (0..100_u32)
        .map(|number| {
            let (holds, is_candidate) = (usize::from(number >= 90), number < 10);
            locker.list_wait(wait(&locker, &number.to_string(), holds), now + ROUND * number, is_candidate)
        })
        .collect();
    let told: Vec<u32> =
        locker.0.waits.told().iter().map(|listed| listed.wait.key.as_str().parse().unwrap()).collect();
    assert_eq!(told, (90..100).chain(10..64).collect::<Vec<_>>());
    for listed in &listed {
        locker.unlist_wait(listed);
    }
    assert!(locker.0.waits.told().is_empty());
}

/// What others read while a wait lasts, and after its end.
#[test]
fn wait_is_told_until_it_ends() {
    let store = Memory::new();
    let locker = Locker::builder().store(store.clone()).prefix("p:").build_blocking().unwrap();
    let subjects = [subject(locker.0.descriptions.ids.tag())];
    let told = || {
        let text = block_on(store.descriptions("p:", &subjects)).unwrap().remove(0).unwrap_or_default();
        text::read(&text, locker.0.descriptions.ids.tag())
    };
    let (outer, inner) = (locker.lock("outer").acquire_blocking().unwrap(), locker.lock("inner"));
    let held = inner.clone().acquire_blocking().unwrap();
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| inner.holding(&outer).acquire_blocking().unwrap().release_blocking().unwrap());
        let [wait] = &*eventually("the text", || Some(told()).filter(|told| !told.is_empty())) else {
            panic!("{:?}", told())
        };
        assert_eq!((wait.key.as_str(), wait.permits, wait.fair), ("p:lock:inner", 1, true));
        let around = Around { key: Key::new(outer.key()), fence: outer.fence(), tag: wait.id.tag() };
        assert_eq!(wait.around, [around]);
        held.release_blocking().unwrap();
        waiter.join().unwrap();
    });
    eventually("the end of the text", || told().is_empty().then_some(()));
    eventually("the end of the task", || (!lock(&locker.0.waits.list).has_task).then_some(()));
}

#[test]
fn nothing_is_listed_without_deadlocks() {
    let locker = Locker::builder().url("memory://").deadlocks(false).build_blocking().unwrap();
    assert!(!locker.lists_waits() && Locker::memory().lists_waits());
}

/// The wait for a hold of the same caller is refused at once.
#[test]
fn wait_for_an_own_guard_is_refused() {
    let locker = Locker::memory();
    let guard = locker.lock("a").acquire_blocking().unwrap();
    let error = locker.lock("a").holding(&guard).acquire_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused, "{error}");
}

/// A hold that ends by itself keeps nobody waiting for ever.
#[test]
fn hold_that_is_not_renewed_is_no_edge() {
    let locker = Locker::memory();
    for (renew, edges) in [(true, 1), (false, 0)] {
        let guard = locker.lock("a").renew(renew).acquire_blocking().unwrap();
        let around = guard.held().and_then(|hold| hold.around());
        assert_eq!(around.into_iter().count(), edges);
        guard.release_blocking().unwrap();
    }
    assert_eq!(HoldKind::Lock.permit_count(), 1);
}

fn no_right() -> Error {
    Error::new(ErrorKind::Misused, "this role may not read it")
}

/// Two callers that wait for each other, and one that waits for a lock of another locker.
async fn assert_circle_is_found(store: &ScriptedStore) {
    let (locker, other) = (Locker::with_defaults(store.clone()), Locker::with_defaults(store.clone()));
    let hold = async |locker: &Locker, name| locker.lock(name).acquire().await.unwrap();
    let (a, b, c) = (hold(&locker, "a").await, hold(&locker, "b").await, hold(&locker, "c").await);
    let _elsewhere = hold(&other, "d").await;
    let wait = |held, name| locker.lock(name).holding(held).timeout(GENEROUS).acquire();
    let ended = tokio::select! {
        ended = wait(&a, "b") => ended,
        ended = wait(&b, "a") => ended,
        ended = wait(&c, "d") => ended,
    };
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
}

/// A shard that is down, or state of a newer version.
#[tokio::test]
async fn circle_is_found_beside_a_key_that_fails() {
    let store = ScriptedStore::remote();
    store.on_call_at(|key, request| match request {
        Request::Inspect if key.as_str() == "lock:d" => Step::Answer(Err(no_right())),
        _ => Step::CarryOut,
    });
    assert_circle_is_found(&store).await;
}

/// A role without the right to read them.
#[tokio::test]
async fn circle_is_found_without_texts() {
    let store = ScriptedStore::remote();
    store.refuse_texts(no_right());
    assert_circle_is_found(&store).await;
}

/// Each refusal is an entry in the log of the store.
#[tokio::test]
async fn refused_text_is_not_told_each_second() {
    let (store, told) = (ScriptedStore::remote(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&told);
    store.on_describe(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Step::Answer(Err(no_right()))
    });
    let locker = Locker::with_defaults(store.clone());
    let (a, b) = (locker.lock("a").acquire().await.unwrap(), locker.lock("b").acquire().await.unwrap());
    let looks = async || store.count(|request| matches!(request, Request::Inspect)) > 0;
    tokio::select! {
        ended = locker.lock("b").holding(&a).acquire() => panic!("{ended:?}"),
        () = until("the first look", looks) => {}
    }
    let told = told.load(Ordering::Relaxed);
    assert!(told <= 3, "the note, once or twice, and the waits, but {told} texts");
    drop(b);
}

/// The list has the waits by hand, so that nothing breaks the deadlock meanwhile.
#[test]
fn deadlock_is_found_from_a_key() {
    let locker = Locker::builder().url("memory://").deadlocks(false).build_blocking().unwrap();
    let [a, b] = ["a", "b"].map(|name| locker.lock(name).acquire_blocking().unwrap());
    let keys = [a.key(), b.key()].map(Key::new);
    let found = || block_on(locker.deadlock_from(&keys[0])).unwrap();
    thread::scope(|scope| {
        for name in ["a", "b"] {
            scope.spawn(|| locker.lock(name).acquire_blocking().unwrap().release_blocking().unwrap());
        }
        let waiter = |key: &Key| {
            let seen = block_on(locker.admin().explain(key)).unwrap();
            (seen.waiting() == 1).then(|| block_on(locker.admin().inspect(key)).unwrap().unwrap().waiters[0])
        };
        let ids = keys.each_ref().map(|key| eventually("a waiter", || waiter(key)));
        assert_eq!(found(), None);
        let listed = [(0, 1, &b), (1, 0, &a)].map(|(at, held, guard)| {
            let around = Around { key: keys[held].clone(), fence: guard.fence(), tag: ids[at].tag() };
            let wait =
                Wait { id: ids[at], key: keys[at].clone(), around: vec![around], ..wait(&locker, "", 0) };
            locker.list_wait(wait, Timestamp::now(), false)
        });
        let message = found().expect("a deadlock");
        assert!(message.contains("would wait for itself: ") && message.contains("holds lock:b"), "{message}");
        for listed in &listed {
            locker.unlist_wait(listed);
        }
        assert_eq!(found(), None);
        a.release_blocking().unwrap();
        b.release_blocking().unwrap();
    });
}

const CONTEXT: TraceContext = [7; 25];

/// Counts the texts that a store is told.
fn counting(store: &ScriptedStore) -> Arc<AtomicUsize> {
    let texts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&texts);
    store.on_describe(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Step::CarryOut
    });
    texts
}

/// However many there are and however fast they follow each other: a write per 5 s. The note may be told twice.
#[tokio::test]
async fn short_holds_take_few_writes() {
    let store = ScriptedStore::remote();
    let builder = Locker::builder().store(store.clone()).trace_context(|| Some(CONTEXT));
    let locker = builder.tell_holds(Duration::ZERO).build().await.unwrap();
    let (told, started) = (counting(&store), Timestamp::now());
    let mut number = 0;
    while Timestamp::now() < started + HOLDS_EVERY + 2 * ROUND {
        number += 1;
        let guard = locker.lock(&number.to_string()).acquire().await.unwrap();
        background::sleep(Duration::from_millis(1)).await;
        guard.release().await.unwrap();
    }
    let periods = Timestamp::now().since(started).as_micros() / HOLDS_EVERY.as_micros();
    let (told, most) = (told.load(Ordering::Relaxed) as u128, 2 + 1 + periods);
    assert!((1..=most).contains(&told), "{told} writes, but at most {most}");
}

/// Each refusal is an entry in the log of the store, also if the hold has ended before it.
#[tokio::test]
async fn refused_holds_are_not_told_again() {
    let store = ScriptedStore::remote();
    let builder = Locker::builder().store(store.clone()).trace_context(|| Some(CONTEXT));
    let locker = builder.tell_holds(Duration::ZERO).build().await.unwrap();
    let (told, pause) = (Arc::new(AtomicUsize::new(0)), Duration::from_millis(1));
    let counted = Arc::clone(&told);
    store.on_describe(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        thread::sleep(5 * pause);
        Step::Answer(Err(no_right()))
    });
    for number in 0..300 {
        let guard = locker.lock(&number.to_string()).acquire().await.unwrap();
        background::sleep(pause).await;
        guard.release().await.unwrap();
    }
    let told = told.load(Ordering::Relaxed);
    assert!(told <= 3, "the note, once or twice, and the holds, but {told} texts");
}

#[tokio::test]
async fn holds_without_a_trace_are_not_told() {
    let store = ScriptedStore::remote();
    let builder = || Locker::builder().store(store.clone());
    let has_task = |locker: &Locker| lock(&locker.0.waits.list).has_task;
    for locker in [
        builder().trace_context(|| None).tell_holds(Duration::ZERO),
        builder().trace_context(|| panic!("a test's panic")).tell_holds(Duration::ZERO),
        builder().trace_context(|| Some(CONTEXT)),
    ] {
        let locker = locker.build().await.unwrap();
        let _guard = locker.lock("a").try_acquire().await.unwrap();
        assert!(!has_task(&locker));
    }
    let error = builder().tell_holds(ROUND).build().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misused && error.message().contains("trace_context"), "{error}");
}

#[test]
fn oldest_holds_are_told_when_they_have_lasted() {
    let (locker, now) = (Locker::memory(), Timestamp::now());
    let hold = |number: u64| TracedHold {
        hold: Around { key: Key::new("a"), fence: number, tag: 1 },
        context: CONTEXT,
    };
    let numbers: Vec<_> = (0..100).map(|number| locker.list_hold(hold(number), now + ROUND)).collect();
    assert!(locker.0.waits.holds(now).is_empty());
    locker.unlist_hold(numbers[0]);
    let told = locker.0.waits.holds(now + ROUND);
    assert_eq!(told, (1..=64).map(hold).collect::<Vec<_>>());
    for number in numbers {
        locker.unlist_hold(number);
    }
    eventually("the end of the task", || (!lock(&locker.0.waits.list).has_task).then_some(()));
}

/// The hook of an application fails, and a wait finds more holders than it remembers.
#[tokio::test]
async fn links_survive_a_hook_that_panics() {
    let linked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&linked);
    let on_link = move |_: &TraceContext| {
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("a test's panic");
    };
    let locker = Locker::builder().url("memory://").on_link(on_link).build().await.unwrap();
    let listed = locker.list_wait(wait(&locker, "a", 0), Timestamp::now(), false);
    let contexts = (0..100).map(|number| [number; 25]);
    listed.link(&locker, contexts.clone().take(2));
    locker.link(&listed.new_links());
    listed.link(&locker, contexts);
    locker.link(&listed.new_links());
    locker.unlist_wait(&listed);
    assert_eq!(linked.load(Ordering::Relaxed), MOST);
}
