//! Values by a number and a static text, found without a lock. None is ever removed.

use once_cell::race::OnceBox;
use std::ptr;

const CHAINS: usize = 64;

/// A table of chains. A text is found by its address: the same text at two addresses has two values.
#[derive(Debug)]
pub(super) struct Table<T>([OnceBox<Node<T>>; CHAINS]);

#[derive(Debug)]
struct Node<T> {
    number: u8,
    text: &'static str,
    value: T,
    next: OnceBox<Self>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self([const { OnceBox::new() }; CHAINS])
    }
}

impl<T> Table<T> {
    /// Returns the value, which `make` makes at first.
    pub(super) fn get(&self, number: u8, text: &'static str, make: impl Fn() -> T) -> &T {
        let mut slot = &self.0[chain(number, text)];
        loop {
            let new = || Box::new(Node { number, text, value: make(), next: OnceBox::new() });
            let node = slot.get_or_init(new);
            if node.number == number && is_same(node.text, text) {
                return &node.value;
            }
            slot = &node.next;
        }
    }
}

fn chain(number: u8, text: &'static str) -> usize {
    // Functions are statics, which begin at multiples of eight.
    let address = if text.is_empty() { 0 } else { text.as_ptr().addr() >> 3 };
    (address ^ (address >> 6) ^ usize::from(number).wrapping_mul(11)) % CHAINS
}

fn is_same(one: &'static str, other: &'static str) -> bool {
    ptr::eq(one, other) || (one.is_empty() && other.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn each_value_is_made_once() {
        let (table, made) = (Table::default(), Cell::new(0));
        let names: Vec<_> =
            (0..1_000).map(|number| &*Box::leak(format!("f{number}").into_boxed_str())).collect();
        let get = |number: u8, text: &'static str| {
            table.get(number, text, || {
                made.set(made.get() + 1);
                (number, text.to_owned())
            })
        };
        for _ in 0..2 {
            for name in names.iter().copied().chain([""]) {
                for number in 0..8 {
                    assert_eq!(*get(number, name), (number, name.to_owned()));
                }
            }
        }
        assert_eq!(made.get(), 1_001 * 8);
    }
}
