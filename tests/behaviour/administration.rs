//! The laws of lists, descriptions and evictions.

use crate::support::{MINUTE, fresh_name, in_time, queued, until};
use futures_util::future::join_all;
use locker::{ErrorKind, Filter, Listed, Locker, Named, lock_on_argument};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Returns all pages.
async fn pages(locker: &Locker, filter: &Filter, limit: usize) -> Vec<Vec<Listed>> {
    let (admin, mut after, mut pages) = (locker.admin(), None, Vec::new());
    loop {
        let page = admin.page(filter, after.as_deref(), limit).await.unwrap();
        pages.push(page.keys);
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}

fn name(listed: &Listed) -> String {
    match &listed.named {
        Named::Kind { name, .. } => name.clone(),
        other => panic!("{other:?}"),
    }
}

/// Names come and go while a list is read page by page.
pub(crate) async fn pages_miss_no_key_that_stays(locker: Locker) {
    let (family, over) = (fresh_name(), Arc::new(AtomicBool::new(false)));
    let stay: Vec<String> = (0..3_000).map(|number| format!("{family}/{number}")).collect();
    // Some at a time: other laws use the server too.
    for some in stay.chunks(100) {
        join_all(some.iter().map(async |name| locker.counter(name).add(1).await.unwrap())).await;
    }
    let changes = Arc::new(AtomicU64::new(0));
    let changing = tokio::spawn({
        let (locker, family, over, changes) = (locker.clone(), family.clone(), over.clone(), changes.clone());
        async move {
            let admin = locker.admin();
            for number in 0_u64.. {
                let coming = format!("{family}/{} comes", number % 3_000);
                locker.counter(&coming).add(1).await.unwrap();
                if number >= 500 {
                    let going = format!("{family}/{} comes", (number - 500) % 3_000);
                    admin.delete(&admin.key("counter", &going)).await.unwrap();
                }
                changes.fetch_add(1, Ordering::Relaxed);
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    until("names change", async || changes.load(Ordering::Relaxed) > 500).await;
    let filter = Filter::default().kind("counter").name_prefix(format!("{family}/"));
    for limit in [700, 1_000] {
        let pages = pages(&locker, &filter, limit).await;
        let keys: Vec<&Listed> = pages.iter().flatten().collect();
        assert!(keys.is_sorted_by(|one, next| one.key < next.key), "in order, and none twice");
        assert!(pages.iter().all(|page| page.len() <= limit));
        let listed: HashSet<String> = keys.into_iter().map(name).collect();
        let missed: Vec<_> = stay.iter().filter(|name| !listed.contains(*name)).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }
    over.store(true, Ordering::Relaxed);
    changing.await.unwrap();
}

pub(crate) async fn page_has_what_its_filter_chooses(locker: Locker) {
    let (admin, family) = (locker.admin(), fresh_name());
    let names = ["a", "b", "c"].map(|end| format!("{family} {end}"));
    for name in &names {
        locker.counter(name).add(1).await.unwrap();
    }
    let _lock = locker.lock(&names[0]).acquire().await.unwrap();
    let of_family = Filter::default().name_prefix(&family);
    let kinds = |listed: &[Listed]| listed.iter().map(|one| one.named.kind()).collect::<Vec<_>>();
    let all = admin.page(&of_family, None, 10).await.unwrap();
    assert_eq!((kinds(&all.keys), all.next), (vec!["counter", "counter", "counter", "lock"], None));
    let counters = of_family.clone().kind("counter");
    let first = admin.page(&counters, None, 2).await.unwrap();
    assert_eq!(first.keys.iter().map(name).collect::<Vec<_>>(), names[..2]);
    let rest = admin.page(&counters, first.next.as_deref(), 2).await.unwrap();
    assert_eq!((rest.keys.iter().map(name).collect::<Vec<_>>(), rest.next), (vec![names[2].clone()], None));
    for (filter, limit, named) in [(of_family.clone(), 0, "limit"), (of_family.kind("look"), 1, "`look`")] {
        let error = admin.page(&filter, None, limit).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Misused && error.message().contains(named), "{error}");
    }
}

/// The line of the function below.
const WITHDRAW: u32 = line!() + 3;

#[lock_on_argument(expr = 60, args(card), locker = locker)]
async fn withdraw(locker: &Locker, card: u64) -> locker::Result<Listed> {
    let admin = locker.admin();
    let lock = Filter::default().kind("lock").name_prefix("behaviour.administration.withdraw");
    let listed = in_time("the name of the function", async {
        loop {
            let page = admin.page(&lock, None, 10).await.unwrap();
            if let [listed] = &page.keys[..] {
                return listed.clone();
            }
        }
    });
    let _ = card;
    Ok(listed.await)
}

/// The name comes to the store in the background.
pub(crate) async fn functions_are_listed_by_name_and_line(locker: Locker) {
    let listed = withdraw(&locker, 4001).await.unwrap();
    let source = listed.function.clone().unwrap();
    assert_eq!(
        (source.file.ends_with("behaviour/administration.rs"), source.line),
        (true, WITHDRAW),
        "{source}"
    );
    let key = locker.admin().key_on("behaviour.administration.withdraw", &[&4001]);
    assert_eq!(listed.key, key);
    assert_eq!(locker.admin().function(&key).await.unwrap(), Some(source));
    let Named::Function { digest, part: "lock", arguments: Some(arguments), .. } = listed.named else {
        panic!("{listed:?}")
    };
    assert_eq!(key.as_str(), format!("{}{digest}:lock|{arguments}", locker.prefix()));
}

pub(crate) async fn holds_have_the_note_of_their_locker(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let _held = (
        locker.lock(&name).acquire().await.unwrap(),
        locker.semaphore(&name, 2).acquire().await.unwrap(),
        locker.read_lock(&name).acquire().await.unwrap(),
    );
    let client = locker.keyed_semaphore(&name, 2).acquire("a client", MINUTE, Duration::ZERO).await.unwrap();
    let process = format!(":{}", std::process::id());
    for (kind, fence) in [("lock", 0), ("semaphore", 0), ("semaphore", client.fence), ("rwlock", 0)] {
        let key = admin.key(kind, &name);
        let note = async || {
            let holders = admin.inspect(&key).await.unwrap().unwrap().holders;
            holders.into_iter().find(|held| (held.fence == fence) == (fence > 0)).unwrap().note
        };
        if fence == client.fence {
            assert_eq!(note().await, None, "the server does not know its clients");
        } else {
            until("the note", async || note().await.is_some_and(|note| note.ends_with(&process))).await;
        }
    }
}

/// An operator ends what the list showed, not what has come since.
pub(crate) async fn evict_up_to_spares_later_holds(locker: Locker) {
    let (admin, name) = (locker.admin(), fresh_name());
    let key = admin.key("lock", &name);
    let seen = locker.lock(&name).acquire().await.unwrap();
    let next = queued(&locker, "lock", &name, locker.lock(&name).timeout(MINUTE).acquire()).await;
    let fence = seen.fence();
    assert!(!admin.evict_up_to(&key, fence - 1).await.unwrap());
    seen.release().await.unwrap();
    let next = in_time("the next holder", next).await.unwrap();
    assert!(!admin.evict_up_to(&key, fence).await.unwrap());
    next.check().unwrap();
    assert!(admin.evict_up_to(&key, next.fence()).await.unwrap());
    assert_eq!(next.release().await.unwrap_err().kind(), ErrorKind::Lost);

    let key = admin.key("semaphore", &name);
    let permit = async || locker.semaphore(&name, 3).acquire().await.unwrap();
    let (first, second, third) = (permit().await, permit().await, permit().await);
    assert!(admin.evict_up_to(&key, second.fence()).await.unwrap());
    let holders = admin.inspect(&key).await.unwrap().unwrap().holders;
    assert_eq!(holders.iter().map(|held| held.fence).collect::<Vec<_>>(), [third.fence()]);
    for ended in [first, second] {
        assert_eq!(ended.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    third.release().await.unwrap();
}
