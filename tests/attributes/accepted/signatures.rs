//! Generics and return types.

use crate::support::{Done, Failure};
use locker::{Error, lock_on_argument};
use std::{fmt::Display, future::ready};

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

impl Outcome for u8 {
    type Out = Result<Self, Failure>;
}

#[lock_on_argument(args(key))]
fn associated_type(key: u8) -> <u8 as Outcome>::Out {
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
    assert_eq!(coerced(9).await.unwrap().to_string(), "9");
    assert_eq!(plain_coerced(9).unwrap().to_string(), "9");
    assert!(plain_coerced(0).is_none());
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
