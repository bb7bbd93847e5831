//! The messages of etcd's API, version 3: the fields that this store uses, with their numbers.

use locker_cas::{Basis, Found, Outcome, Version};
use prost::{Message, bytes::Bytes};

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    /// The first key after the range. Empty for one key.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// The revision to read at. 0 for the present one.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    /// Whether the key stays under its lease.
    #[prost(bool, tag = "6")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    value: Option<Bytes>,
    #[prost(int64, optional, tag = "8")]
    lease: Option<i64>,
}

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const CREATE: i32 = 1;
const MOD: i32 = 2;
const VALUE: i32 = 3;
const LEASE: i32 = 4;

impl Compare {
    /// The key was last changed at this revision, or is absent for 0.
    pub(super) fn is_at(key: Bytes, revision: i64) -> Self {
        Self { target: MOD, key, mod_revision: Some(revision), ..Self::default() }
    }

    /// The key was made at this revision, or is absent for 0.
    pub(super) fn is_of(key: Bytes, revision: i64) -> Self {
        Self { target: CREATE, key, create_revision: Some(revision), ..Self::default() }
    }

    pub(super) fn has(key: Bytes, value: Bytes) -> Self {
        Self { target: VALUE, key, value: Some(value), ..Self::default() }
    }

    pub(super) fn exists(key: Bytes) -> Self {
        Self { result: GREATER, target: MOD, key, mod_revision: Some(0), ..Self::default() }
    }

    /// The key is under this lease.
    pub(super) fn is_under(key: Bytes, lease: i64) -> Self {
        Self { result: EQUAL, target: LEASE, key, lease: Some(lease), ..Self::default() }
    }
}

/// One of the operations of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Op {
    #[prost(message, optional, tag = "1")]
    range: Option<Range>,
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
    #[prost(message, optional, tag = "4")]
    txn: Option<Txn>,
}

impl Op {
    pub(super) fn get(key: Bytes) -> Self {
        Self { range: Some(Range { key, ..Range::default() }), put: None, txn: None }
    }

    pub(super) fn put(key: Bytes, value: Bytes, lease: i64) -> Self {
        Self { range: None, put: Some(Put { key, value, lease, ignore_lease: false }), txn: None }
    }

    /// Replaces the value of a key, which stays under its lease.
    pub(super) fn replace(key: Bytes, value: Bytes) -> Self {
        Self { range: None, put: Some(Put { key, value, lease: 0, ignore_lease: true }), txn: None }
    }

    pub(super) fn txn(txn: Txn) -> Self {
        Self { range: None, put: None, txn: Some(txn) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Op>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OpAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeAnswer>,
    #[prost(message, optional, tag = "4")]
    pub(super) txn: Option<TxnAnswer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<OpAnswer>,
}

impl TxnAnswer {
    pub(super) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }

    /// Returns what the operation number `at` has read, if the key exists.
    pub(super) fn read(&self, at: usize) -> Option<&KeyValue> {
        self.responses.get(at)?.range.as_ref()?.kvs.first()
    }

    /// Returns the outcome of a write that was refused, which has read the value first. `found` is the clock.
    pub(super) fn outcome(&self, expected: Version, basis: &Basis, found: Option<Found>) -> Outcome {
        let (version, value) = self.read(0).map_or((0, None), |kv| (kv.mod_revision, Some(&kv.value)));
        if version == expected && *basis != Basis::Served {
            return Outcome::Ticked(found);
        }
        Outcome::Differs { version, value: value.cloned() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(super) progress_notify: bool,
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
}

/// The filter that leaves out deletions.
pub(super) const NO_DELETIONS: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(super) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Set if the watch was to begin at a revision that is compacted.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrant {
    /// Seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantAnswer {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// Seconds: at least those of the request.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// A request to revoke a lease, to keep it, or to tell how much of it is left.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeepAliveAnswer {
    /// Seconds. 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TimeToLiveAnswer {
    /// Seconds. -1 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    /// Seconds.
    #[prost(int64, tag = "4")]
    pub(super) granted: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateAnswer {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
}

impl StatusAnswer {
    pub(super) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }
}
