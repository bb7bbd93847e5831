//! Functions that lead, of every shape.

use crate::support::{Done, LOCKER};
use async_trait::async_trait;
use locker::{Guard, leader, lock_on_argument, rate_limit};
use std::{future::ready, sync::Arc};

#[leader(name = "leader one line", locker = LOCKER)]
async fn one_line() -> Done {
    Ok(())
}

#[leader(name = "leader options", lease = "15s", stop_before = 3, min_hold = 0, max_hold = "1h", fair = true, renew = true, guard = term, locker = LOCKER)]
async fn options() -> Done<(String, u64)> {
    ready(()).await;
    term.check()?;
    Ok((term.key().to_owned(), term.fence()))
}

#[leader(name = "leader parameters", locker = LOCKER)]
async fn parameters(
    mut text: String,
    (a, mut b): (u32, u32),
    shared: Arc<u32>,
    _: u8,
    _unused: Vec<u8>,
) -> Done<String> {
    text.push('!');
    b += ready(a).await;
    drop(shared);
    Ok(format!("{text}{b}"))
}

#[leader(name = "leader borrowed", locker = LOCKER)]
async fn borrowed<'a>(text: &'a str, each: impl Fn(char) -> u32 + Clone) -> Done<(&'a str, u32)> {
    ready(()).await;
    Ok((text, text.chars().map(each).sum()))
}

#[leader(name = "leader early", locker = LOCKER)]
async fn early(fails: bool) -> Done<u8> {
    if fails {
        Err(crate::support::Failure::Own)?;
    }
    if !fails {
        return Ok(1);
    }
    Ok(2)
}

fn none(_: locker::Error) -> Option<u64> {
    None
}

#[leader(name = "leader on error", on_error = none, guard = term, locker = LOCKER)]
async fn on_error() -> Option<u64> {
    Some(term.fence())
}

struct Reaper {
    name: String,
}

impl Reaper {
    #[leader(name = "leader method", guard = term, locker = LOCKER)]
    async fn reap(&self, times: usize) -> Done<String> {
        ready(()).await;
        term.check()?;
        Ok(self.name.repeat(times))
    }
}

#[leader(name = "leader of a stack", guard = term, locker = LOCKER)]
#[lock_on_argument(name = "leader stack", args(id, (0)), guard = lock, locker = LOCKER)]
async fn above_a_lock(id: u64, owner: String) -> Done<(bool, String)> {
    ready(()).await;
    Ok((term.key() != lock.key() && id == 7, owner))
}

#[rate_limit(name = "leader limit", size = 100, interval = 1, args(id), locker = LOCKER)]
#[lock_on_argument(name = "leader outer", args(id), locker = LOCKER)]
#[leader(name = "leader below", guard = term, locker = LOCKER)]
async fn below_others(id: String, (a, b): (String, String)) -> Done<(u64, String)> {
    ready(()).await;
    Ok((term.fence(), id + &a + &b))
}

#[async_trait]
trait Sweeper {
    async fn sweep(&self, (a, b): (u32, u32), text: String) -> Done<String>;
}

#[async_trait]
impl Sweeper for Reaper {
    #[leader(name = "leader of a trait", locker = LOCKER)]
    #[lock_on_argument(name = "leader of a trait", args(a), locker = LOCKER)]
    async fn sweep(&self, (a, b): (u32, u32), text: String) -> Done<String> {
        ready(()).await;
        Ok(format!("{}{text}{a}{b}", self.name))
    }
}

#[leader(name = "leader of a closure", locker = LOCKER)]
async fn generic<T: Clone + Send>(value: T) -> Done<T> {
    ready(()).await;
    Ok(value)
}

#[allow(dead_code, reason = "it never returns")]
#[leader(name = "leader for good", on_error = never, locker = LOCKER)]
async fn for_good() -> ! {
    std::future::pending().await
}

fn never<T>(error: locker::Error) -> T {
    drop(error);
    unreachable!()
}

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn leaders_of_every_shape_lead() {
    is_send(one_line()).await.unwrap();
    let (key, fence) = is_send(options()).await.unwrap();
    assert_eq!(key, "leader:leader options");
    assert!(options().await.unwrap().1 > fence);
    let called = is_send(parameters("a".into(), (1, 2), Arc::new(1), 0, Vec::new()));
    assert_eq!(called.await.unwrap(), "a!3");
    assert_eq!(is_send(borrowed("ab", u32::from)).await.unwrap(), ("ab", 97 + 98));
    assert_eq!(early(false).await.unwrap(), 1);
    assert_eq!(early(true).await.unwrap_err().kind(), None);
    assert!(on_error().await.is_some());
    let reaper = Reaper { name: "r".into() };
    assert_eq!(is_send(reaper.reap(2)).await.unwrap(), "rr");
    assert_eq!(is_send(above_a_lock(7, "o".into())).await.unwrap(), (true, "o".into()));
    let below = is_send(below_others("1".into(), ("2".into(), "3".into())));
    assert_eq!(below.await.unwrap().1, "123");
    assert_eq!(is_send(reaper.sweep((1, 2), "t".into())).await.unwrap(), "rt12");
    assert_eq!(is_send(generic(String::from("v"))).await.unwrap(), "v");
}

#[tokio::test]
async fn borrowing_closure_leads() {
    let (mut calls, text) = (0, String::from("t"));
    let election = LOCKER.elect("leader by hand");
    let body = async |term: &Guard| {
        calls += 1;
        ready(()).await;
        Ok::<_, locker::Error>(format!("{text}{}", term.key()))
    };
    assert_eq!(election.run(body).await.unwrap(), "tleader:leader by hand");
    assert_eq!(calls, 1);
    let text = text.clone();
    let owned = async move |term: &Guard| {
        ready(()).await;
        term.check()?;
        Ok::<_, locker::Error>(text.len())
    };
    let called = tokio::spawn(LOCKER.elect("leader by hand").run(owned));
    assert_eq!(called.await.unwrap().unwrap(), 1);
}
