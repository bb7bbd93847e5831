//! Receivers, generics, return types, qualifiers.

use crate::support::{Done, Failure};
use locker::{Error, lock_on_argument};
use std::{fmt::Display, future::ready, pin::Pin, sync::Arc};

#[lock_on_argument]
fn nothing_but_the_function() -> Done {
    Ok(())
}

#[lock_on_argument(expr = 10, args(0))]
async fn asynchronous(account: u64) -> Done<u64> {
    ready(account).await;
    Ok(account)
}

/// Documented.
#[must_use]
#[inline]
#[lock_on_argument(args(account), on_error = refused)]
fn plain(account: u64) -> u64 {
    account
}

fn refused(error: Error) -> u64 {
    std::panic::panic_any(error)
}

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

#[lock_on_argument(args(0, 1), on_lost = "error")]
async fn generic<'a, 'b: 'a, T, U, const N: usize>(key: &'a T, other: &'b U, rest: [u8; N]) -> Done<&'a T>
where
    T: Display + ?Sized,
    U: Display,
{
    ready((other.to_string(), rest)).await;
    Ok(key)
}

#[lock_on_argument(args(key))]
fn plain_generic<'a, T: Display + ?Sized, const N: usize>(
    key: &'a T,
    rest: &[u8; N],
) -> Done<(&'a T, usize)> {
    Ok((key, rest.len()))
}

#[lock_on_argument(args(key))]
async fn impl_argument(key: impl Display + Send, values: impl IntoIterator<Item = u8>) -> Done<usize> {
    Ok(values.into_iter().count() + key.to_string().len())
}

#[lock_on_argument(args(key), on_error = five)]
fn impl_return(key: u8) -> impl Display + Copy {
    key
}

fn five(_: Error) -> u8 {
    5
}

#[lock_on_argument(args(key))]
async fn generic_error<E: From<Error>>(key: u8) -> Result<u8, E> {
    Ok(ready(key).await)
}

trait Outcome {
    type Out;
}

impl Outcome for Account {
    type Out = Result<u8, Failure>;
}

#[lock_on_argument(args(key))]
fn associated_type(key: u8) -> <Account as Outcome>::Out {
    Ok(key)
}

#[cfg_attr(all(), lock_on_argument(args(key)))]
fn conditional(key: u8) -> Done<u8> {
    Ok(key)
}

#[lock_on_argument(args(key))]
async fn impl_in_result(key: u8) -> Result<impl Display, Failure> {
    if key > 250 {
        return Err(Failure::Own);
    }
    Ok(key)
}

#[lock_on_argument(args(key), on_error = unlike)]
async fn coerced(key: u8) -> Option<Box<dyn Display + Send>> {
    Some(Box::new(key))
}

fn unlike(_: Error) -> Option<Box<dyn Display + Send>> {
    None
}

#[lock_on_argument(args(key), on_error = unlike, on_lost = "error")]
fn plain_coerced(key: u8) -> Option<Box<dyn Display + Send>> {
    if key == 0 {
        return None;
    }
    Some(Box::new(key))
}

#[lock_on_argument(on_error = diverge)]
fn never() -> ! {
    panic!("never returns")
}

#[lock_on_argument(on_error = diverge)]
async fn async_never() -> ! {
    ready(()).await;
    panic!("never returns")
}

#[lock_on_argument(on_error = diverge, on_lost = "continue")]
async fn async_never_continues() -> ! {
    loop {
        ready(()).await;
        assert!(diverging(), "never returns");
    }
}

fn diverging() -> bool {
    false
}

fn diverge(error: Error) -> ! {
    std::panic::panic_any(error)
}

#[lock_on_argument(on_error = drop)]
fn unit() {
    diverging();
}

#[lock_on_argument(on_error = drop, args(0))]
async fn async_unit(times: u8) {
    for _ in 0..times {
        ready(()).await;
    }
}

#[lock_on_argument(args(r#type))]
async fn r#match(r#type: u8) -> Done<u8> {
    Ok(r#type)
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

macro_rules! function {
    ($name:ident, $parameter:ident: $type:ty, $lease:expr) => {
        #[lock_on_argument(expr = $lease, args($parameter, 0 + 1, "text".len()))]
        async fn $name($parameter: $type, x: u8) -> Done<$type> {
            ready(x).await;
            Ok($parameter)
        }
    };
    ($name:ident at $position:literal) => {
        #[lock_on_argument(args($position))]
        fn $name(x: u8) -> Done<u8> {
            Ok(x)
        }
    };
}
function!(from_macro, x: u64, 10);
function!(from_macro_at at 0);

#[lock_on_argument(args(number))]
fn inner_attributes(number: u8) -> Done<u8> {
    #![allow(unused_variables, reason = "what the test is about")]
    let unused = 1;
    Ok(number)
}

#[track_caller]
#[lock_on_argument]
fn line() -> Done<u32> {
    Ok(std::panic::Location::caller().line())
}

#[lock_on_argument(args(text))]
async fn question_mark(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let number = ready(text).await.parse::<u64>()?;
    'outer: loop {
        for i in 0.. {
            if i > number {
                break 'outer;
            }
            if i == 7 {
                return Ok(7);
            }
        }
    }
    Ok(number)
}

#[lock_on_argument(args(text))]
fn plain_question_mark(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let number = text.parse()?;
    if number == 7 {
        return Ok(8);
    }
    Ok(number)
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
}

#[tokio::test]
async fn generics_and_opaque_types_are_accepted() {
    assert_eq!(*generic("a", &1, [0; 3]).await.unwrap(), *"a");
    assert_eq!(plain_generic("a", &[0; 3]).unwrap(), ("a", 3));
    assert_eq!(impl_argument("ab", [1, 2]).await.unwrap(), 4);
    assert_eq!(impl_return(250).to_string(), "250");
    assert_eq!(impl_in_result(250).await.unwrap().to_string(), "250");
    assert!(impl_in_result(251).await.is_err());
    assert_eq!(generic_error::<Failure>(1).await.unwrap(), 1);
    assert_eq!(associated_type(1).unwrap(), 1);
    assert_eq!(conditional(1).unwrap(), 1);
    assert_eq!(coerced(9).await.unwrap().to_string(), "9");
    assert_eq!(plain_coerced(9).unwrap().to_string(), "9");
    assert!(plain_coerced(0).is_none());
}

#[tokio::test]
async fn functions_of_every_kind_are_accepted() {
    nothing_but_the_function().unwrap();
    assert_eq!(asynchronous(1).await.unwrap(), 1);
    assert_eq!(plain(1), 1);
    unit();
    async_unit(2).await;
    assert_eq!(r#match(4).await.unwrap(), 4);
    assert_eq!(from_macro(4, 1).await.unwrap(), 4);
    assert_eq!(from_macro_at(4).unwrap(), 4);
    assert_eq!(inner_attributes(4).unwrap(), 4);
    assert_eq!(line().unwrap(), line!());
}

#[tokio::test]
async fn early_ends_of_the_body_are_accepted() {
    assert_eq!(question_mark("3").await.unwrap(), 3);
    assert_eq!(question_mark("9").await.unwrap(), 7);
    assert_eq!(question_mark("x").await.unwrap_err().to_string(), "invalid digit found in string");
    assert_eq!(plain_question_mark("3").unwrap(), 3);
    assert_eq!(plain_question_mark("7").unwrap(), 8);
    assert!(plain_question_mark("x").is_err());
}

#[test]
#[should_panic = "never returns"]
fn never_is_accepted() {
    never();
}

#[tokio::test]
#[should_panic = "never returns"]
async fn async_never_is_accepted() {
    async_never().await;
}

#[tokio::test]
#[should_panic = "never returns"]
async fn async_never_that_continues_is_accepted() {
    async_never_continues().await;
}
