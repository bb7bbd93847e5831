//! What the store and its session share.

use locker_cas::{Draw, Inbox, Received};
use locker_core::panics;
use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
};

/// Takes the messages to this process.
type Receiver = Box<dyn Fn(Received<'_>) + Send + Sync>;

pub(super) struct Shared {
    pub(super) receiver: OnceLock<Receiver>,
    draw: Draw,
    inbox: AtomicU32,
    /// Below every fence of this store. 0 until it is known.
    base: AtomicU64,
    /// How often the nodes of the store were made anew.
    epoch: AtomicI64,
}

impl Shared {
    pub(super) fn new(draw: Draw) -> Self {
        let inbox = AtomicU32::new(draw());
        let (receiver, base, epoch) = (OnceLock::new(), AtomicU64::default(), AtomicI64::default());
        Self { receiver, draw, inbox, base, epoch }
    }

    pub(super) fn inbox(&self) -> Inbox {
        self.inbox.load(Ordering::Acquire)
    }

    /// Draws another inbox: this one is that of another process.
    pub(super) fn draw_inbox(&self) {
        self.inbox.store((self.draw)(), Ordering::Release);
    }

    /// Takes over the base of the fences. Returns whether it is another one: the nodes were made anew.
    pub(super) fn set_base(&self, base: u64) -> bool {
        let before = self.base.swap(base, Ordering::AcqRel);
        before != 0 && before != base
    }

    /// Begins another epoch: values that were known are not there any more.
    pub(super) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns a number above every fence of a key that was seen to be absent after the transaction `zxid`. Fences rise
    /// by less than 65,536 with each write, and each write is a transaction of its own.
    pub(super) fn fence_floor(&self, zxid: i64) -> u64 {
        let of_transactions = zxid.unsigned_abs().saturating_mul(FENCES_PER_TRANSACTION);
        self.base.load(Ordering::Acquire).saturating_add(of_transactions)
    }

    pub(super) fn tell(&self, received: Received<'_>) {
        if let Some(receiver) = self.receiver.get() {
            panics::contain(|| receiver(received));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

const FENCES_PER_TRANSACTION: u64 = 1 << 16;
