//! The attributes in edition 2021, under a renamed dependency.

#![deny(warnings, rust_2018_idioms, missing_docs, clippy::pedantic)]
#![allow(clippy::missing_errors_doc, reason = "not a library for users")]

use renamed::{lock_on_argument, lock_on_argument as under_another_name, Error, Guard};
use std::{
    fmt::{self, Display},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A key part with interior mutability.
#[derive(Debug)]
pub struct Balance(pub Mutex<u64>);

impl Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

impl Balance {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends in a temporary that borrows from the receiver.
    #[lock_on_argument(expr = "10s", args(self))]
    pub async fn read(&self) -> Result<u64, Error> {
        Ok(*self.lock())
    }

    /// The same, on a plain function.
    #[lock_on_argument(args(self), guard = lease, on_error = zero)]
    pub fn read_now(&self) -> u64 {
        *self.lock() + u64::from(remaining(lease).is_empty())
    }
}

fn remaining(lease: &Guard) -> String {
    format!("{:?}", lease.remaining())
}

fn zero(_: Error) -> u64 {
    0
}

/// A temporary that borrows from an argument.
#[lock_on_argument(args(0), on_error = zero, on_lost = "error")]
pub async fn temporary_of_an_argument(value: Balance) -> u64 {
    *value.lock()
}

/// The same, on a plain function.
#[lock_on_argument(args(0), on_error = zero)]
pub fn plain_temporary_of_an_argument(value: Balance) -> u64 {
    *value.lock()
}

/// Unsafe.
///
/// # Safety
/// None is needed.
#[lock_on_argument(args(value))]
pub unsafe fn without_safety(value: u8) -> Result<u8, Error> {
    Ok(value)
}

/// Unsafe operations need no block in the body.
///
/// # Safety
/// `value` can be read.
#[lock_on_argument]
pub unsafe fn without_blocks(value: *const u8) -> Result<u8, Error> {
    Ok(*value)
}

/// Unsafe and async.
///
/// # Safety
/// None is needed.
#[lock_on_argument(args(value))]
pub async unsafe fn async_without_safety(value: u8) -> Result<u8, Error> {
    unsafe { without_safety(value) }
}

/// For callers in C.
#[lock_on_argument(args(value), on_error = wrong)]
pub extern "C" fn foreign(value: u32) -> u32 {
    value
}

fn wrong(_: Error) -> u32 {
    0
}

/// The attribute above cannot recognise a renamed import.
#[lock_on_argument(name = "outer", args(0))]
#[under_another_name(name = "inner", args(0))]
pub fn nested(value: u8) -> Result<u8, Error> {
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance() -> Balance {
        Balance(Mutex::new(7))
    }

    #[tokio::test]
    async fn bodies_ending_in_a_temporary_are_accepted() {
        assert_eq!(balance().read().await.unwrap(), 7);
        assert_eq!(balance().read_now(), 7);
        assert_eq!(temporary_of_an_argument(balance()).await, 7);
        assert_eq!(plain_temporary_of_an_argument(balance()), 7);
    }

    #[tokio::test]
    async fn unsafe_and_foreign_functions_are_accepted() {
        assert_eq!(unsafe { without_safety(1) }.unwrap(), 1);
        assert_eq!(unsafe { without_blocks(&1) }.unwrap(), 1);
        assert_eq!(unsafe { async_without_safety(1) }.await.unwrap(), 1);
        assert_eq!(foreign(2), 2);
    }

    #[test]
    fn renamed_attribute_still_locks() {
        assert_eq!(nested(1).unwrap(), 1);
    }
}
