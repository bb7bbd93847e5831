//! A store that fails every call, in place of one whose URL is invalid.

use locker_core::{
    error::Error,
    key::Key,
    mailboxes::Mailboxes,
    primitives::Request,
    store::{Calling, Store},
};

#[derive(Debug)]
pub(crate) struct FailingStore {
    error: Error,
    mailboxes: Mailboxes,
}

impl FailingStore {
    pub(crate) fn new(error: Error) -> Self {
        Self { error, mailboxes: Mailboxes::default() }
    }
}

impl Store for FailingStore {
    fn call<'a>(&'a self, _key: &'a Key, _request: &'a Request) -> Calling<'a> {
        Calling::answered(Err(self.error.clone()))
    }

    fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }
}
