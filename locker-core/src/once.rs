//! A cell that is set once.

use once_cell::race::OnceBox;
use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
};

/// A cell that is set once. Callers that come while another one makes the value wait for it.
///
/// They wait on a mutex: the cells of the standard library and of `once_cell` may park the thread, which takes the
/// unpark token that an outer executor has left for it.
#[derive(Debug)]
pub struct Once<T> {
    value: OnceBox<T>,
    making: Mutex<()>,
}

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { value: OnceBox::new(), making: Mutex::new(()) }
    }

    /// Returns the value, unless it is still to be made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value, or returns it if the cell has one.
    ///
    /// # Errors
    /// Returns the value that was given if the cell has one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        // The cell asks once, if it is empty.
        let _: Result<_, ()> = self.get_or_try_init(|| value.take().ok_or(()));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, which `make` makes unless there is one.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value: Result<_, Infallible> = self.get_or_try_init(|| Ok(make()));
        value.unwrap_or_else(|never| match never {})
    }

    /// Returns the value, which `make` makes unless there is one. After an error the cell is as before.
    ///
    /// # Errors
    /// Those of `make`.
    #[inline]
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.make(make),
        }
    }

    #[cold]
    fn make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.get_or_try_init(|| make().map(Box::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_harness::{GENEROUS, eventually};
    use std::{
        fs::{read_link, read_to_string},
        sync::mpsc,
        thread,
        time::Instant,
    };

    #[test]
    fn cell_keeps_the_first_value() {
        let cell = Once::new();
        assert_eq!(cell.get_or_try_init(|| Err::<u8, _>("not now")), Err("not now"));
        assert_eq!(cell.get(), None);
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.set(2), Err(2));
        assert_eq!(cell.get_or_init(|| 3), &1);
    }

    /// A caller that waits for another caller's value keeps its unpark token.
    #[test]
    fn waiting_for_a_value_keeps_the_unpark_token() {
        let (cell, (sender, value), (begun, begins), (id, thread_id)) =
            (Once::new(), mpsc::channel(), mpsc::channel(), mpsc::channel());
        thread::scope(|scope| {
            let cell = &cell;
            scope.spawn(move || {
                cell.get_or_init(|| {
                    begun.send(()).unwrap();
                    value.recv_timeout(GENEROUS).unwrap()
                });
            });
            begins.recv_timeout(GENEROUS).unwrap();
            let waiting = scope.spawn(move || {
                id.send(read_link("/proc/thread-self").unwrap()).unwrap();
                thread::current().unpark();
                assert_eq!(cell.get_or_init(|| 2), &1);
                let parked = Instant::now();
                thread::park_timeout(GENEROUS);
                parked.elapsed() < GENEROUS
            });
            let status = thread_id.recv_timeout(GENEROUS).unwrap().join("stat");
            eventually("the second caller waits", || {
                let status = read_to_string(std::path::Path::new("/proc").join(&status)).unwrap();
                status.contains(") S ").then_some(())
            });
            sender.send(1).unwrap();
            assert!(waiting.join().unwrap());
        });
    }
}
