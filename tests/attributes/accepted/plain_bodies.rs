//! Plain bodies of unusual functions, which run in a closure.

use crate::support::{Done, Failure};
use locker::{Error, limit_concurrency, lock_on_argument};
use std::{borrow::Cow, cell::Cell, fmt::Display, rc::Rc};

#[lock_on_argument(on_error = zero)]
extern "C" fn foreign(mut number: u64) -> u64 {
    if number > 7 {
        return 7;
    }
    number += 1;
    number
}

fn zero(_: Error) -> u64 {
    0
}

#[lock_on_argument(args(text))]
fn elided(text: &str) -> Done<&str> {
    let Some(first) = text.split(' ').next() else { return Err(Failure::Own) };
    Ok(first)
}

#[lock_on_argument(args(values.len()))]
fn elided_mut(values: &mut Vec<u8>) -> Result<&mut u8, Box<dyn std::error::Error + Send + Sync>> {
    let value = values.last_mut().ok_or("empty")?;
    *value += 1;
    Ok(value)
}

#[lock_on_argument(args(0))]
fn cow(text: &str) -> Done<Cow<'_, str>> {
    Ok(text.into())
}

#[lock_on_argument(args(key))]
fn impl_in_result(key: u8) -> Result<impl Display + use<>, Failure> {
    if key > 250 {
        return Err(Failure::Own);
    }
    Ok(key)
}

#[lock_on_argument(args(key))]
fn boxed_closure<'a>(key: u8, by: &'a Cell<u8>) -> Done<Box<dyn Fn() -> u8 + 'a>> {
    if key == 0 {
        return Err(Failure::Own);
    }
    Ok(Box::new(move || by.get() + key))
}

#[lock_on_argument(args(key))]
fn not_send(key: u8, shared: Rc<Cell<u8>>) -> Done<Rc<Cell<u8>>> {
    shared.set(key);
    Ok(shared)
}

#[lock_on_argument(args(depth))]
fn recursive(depth: u8, visit: &mut dyn FnMut(u8)) -> Done<u8> {
    visit(depth);
    if depth == 0 {
        return Ok(0);
    }
    Ok(recursive(depth - 1, visit)? + 1)
}

#[lock_on_argument(args(0))]
fn callbacks(
    key: u8,
    mut call: impl FnMut(u8) -> u8,
    map: impl for<'x> Fn(&'x str) -> &'x str,
) -> Done<String> {
    let _: u8 = call(key);
    Ok(map("a b").to_owned())
}

struct Account {
    id: u64,
    notes: Vec<String>,
}

impl Account {
    #[lock_on_argument(mode = "write", args(self.id), guard = lease)]
    fn note(&mut self, text: &str) -> Done<&mut String> {
        lease.check()?;
        let Self { notes, .. } = self;
        notes.push(text.to_owned());
        match notes.last_mut() {
            Some(last) => Ok(last),
            None => return Err(Failure::Own),
        }
    }

    #[limit_concurrency(size = 2, args(self.id))]
    fn into_notes(mut self: Box<Self>) -> Done<Vec<String>> {
        self.notes.sort();
        Ok(self.notes)
    }

    #[lock_on_argument(args(self.id))]
    fn renamed(mut self, text: String) -> Done<Self> {
        self.notes = vec![text];
        Ok(self)
    }

    #[lock_on_argument(args(self.id), on_error = nothing)]
    fn first(&self) -> Option<&str> {
        let first = self.notes.first()?;
        Some(first)
    }
}

fn nothing<T>(_: Error) -> Option<T> {
    None
}

#[lock_on_argument(args(key), lease = 60)]
#[limit_concurrency(size = 1, args(key), lease = 60)]
fn twice<const N: usize, T>(key: u8, (first, rest): (T, [T; N])) -> Done<[T; N]>
where
    T: PartialEq + Copy,
{
    let all = 'all: {
        for one in rest {
            if one != first {
                break 'all false;
            }
        }
        true
    };
    if !all {
        Err(Failure::Own)?;
    }
    Ok(rest)
}

#[test]
fn plain_bodies_give_their_values() {
    assert_eq!((foreign(1), foreign(9)), (2, 7));
    assert_eq!(elided("a b").unwrap(), "a");
    assert_eq!(*elided_mut(&mut vec![1, 2]).unwrap(), 3);
    elided_mut(&mut Vec::new()).unwrap_err();
    assert_eq!(cow("a").unwrap(), "a");
    assert_eq!(impl_in_result(3).unwrap().to_string(), "3");
    assert_eq!(boxed_closure(1, &Cell::new(2)).unwrap()(), 3);
    assert_eq!(not_send(4, Rc::default()).unwrap().get(), 4);
    let mut seen = Vec::new();
    assert_eq!(recursive(3, &mut |depth| seen.push(depth)).unwrap(), 3);
    assert_eq!(seen, [3, 2, 1, 0]);
    assert_eq!(callbacks(1, |n| n + 1, |text| &text[..1]).unwrap(), "a");
    let mut account = Account { id: 1, notes: Vec::new() };
    account.note("b").unwrap().push('!');
    account.note("a").unwrap();
    assert_eq!(account.first(), Some("b!"));
    assert_eq!(Box::new(account).into_notes().unwrap(), ["a", "b!"]);
    let account = Account { id: 2, notes: Vec::new() }.renamed("c".to_owned()).unwrap();
    assert_eq!(account.notes, ["c"]);
    assert_eq!(twice(1, (1, [1, 1])).unwrap(), [1, 1]);
    twice(1, (1, [1, 2])).unwrap_err();
}
