//! A store that refuses every call: what is left of a store that was named wrongly.

use crate::{
    Error,
    key::Key,
    primitives::Request,
    pushes::Pushes,
    store::{Calling, Store},
};

#[derive(Debug)]
pub(crate) struct Refusing {
    error: Error,
    pushes: Pushes,
}

impl Refusing {
    pub(crate) fn new(error: Error) -> Self {
        Self { error, pushes: Pushes::default() }
    }
}

impl Store for Refusing {
    fn call<'a>(&'a self, _key: &'a Key, _request: &'a Request) -> Calling<'a> {
        Calling::answered(Err(self.error.clone()))
    }

    fn pushes(&self) -> &Pushes {
        &self.pushes
    }
}
