//! The tests that `docs/testing.md` shows, run as they are there.

use locker::{ErrorKind, Key, Locker, lock_on_argument, rate_limit, stores::Memory};
use std::time::Duration;

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

#[tokio::test]
async fn busy_order_times_out() {
    let locker = Locker::builder().store(Memory::new()).timeout(Duration::ZERO).build().await.unwrap();
    let shop = Shop { locker: locker.clone() };
    let guard = locker.lock_on("shop.ship", &[&7]).acquire().await.unwrap();

    let error = shop.ship(7, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(shop.ship(8, Duration::ZERO).await.is_ok(), "another order does not wait");

    guard.release().await.unwrap();
    assert!(shop.ship(7, Duration::ZERO).await.is_ok());
}

#[tokio::test]
async fn lost_lock_cancels_shipping() {
    let builder = Locker::builder().store(Memory::new()).lease(Duration::from_millis(100));
    let locker = builder.build().await.unwrap();
    let shop = Shop { locker: locker.clone() };
    let key = Key::new(locker.lock_on("shop.ship", &[&7]).acquire().await.unwrap().key());

    let end_by_force = async {
        while !locker.admin().evict(&key).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    let (shipped, ()) = tokio::join!(shop.ship(7, Duration::from_secs(3600)), end_by_force);
    assert_eq!(shipped.unwrap_err().kind(), ErrorKind::Lost);
}

#[rate_limit(name = "shop.mail", size = 2, interval = "1h", args(user), timeout = 0, locker = locker)]
async fn mail(user: u64, locker: &Locker) -> locker::Result<()> {
    Ok(())
}

#[tokio::test]
async fn third_mail_is_refused() {
    let locker = Locker::memory();
    mail(1, &locker).await.unwrap();
    mail(1, &locker).await.unwrap();
    let error = mail(1, &locker).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limited);
    assert!(mail(2, &locker).await.is_ok(), "each user has a limit of their own");
}

/// A snippet that was changed in one place only would no longer be what is tested.
#[test]
fn page_shows_these_tests() {
    let (page, tests) = (include_str!("../docs/testing.md"), include_str!("testing_page.rs"));
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for part in blocks.iter().flat_map(|block| block.trim().split("\n\n")) {
        assert!(part.starts_with("use ") || tests.contains(part), "not in the tests:\n{part}");
    }
}
