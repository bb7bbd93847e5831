//! Ids that are refused for a while, because an attempt of theirs may still arrive.

use super::remembered::Remembered;
use crate::{clock::Timestamp, id::Id};

pub(crate) type Tombstones = Remembered<()>;

impl Tombstones {
    pub(crate) fn add(&mut self, id: Id, now: Timestamp) {
        self.keep(id, (), now);
    }
}
