//! Methods in impl blocks and in traits.

use crate::support::Done;
use locker::lock_on_argument;
use std::{future::ready, pin::Pin, sync::Arc};

struct Account {
    id: u64,
    balance: u64,
}

impl Account {
    #[lock_on_argument(args(self.id))]
    async fn by_reference(&self) -> Done<&u64> {
        ready(()).await;
        Ok(&self.balance)
    }

    #[lock_on_argument(args(self.id, amount))]
    async fn by_mutable_reference(&mut self, amount: u64) -> Done<&mut u64> {
        ready(()).await;
        self.balance += amount;
        Ok(&mut self.balance)
    }

    #[lock_on_argument(args(self.id))]
    fn plain_reference(&self, _times: u8) -> Done<&u64> {
        Ok(&self.balance)
    }

    #[lock_on_argument(args(&self.id))]
    async fn boxed(self: Box<Self>) -> Done<Self> {
        Ok(*self)
    }

    #[lock_on_argument(args(self.id))]
    fn shared(self: Arc<Self>) -> Done<Arc<Self>> {
        Ok(self)
    }

    #[lock_on_argument(args(self.id), on_lost = "error")]
    fn pinned(self: Pin<&mut Self>) -> Done<u64> {
        Ok(self.id)
    }

    #[lock_on_argument(args(self.id), on_lost = "continue")]
    async fn consumed(mut self) -> Done<u64> {
        self.id += 1;
        Ok(self.id)
    }

    #[lock_on_argument(args(id))]
    async fn associated(id: u64) -> Done<Self> {
        Ok(Self { id, balance: 0 })
    }
}

trait Ledger {
    fn id(&self) -> u64;

    #[lock_on_argument(args(self.id()))]
    fn close(&self) -> Done<u64> {
        Ok(self.id())
    }

    #[allow(async_fn_in_trait, reason = "not a public trait")]
    #[lock_on_argument(args(self.id()))]
    async fn close_later(&self) -> Done<u64> {
        ready(()).await;
        Ok(self.id())
    }
}

impl Ledger for Account {
    fn id(&self) -> u64 {
        self.id
    }

    #[lock_on_argument]
    async fn close_later(&self) -> Done<u64> {
        Ok(0)
    }
}

struct Borrowed<'a, T>(&'a str, T);

impl<'a, T: Send + Sync> Borrowed<'a, T> {
    #[lock_on_argument(args(self.0))]
    async fn text(&self, _other: &str) -> Done<&'a str> {
        ready(&self.1).await;
        Ok(self.0)
    }

    #[lock_on_argument(args(self.0), on_lost = "error")]
    fn parts<'b>(&'b mut self, more: &'a str) -> Done<(&'b mut T, &'a str)> {
        self.0 = more;
        Ok((&mut self.1, self.0))
    }
}

#[tokio::test]
async fn receivers_are_accepted() {
    let mut account = Account { id: 1, balance: 2 };
    assert_eq!(*account.by_reference().await.unwrap(), 2);
    assert_eq!(*account.by_mutable_reference(3).await.unwrap(), 5);
    assert_eq!(*account.plain_reference(1).unwrap(), 5);
    assert_eq!(Pin::new(&mut account).pinned().unwrap(), 1);
    let account = Box::new(account).boxed().await.unwrap();
    let account = Arc::into_inner(Arc::new(account).shared().unwrap()).unwrap();
    assert_eq!(account.close().unwrap(), 1);
    assert_eq!(account.close_later().await.unwrap(), 0);
    assert_eq!(account.consumed().await.unwrap(), 2);
    assert_eq!(Account::associated(7).await.unwrap().id, 7);
    let mut borrowed = Borrowed("a", 1);
    assert_eq!(borrowed.text("b").await.unwrap(), "a");
    assert_eq!(borrowed.parts("b").unwrap(), (&mut 1, "b"));
}
