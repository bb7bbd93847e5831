//! The names of the keys in etcd.

use locker_cas::Inbox;
use prost::bytes::Bytes;

/// The names of one store: each begins with the prefix of its URL.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The value of a key of this library, or what all keys of a list begin with.
    pub(super) fn key(&self, key: &str) -> Bytes {
        format!("{}/key/{key}", self.prefix).into()
    }

    /// Returns the key of this library that a key in etcd is for.
    pub(super) fn text<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?.strip_prefix("/key/")
    }

    /// The last messages to a process.
    pub(super) fn mail(&self, inbox: Inbox) -> Bytes {
        format!("{}/mail/{inbox:08x}", self.prefix).into()
    }

    /// There while a process listens.
    pub(super) fn inbox(&self, inbox: Inbox) -> Bytes {
        format!("{}/inbox/{inbox:08x}", self.prefix).into()
    }

    /// A number below every fence.
    pub(super) fn base(&self) -> Bytes {
        self.base_text().into()
    }

    pub(super) fn base_text(&self) -> String {
        format!("{}/base", self.prefix)
    }

    /// The time, which the processes move on.
    pub(super) fn clock(&self) -> Bytes {
        self.clock_text().into()
    }

    pub(super) fn clock_text(&self) -> String {
        format!("{}/clock", self.prefix)
    }
}

/// Returns the first key after all that begin with `prefix`.
pub(super) fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let len = prefix.iter().rposition(|byte| *byte < u8::MAX).map_or(0, |last| last + 1);
    let mut end = prefix[..len].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

/// Returns the first key after `key`.
pub(super) fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}
