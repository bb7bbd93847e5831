//! Attributes of other crates, above and below.

use crate::support::{Done, Failure, LOCKER};
use async_trait::async_trait;
use locker::lock_on_argument;
use std::{collections::VecDeque, fmt::Display, future::ready, sync::Arc};

/// Returns the key of the same lock taken by hand.
fn key(arguments: &[&dyn locker::KeyPart]) -> String {
    LOCKER.lock_on("other.crates", arguments).acquire_blocking().unwrap().key().to_owned()
}

#[async_trait]
trait Shop: Sync {
    fn id(&self) -> u64;

    async fn sell(&mut self, item: u64, lot: (u32, u32), note: &str) -> Done<String>;

    #[lock_on_argument(name = "other.crates", args(self.id()), locker = LOCKER, guard = lease)]
    async fn close(&self) -> Done<String> {
        ready(self.id()).await;
        Ok(lease.key().to_owned())
    }

    #[lock_on_argument(on_error = drop, locker = LOCKER)]
    async fn nothing(&self) {
        ready(self.id()).await;
    }
}

struct Stall(u64);

#[async_trait]
impl Shop for Stall {
    fn id(&self) -> u64 {
        self.0
    }

    #[lock_on_argument(name = "other.crates", args(self.0, 0, count, note), locker = LOCKER, guard = lease)]
    async fn sell(&mut self, item: u64, (count, mut price): (u32, u32), note: &str) -> Done<String> {
        price += ready(count).await;
        self.0 += u64::from(price) + item;
        if note.is_empty() {
            return Err(Failure::Own);
        }
        Ok(lease.key().to_owned())
    }
}

struct Whole(u64);

#[async_trait]
impl Shop for Whole {
    fn id(&self) -> u64 {
        self.0
    }

    #[lock_on_argument(name = "other.crates", args(2, 0), locker = LOCKER, guard = lease, on_lost = "error")]
    async fn sell(&mut self, _: u64, (count, _): (u32, u32), note: &str) -> Done<String> {
        self.0 += u64::from(ready(count).await);
        drop(note.to_owned());
        Ok(lease.key().to_owned())
    }
}

#[async_trait(?Send)]
trait Boxed {
    async fn consume(self: Box<Self>, text: std::rc::Rc<str>) -> Done<usize>;
}

#[async_trait(?Send)]
impl<T: Display> Boxed for T {
    #[lock_on_argument(args(self, 0), locker = LOCKER)]
    async fn consume(self: Box<Self>, text: std::rc::Rc<str>) -> Done<usize> {
        ready(()).await;
        Ok(text.len() + self.to_string().len())
    }
}

#[tracing_attributes::instrument(skip_all, fields(id))]
#[lock_on_argument(name = "other.crates", args(id), locker = LOCKER)]
async fn instrument_above(id: u64, text: &str) -> Done<&str> {
    ready(id).await;
    Ok(text)
}

#[lock_on_argument(name = "other.crates", args(id), locker = LOCKER)]
#[tracing_attributes::instrument(err(Debug), ret)]
async fn instrument_below(id: u64, text: &str) -> Done<&str> {
    ready(id).await;
    Ok(text)
}

#[tracing_attributes::instrument]
#[lock_on_argument(args(id), locker = LOCKER)]
fn plain_instrument_above(id: u64) -> Done<u64> {
    Ok(id)
}

#[lock_on_argument(args(id), locker = LOCKER, on_lost = "error")]
#[tracing_attributes::instrument]
fn plain_instrument_below(id: u64) -> Done<u64> {
    Ok(id)
}

#[async_trait]
trait Traced {
    #[tracing_attributes::instrument(skip(self))]
    #[lock_on_argument(args(id), locker = LOCKER)]
    async fn traced(&self, id: u64) -> Done<u64> {
        Ok(ready(id).await)
    }
}

impl Traced for Stall {}

#[async_trait]
trait Twice {
    #[lock_on_argument(name = "other.crates", args(0), locker = LOCKER, guard = outer)]
    #[lock_on_argument(name = "other.crates", args(b), locker = LOCKER, guard = inner, on_lost = "error")]
    async fn twice(&self, a: u8, (b, _): (u8, u8)) -> Done<[String; 2]> {
        let _: u8 = ready(a).await;
        Ok([outer.key().to_owned(), inner.key().to_owned()])
    }
}

impl Twice for Stall {}

struct State<T = locker::Locker>(T);

#[async_trait]
trait Handler {
    #[lock_on_argument(name = "other.crates", args(id), locker = state, guard = lease)]
    async fn handle(&self, State(state): State, id: u8) -> Done<String> {
        ready(&state).await;
        Ok(lease.key().to_owned())
    }
}

impl Handler for Stall {}

#[async_trait]
trait InText {
    #[lock_on_argument(name = "other.crates", args(format!("{count:>0$}", 2), vec![format!("{{{text}}}")][0]), guard = lease, locker = LOCKER)]
    async fn in_text(&self, (count, _): (u32, u32), State(text): State<&str>) -> Done<String> {
        ready((count, text)).await;
        Ok(lease.key().to_owned())
    }
}

impl InText for Stall {}

#[lock_on_argument(name = "other.crates", args(1), locker = state, guard = lease)]
async fn handle(State(state): State, id: u8) -> Done<String> {
    ready(&state).await;
    assert_eq!(id, 41);
    Ok(lease.key().to_owned())
}

#[tokio::test]
#[lock_on_argument(locker = LOCKER)]
async fn tokio_test_above() -> Done {
    ready(()).await;
    Ok(())
}

#[lock_on_argument(locker = LOCKER)]
#[tokio::test]
async fn tokio_test_below() -> Done {
    ready(()).await;
    Ok(())
}

#[test]
#[lock_on_argument(locker = LOCKER)]
fn test_above() -> Done {
    Ok(())
}

#[lock_on_argument(locker = LOCKER)]
#[test]
fn test_below() -> Done {
    Ok(())
}

#[tokio::test]
async fn async_trait_methods_are_locked_inside() {
    let mut stall = Stall(3);
    assert_eq!(stall.sell(4, (5, 6), "note").await.unwrap(), key(&[&3, &4, &5, &"note"]));
    assert_eq!(stall.0, 3 + 11 + 4);
    assert!(matches!(stall.sell(4, (5, 6), "").await, Err(Failure::Own)));
    let shop: Arc<dyn Shop + Send> = Arc::new(Stall(8));
    assert_eq!(shop.close().await.unwrap(), key(&[&8]));
    shop.nothing().await;
    let mut shops: VecDeque<Box<dyn Shop + Send>> = VecDeque::from([Box::new(Whole(1)) as _]);
    assert_eq!(shops[0].sell(4, (5, 6), "note").await.unwrap(), key(&[&"note", &4]));
    assert_eq!(Box::new(17).consume("ab".into()).await.unwrap(), 4);
}

#[tokio::test]
async fn locker_comes_out_of_a_pattern() {
    let state = || State(LOCKER.clone());
    assert_eq!(Stall(1).handle(state(), 41).await.unwrap(), key(&[&41]));
    assert_eq!(handle(state(), 41).await.unwrap(), key(&[&41]));
}

#[tokio::test]
async fn names_in_formats_are_bindings_of_patterns() {
    assert_eq!(Stall(1).in_text((42, 0), State("a")).await.unwrap(), key(&[&"42", &"{a}"]));
}

#[tokio::test]
async fn attributes_stack_under_async_trait() {
    assert_eq!(Stall(1).twice(31, (32, 0)).await.unwrap(), [key(&[&31]), key(&[&32])]);
}

#[tokio::test]
async fn instrument_goes_above_and_below() {
    assert_eq!(instrument_above(1, "a").await.unwrap(), "a");
    assert_eq!(instrument_below(1, "a").await.unwrap(), "a");
    assert_eq!(plain_instrument_above(1).unwrap(), 1);
    assert_eq!(plain_instrument_below(1).unwrap(), 1);
    assert_eq!(Stall(1).traced(2).await.unwrap(), 2);
}
