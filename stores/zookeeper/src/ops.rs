//! The operations of one transaction (`multi`), and what came of them.

use super::{
    errors::{Failure, OK, UNTRIED},
    wire::{Body, Reader, Stat},
};
use std::sync::Arc;

/// The data of a node.
pub(super) type Data = Arc<[u8]>;

/// Returns the data for a node.
pub(super) fn data(bytes: &[u8]) -> Data {
    bytes.into()
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// The node must exist, and have this data version unless it is [`ANY`].
    Check(Arc<str>, i32),
    Create(Arc<str>, Data, Kind),
    /// Writes the data if it has this data version.
    Set(Arc<str>, Data, i32),
    Delete(Arc<str>, i32),
}

/// Any data version.
pub(super) const ANY: i32 = -1;

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kept = 0,
    /// It is removed with the session that created it.
    Ephemeral = 1,
    /// A number follows its name.
    Numbered = 2,
}

/// Who may read and write the nodes that are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Everybody,
    /// Those who have the login of this session.
    Login,
}

/// What came of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// It was carried out. The nodes whose data it has set, by the places of their operations.
    All(Vec<Option<Stat>>),
    /// Nothing was carried out, because of the operation at this place.
    Nothing(usize, Failure),
}

impl Op {
    pub(super) fn create(path: &str, data: &[u8], kind: Kind) -> Self {
        Self::Create(path.into(), data.into(), kind)
    }

    pub(super) fn set(path: &str, data: &[u8], version: i32) -> Self {
        Self::Set(path.into(), data.into(), version)
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Check(path, _) | Self::Create(path, ..) | Self::Set(path, ..) | Self::Delete(path, _) => {
                path
            }
        }
    }

    /// The bytes that it adds to a request, at most.
    pub(super) fn len(&self) -> usize {
        let data = match self {
            Self::Create(_, data, _) | Self::Set(_, data, _) => data.len(),
            Self::Check(..) | Self::Delete(..) => 0,
        };
        self.path().len() + data + 64
    }

    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Check(..) => 13,
            Self::Create(..) => 1,
            Self::Set(..) => 5,
            Self::Delete(..) => 2,
        }
    }

    /// Writes the operation without its head.
    pub(super) fn write(&self, body: Body, access: Access) -> Body {
        match self {
            Self::Check(path, version) | Self::Delete(path, version) => body.text(path).int(*version),
            Self::Set(path, data, version) => body.text(path).bytes(data).int(*version),
            Self::Create(path, data, kind) => {
                let (scheme, id) = match access {
                    Access::Everybody => ("world", "anyone"),
                    Access::Login => ("auth", ""),
                };
                let body = body.text(path).bytes(data);
                body.int(1).int(ALL_RIGHTS).text(scheme).text(id).int(*kind as i32)
            }
        }
    }
}

pub(super) const ALL_RIGHTS: i32 = 31;

/// Returns the request of a transaction.
pub(super) fn request(ops: &[Op], access: Access) -> Body {
    let body = Body(Vec::with_capacity(ops.iter().map(Op::len).sum()));
    let put = |body: Body, op: &Op| op.write(body.int(op.code()).flag(false).int(-1), access);
    ops.iter().fold(body, put).int(-1).flag(true).int(-1)
}

/// Reads the answer to a transaction.
pub(super) fn answer(ops: &[Op], body: &[u8]) -> Option<Done> {
    let (mut reader, mut stats, mut has_failed) = (Reader(body), Vec::with_capacity(ops.len()), false);
    for (place, op) in ops.iter().enumerate() {
        let (code, is_last, _) = (reader.int()?, reader.flag()?, reader.int()?);
        stats.push(match code {
            _ if is_last => return None,
            -1 => match reader.int()? {
                OK | UNTRIED => {
                    has_failed = true;
                    None
                }
                code => return Some(Done::Nothing(place, Failure::of_code(code, op.path()))),
            },
            5 => Some(Stat::read(&mut reader)?),
            1 => reader.text().map(|_| None)?,
            _ => None,
        });
    }
    let (_, is_last) = (reader.int()?, reader.flag()?);
    (is_last && !has_failed).then_some(Done::All(stats))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Meaning;

    #[test]
    fn answers_say_which_operation_failed() {
        let ops = [Op::Check("/a".into(), 1), Op::set("/b", b"x", 2), Op::Delete("/c".into(), ANY)];
        let failed = |codes: [i32; 3]| {
            let put = |body: Body, code: i32| body.int(-1).flag(false).int(code).int(code);
            let body = codes.into_iter().fold(Body::default(), put).int(-1).flag(true).int(-1);
            match answer(&ops, &body.0) {
                Some(Done::Nothing(place, failure)) => (place, failure.meaning),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failed([0, -103, -2]), (1, Meaning::Differs));
        assert_eq!(failed([-101, -2, -2]), (0, Meaning::Absent));
        let stat = Body::default().long(1).long(9).long(0).long(0).int(0).int(0).int(0).long(0).int(0).int(0);
        let stat = stat.long(0);
        let done = Body::default().int(13).flag(false).int(0).int(5).flag(false).int(0);
        let mut done = [done.0, stat.0].concat();
        assert!(answer(&ops, &done).is_none(), "its end is missing");
        done.truncate(18 + 68);
        done.extend(Body::default().int(2).flag(false).int(0).int(-1).flag(true).int(-1).0);
        let Some(Done::All(stats)) = answer(&ops, &done) else { panic!("{done:?}") };
        assert_eq!(
            stats.iter().map(|stat| stat.map(|stat| stat.mzxid)).collect::<Vec<_>>(),
            [None, Some(9), None]
        );
    }
}
