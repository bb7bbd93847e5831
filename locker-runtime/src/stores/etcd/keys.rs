//! The names of the keys in etcd.

use crate::stores::cas::Inbox;
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
}
