//! The transaction of one write or comparison.

use super::{
    keys::Place,
    known::Known,
    ops::{Data, Kind, Op, data},
};
use locker_cas::ABSENT;
use std::sync::Arc;

/// The operations, and where they are.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) ops: Vec<Op>,
    /// The place of the operation on the clock.
    pub(super) clock: Option<usize>,
    /// The place of the one that sets the value.
    pub(super) set: Option<usize>,
    /// The place of the first message.
    pub(super) mail: usize,
    /// The data version of the bucket afterwards.
    pub(super) bucket: i32,
}

impl Draft {
    /// Returns whether a node is made, and not one written.
    pub(super) fn inserts(known: Known, has_value: bool, renew_at: i32) -> bool {
        has_value && (known.version == ABSENT || known.data >= renew_at)
    }

    /// Returns the operations that replace the known value by `value`, or only check that it is there. From the data
    /// version `renew_at` on, its node is made anew.
    pub(super) fn new(place: &Place, known: Known, value: Option<&Data>, renew_at: i32) -> Self {
        let (bucket, path, none) = (&place.bucket, &place.value, data(b""));
        let mut draft = Self { ops: Vec::new(), clock: None, set: None, mail: 0, bucket: known.bucket };
        let check = Op::Check(Arc::clone(bucket), known.bucket);
        let Some(value) = value else {
            draft.ops.extend([check, Op::Check(Arc::clone(path), known.data)]);
            return draft;
        };
        let is_absent = known.version == ABSENT;
        let mut expected = known.data;
        if Self::inserts(known, true, renew_at) {
            // What others know of a former node of this name does not count any more.
            draft.ops.push(Op::Set(Arc::clone(bucket), Arc::clone(&none), known.bucket));
            draft.bucket = known.bucket.wrapping_add(1);
            draft.ops.extend((!is_absent).then(|| Op::Delete(Arc::clone(path), known.data)));
            // The answer to a creation does not tell the version.
            draft.ops.push(Op::Create(Arc::clone(path), none, Kind::Kept));
            expected = 0;
        } else {
            draft.ops.push(check);
        }
        draft.set = Some(draft.ops.len());
        draft.ops.push(Op::Set(Arc::clone(path), Arc::clone(value), expected));
        draft
    }

    /// Adds an operation on the clock, and the messages.
    pub(super) fn with(mut self, clock: Option<Op>, mails: impl Iterator<Item = Op>) -> Self {
        self.clock = clock.is_some().then_some(self.ops.len());
        self.ops.extend(clock);
        self.mail = self.ops.len();
        self.ops.extend(mails);
        self
    }
}
