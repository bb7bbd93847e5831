//! The tests that `docs/how-to/test.md` shows, run as they are there.

use locker::{ErrorKind, Locker, lock_on_argument, rate_limit, stores::Memory, testing};
use std::{future::pending, time::Duration};

struct Shop {
    locker: Locker,
}

impl Shop {
    #[lock_on_argument(name = "shop.ship", args(order), locker = self.locker)]
    async fn ship(&self, order: u64, packing: Duration) -> locker::Result<String> {
        tokio::time::sleep(packing).await;
        Ok(format!("order {order} is on its way"))
    }
}

#[tokio::test]
async fn order_is_shipped() {
    let shop = Shop { locker: Locker::memory() };
    let answer = shop.ship(7, Duration::ZERO).await.unwrap();
    assert_eq!(answer, "order 7 is on its way");
}

#[lock_on_argument(name = "order.pack", args(order), locker = locker)]
async fn pack(order: u64, locker: &Locker) -> locker::Result<()> {
    Ok(())
}

#[tokio::test]
async fn busy_order_times_out() {
    let locker = Locker::builder().store(Memory::new()).timeout(Duration::ZERO).build().await.unwrap();
    let guard = locker.lock_on("order.pack", &[&7]).acquire().await.unwrap();

    let error = pack(7, &locker).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(pack(8, &locker).await.is_ok(), "another order does not wait");

    guard.release().await.unwrap();
    assert!(pack(7, &locker).await.is_ok());
}

#[lock_on_argument(name = "order.load", args(order), locker = locker)]
async fn load(order: u64, locker: &Locker) -> locker::Result<()> {
    pending().await
}

#[tokio::test]
async fn lost_lock_cancels_loading() {
    let (locker, control) = testing::memory();
    let key = locker.admin().key_on("order.load", &[&7]);

    let (loaded, was_held) = tokio::join!(load(7, &locker), async { control.lose(&key) });
    assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Lost);
    assert!(was_held.unwrap());
}

#[rate_limit(name = "shop.mail", size = 2, interval = "1h", args(user), timeout = 0, locker = locker)]
async fn mail(user: u64, locker: &Locker) -> locker::Result<()> {
    Ok(())
}

#[tokio::test]
async fn third_mail_has_to_wait_an_hour() {
    let (locker, control) = testing::memory();
    mail(1, &locker).await.unwrap();
    mail(1, &locker).await.unwrap();
    let error = mail(1, &locker).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limited);
    assert!(mail(2, &locker).await.is_ok(), "each user has a limit of their own");

    control.advance(Duration::from_secs(3600));
    mail(1, &locker).await.unwrap();
}

#[tokio::test]
async fn no_mail_is_sent_during_an_outage() {
    let (locker, control) = testing::memory();

    let outage = control.outage();
    let error = mail(1, &locker).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    drop(outage);
    mail(1, &locker).await.unwrap();
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn long_packing_keeps_its_lock() {
    let (locker, _paused) = testing::paused();
    let shop = Shop { locker };

    let (first, second) = tokio::join!(shop.ship(7, HOUR), shop.ship(7, Duration::ZERO));
    assert!(first.is_ok(), "its lease of 10 s was renewed");
    assert_eq!(second.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// A snippet that was changed in one place only would no longer be what is tested.
#[test]
fn page_shows_these_tests() {
    let (page, tests) = (include_str!("../docs/how-to/test.md"), include_str!("testing_page.rs"));
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for part in blocks.iter().flat_map(|block| block.trim().split("\n\n")) {
        assert!(part.starts_with("use ") || tests.contains(part), "not in the tests:\n{part}");
    }
}
