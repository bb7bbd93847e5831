//! Every option in every form.

use crate::support::{Done, Failure, LOCKER};
use locker::{Locker, limit_concurrency, lock_on_argument, rate_limit};
use std::{sync::Arc, time::Duration};

const LEASE: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 2;

#[lock_on_argument(expr = 10, args(0), timeout = 0.5, max_retry = 3, retry_delay = "100ms", fair = false)]
async fn numbers(id: u64) -> Done<u64> {
    Ok(id)
}

#[lock_on_argument(
    lease = "10s",
    args(),
    max_hold = "1m",
    stop_before = "5s",
    min_hold = 1,
    renew = true,
    release = "on_return",
    on_lost = "cancel",
    name = "options.texts"
)]
async fn texts() -> Done {
    Ok(())
}

#[lock_on_argument(
    expire = LEASE,
    timeout = Duration::from_millis(10),
    max_retry = ATTEMPTS,
    max_hold = "5s",
    stop_before = Duration::from_millis(2_500),
    min_hold = LEASE
)]
fn constants() -> Done {
    Ok(())
}

/// The longest times, and a limit that is as long as the lease.
#[lock_on_argument(
    expr = 316_224_000,
    max_hold = 316_224_000,
    timeout = 316_224_000,
    retry_delay = 316_224_000
)]
fn longest() -> Done {
    Ok(())
}

#[lock_on_argument(renew = false, on_lost = "continue", on_error = Failure::rethrow)]
fn switches() -> Done {
    Ok(())
}

impl Failure {
    fn rethrow(error: locker::Error) -> Done {
        Err(Self::Locker(error))
    }
}

struct Service {
    shared: Arc<Locker>,
    own: Locker,
}

impl Service {
    const LEASE: Duration = LEASE;

    #[lock_on_argument(expr = Self::LEASE, locker = self.shared, on_error = Self::refused)]
    async fn on_shared(&self) -> bool {
        true
    }

    #[lock_on_argument(locker = &self.own, on_error = Self::refused)]
    fn on_own(&self) -> bool {
        true
    }

    #[lock_on_argument(locker = self.borrowed(), on_error = Self::refused)]
    fn on_borrowed(&self) -> bool {
        true
    }

    #[lock_on_argument(locker = self.own.clone(), on_error = Self::refused, lease = LEASE)]
    async fn on_temporary<const N: u64>(&self) -> bool {
        N == 3
    }

    #[lock_on_argument(expr = Duration::from_secs(N), locker = self.own, on_error = Self::refused)]
    async fn by_parameter<const N: u64>(&self) -> bool {
        N == 3
    }

    fn borrowed(&self) -> &Locker {
        &self.own
    }

    fn refused(_: locker::Error) -> bool {
        false
    }
}

struct Pool<const N: u64>(u64);

impl<const N: u64> Pool<N> {
    const SIZE: u64 = N;

    #[limit_concurrency(size = N, expr = LEASE, max_hold = Duration::from_secs(N), args(N), locker = LOCKER)]
    fn enter(&self) -> Done<u64> {
        Ok(self.0)
    }

    #[rate_limit(size = N, interval = Duration::from_secs(N), algorithm = "gcra", burst = N, args(N), locker = LOCKER)]
    async fn ask(&self) -> Done<u64> {
        Ok(self.0)
    }

    #[limit_concurrency(size = Self::SIZE, expr = LEASE, max_hold = "1m", args(N, ATTEMPTS), locker = LOCKER)]
    fn associated() -> Done<u64> {
        Ok(N)
    }
}

trait Leased {
    const LEASE: Duration;
}

impl Leased for u8 {
    const LEASE: Duration = LEASE;
}

trait Trying<const ATTEMPTS: u32> {
    #[lock_on_argument(max_retry = ATTEMPTS, args(ATTEMPTS), timeout = Duration::MAX, locker = LOCKER)]
    fn attempts(&self) -> Done<u32> {
        Ok(ATTEMPTS)
    }
}

struct Generic<T>(T);

impl<T: Leased> Generic<T> {
    #[lock_on_argument(lease = T::LEASE, max_hold = T::LEASE, retry_delay = T::LEASE, args(by), locker = LOCKER)]
    async fn lease(&self, by: u8) -> Done<u8> {
        Ok(by)
    }

    #[lock_on_argument(lease = T::LEASE, max_hold = "1m", each(ATTEMPTS, 0), locker = LOCKER)]
    async fn leases(&self, by: u8) -> Done<u8> {
        Ok(by)
    }
}

impl Trying<3> for Generic<u8> {}

#[lock_on_argument(name = "options.each", each(from, to), locker = LOCKER)]
fn transfer(from: u64, to: u64) -> Done<u64> {
    Ok(from + to)
}

#[tokio::test]
async fn every_option_is_accepted() {
    assert_eq!(numbers(1).await.unwrap(), 1);
    texts().await.unwrap();
    constants().unwrap();
    longest().unwrap();
    switches().unwrap();
    assert_eq!(transfer(1, 2).unwrap(), 3);
    assert_eq!(transfer(1, 1).unwrap(), 2);
}

#[tokio::test]
async fn locker_is_any_expression() {
    let service = Service { shared: Arc::new(Locker::memory()), own: Locker::memory() };
    assert!(service.on_shared().await);
    assert!(service.on_own());
    assert!(service.on_borrowed());
    assert!(service.on_temporary::<3>().await);
    assert!(service.by_parameter::<3>().await);
}

#[tokio::test]
async fn constants_may_be_generic() {
    assert_eq!(Pool::<7>(7).enter().unwrap(), 7);
    assert_eq!(Pool::<7>(7).ask().await.unwrap(), 7);
    assert_eq!(Pool::<7>::associated().unwrap(), 7);
    let generic = Generic(0_u8);
    assert_eq!(generic.lease(1).await.unwrap(), 1);
    assert_eq!(generic.leases(1).await.unwrap(), 1);
    assert_eq!(generic.attempts().unwrap(), 3);
}
