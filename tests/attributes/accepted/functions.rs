//! Plain and async functions, their qualifiers, and early ends of their bodies.

use crate::support::Done;
use locker::{Error, lock_on_argument};
use std::future::ready;

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

#[cfg_attr(all(), lock_on_argument(args(key)))]
fn conditional(key: u8) -> Done<u8> {
    Ok(key)
}

#[lock_on_argument(on_error = drop)]
fn unit() {
    println!();
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
    #![allow(unused_variables, reason = "the attribute under test")]
    let unused = 1;
    Ok(number)
}

#[track_caller]
#[lock_on_argument]
fn line() -> Done<u32> {
    Ok(std::panic::Location::caller().line())
}

#[cfg_attr(all(), track_caller)]
#[lock_on_argument(args(0))]
fn line_if(named: bool) -> Done<u32> {
    assert!(named, "{named:?}");
    Ok(std::panic::Location::caller().line())
}

/// Runs in a closure, which `Location::caller` does not see through.
#[track_caller]
#[lock_on_argument(args(0))]
fn tracked_question_mark(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    Ok(text.parse()?)
}

#[allow(clippy::needless_pass_by_value, reason = "the temporary at the end borrows from it")]
#[lock_on_argument]
fn temporary_of_an_argument(count: std::sync::Mutex<u64>) -> Done<u64> {
    Ok(*count.lock().unwrap())
}

#[lock_on_argument]
fn first<'a, T: ?Sized + AsRef<str>>(
    parts: &mut Vec<&'a T>,
    call: impl FnOnce() -> usize,
) -> Done<Option<&'a str>> {
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(parts.remove(call()).as_ref()))
}

#[lock_on_argument(args(counts.len()))]
fn entry<'a>(counts: &'a mut Vec<u8>, boxed: Box<dyn Fn(&str) -> &str + '_>) -> Done<(&'a mut u8, String)> {
    let text = boxed("a").to_owned();
    match counts.first_mut() {
        Some(count) => Ok((count, text)),
        None => Err(crate::support::Failure::Own),
    }
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
async fn functions_of_every_kind_are_accepted() {
    nothing_but_the_function().unwrap();
    assert_eq!(asynchronous(1).await.unwrap(), 1);
    assert_eq!(plain(1), 1);
    assert_eq!(conditional(1).unwrap(), 1);
    unit();
    async_unit(2).await;
    assert_eq!(r#match(4).await.unwrap(), 4);
    assert_eq!(from_macro(4, 1).await.unwrap(), 4);
    assert_eq!(from_macro_at(4).unwrap(), 4);
    assert_eq!(inner_attributes(4).unwrap(), 4);
    assert_eq!(line().unwrap(), line!());
    assert_eq!(line_if(true).unwrap(), line!());
    assert_eq!(temporary_of_an_argument(9.into()).unwrap(), 9);
    assert_eq!(first(&mut vec!["a", "b"], || 1).unwrap(), Some("b"));
    assert_eq!(entry(&mut vec![1, 2], Box::new(|text| text)).unwrap(), (&mut 1, "a".to_owned()));
}

#[tokio::test]
async fn early_returns_are_accepted() {
    assert_eq!(question_mark("3").await.unwrap(), 3);
    assert_eq!(question_mark("9").await.unwrap(), 7);
    assert_eq!(question_mark("x").await.unwrap_err().to_string(), "invalid digit found in string");
    assert_eq!(plain_question_mark("3").unwrap(), 3);
    assert_eq!(plain_question_mark("7").unwrap(), 8);
    assert!(plain_question_mark("x").is_err());
    assert_eq!(tracked_question_mark("3").unwrap(), 3);
    assert!(tracked_question_mark("x").is_err());
}
