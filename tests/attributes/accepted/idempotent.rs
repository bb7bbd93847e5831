//! Functions whose result is kept, of every shape.

use crate::support::{Done, Failure, LOCKER};
use locker::{ErrorKind, idempotent, lock_on_argument};
use serde::{Deserialize, Serialize};
use std::{
    future::ready,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    card: String,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

fn receipt(card: &str) -> Receipt {
    Receipt { number: NUMBER.fetch_add(1, Ordering::Relaxed), card: card.into() }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const BYTES: usize = 1 << 10;

#[idempotent(name = "pay plain", args(request), same(card, amount), keep = "24h", locker = LOCKER)]
fn plain(request: u64, card: &str, amount: u64) -> Done<Receipt> {
    if amount == 0 {
        return Err(Failure::Own);
    }
    Ok(receipt(card))
}

#[idempotent(name = "pay async", keep = DAY, max_size = BYTES, args(request), after_crash = "refuse", guard = run, locker = LOCKER)]
async fn in_future(request: String, card: String) -> Done<Receipt> {
    ready(()).await;
    run.check()?;
    Ok(receipt(&card))
}

#[idempotent(name = "pay coalesced", keep = 0, args(0), timeout = 1, locker = LOCKER)]
async fn coalesced(_id: u64) -> Done<u64> {
    ready(()).await;
    Ok(NUMBER.fetch_add(1, Ordering::Relaxed))
}

#[idempotent(name = "pay large", keep = "1h", max_size = 8, args(id), locker = LOCKER)]
fn large(id: u64, bytes: usize) -> Done<String> {
    Ok("x".repeat(bytes))
}

#[lock_on_argument(name = "pay lock", args(id), locker = LOCKER)]
#[idempotent(name = "pay below", keep = "1h", args(id), same(text.len()), locker = LOCKER)]
async fn below_a_lock<T: AsRef<str> + Send + Sync>(
    id: u64,
    text: &str,
    other: T,
) -> Result<(u64, String), Failure> {
    ready(()).await;
    Ok((id, format!("{text}{}", other.as_ref())))
}

struct Shop {
    sold: u64,
}

impl Shop {
    #[idempotent(name = "pay method", keep = "1h", args(id), same(self.sold), locker = LOCKER)]
    fn sell(&mut self, id: u64) -> Done<u64> {
        self.sold += 1;
        Ok(id)
    }
}

#[tokio::test]
async fn results_of_functions_of_every_shape_are_kept() {
    let first = plain(1, "4001", 100).unwrap();
    assert_eq!(plain(1, "4001", 100).unwrap(), first);
    assert_eq!(plain(1, "4001", 200).unwrap_err().kind(), Some(ErrorKind::Conflict));
    assert_ne!(plain(2, "4001", 100).unwrap(), first);
    assert_eq!(plain(3, "4001", 0).unwrap_err().kind(), None);
    assert_eq!(plain(3, "4002", 7).unwrap().card, "4002", "a failure is not kept");
    let first = in_future("a".into(), "4003".into()).await.unwrap();
    assert_eq!(in_future("a".into(), "4004".into()).await.unwrap(), first);
    assert_ne!(coalesced(1).await.unwrap(), coalesced(1).await.unwrap());
    assert_eq!(large(1, 6).unwrap().len(), 6);
    assert_eq!(large(1, 1).unwrap().len(), 6);
    assert_eq!(large(2, 7).unwrap().len(), 7);
    let error = large(2, 1).unwrap_err();
    assert!(
        matches!(&error, Failure::Locker(error) if error.message().contains("its result of 9 bytes was not kept: at most 8")),
        "{error:?}"
    );
    assert_eq!(below_a_lock(1, "a", "b").await.unwrap(), (1, "ab".into()));
    assert_eq!(below_a_lock(1, "c", "d").await.unwrap(), (1, "ab".into()));
    assert_eq!(below_a_lock(1, "cc", "d").await.unwrap_err().kind(), Some(ErrorKind::Conflict));
    let mut shop = Shop { sold: 0 };
    assert_eq!((shop.sell(7).unwrap(), shop.sold), (7, 1));
    assert_eq!(shop.sell(7).unwrap_err().kind(), Some(ErrorKind::Conflict));
    assert_eq!((Shop { sold: 0 }.sell(7).unwrap(), shop.sold), (7, 1));
}

/// A panic is no success, and no result.
#[test]
fn panicked_run_is_followed() {
    #[idempotent(name = "pay panics", keep = "1h", args(), locker = LOCKER)]
    fn panics(times: &AtomicU64) -> Done<u64> {
        assert!(times.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Ok(times.load(Ordering::Relaxed))
    }
    #[idempotent(name = "pay refuses", keep = "1h", args(), after_crash = "refuse", lease = "50ms", locker = LOCKER)]
    fn refuses(times: &AtomicU64) -> Done<u64> {
        assert!(times.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Ok(times.load(Ordering::Relaxed))
    }
    let refused = AtomicU64::new(0);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| refuses(&refused))).unwrap_err();
    assert_eq!((refuses(&refused).unwrap_err().kind(), refused.into_inner()), (Some(ErrorKind::Lost), 1));
    let times = AtomicU64::new(0);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics(&times))).unwrap_err();
    assert_eq!((panics(&times).unwrap(), panics(&times).unwrap()), (2, 2));
}
