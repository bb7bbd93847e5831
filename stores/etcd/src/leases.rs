//! The leases of etcd that values and messages are put under, so that they are removed when nobody needs them.
//!
//! Values with similar ends share a lease. It is never kept alive: when not enough of it is left, another one is
//! granted. etcd removes nothing before the end of its lease, and after a change of the leader later.

use super::{
    client::{Client, Repeat, SharedAnswer},
    errors::Failure,
    messages::{Empty, LeaseGrant, LeaseGrantAnswer, LeaseId},
};
use futures_util::FutureExt;
use locker_core::{
    background,
    clock::Timestamp,
    error::Result,
    sync::{Mutex, lock},
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The leases of one process.
#[derive(Debug)]
pub(super) struct Leases {
    client: Arc<Client>,
    /// How much longer than its value matters a lease lasts: the write may arrive late.
    margin: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    granted: HashMap<Class, Granted>,
    asked: HashMap<Class, SharedAnswer<Granted>>,
    /// The leases of messages, which are revoked in the end.
    of_messages: Vec<Granted>,
}

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    /// Values that matter up to so many seconds.
    Values(u64),
    Messages,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    id: i64,
    /// When it ends at the earliest, on the clock of this process.
    until: Timestamp,
}

impl Class {
    /// Returns the class of values that matter for this time: one of 1, 2, 3, 4, 6, 8, 12, 16, 24.. seconds.
    fn of(lasts: Duration) -> Self {
        let seconds = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
        let power = seconds.max(1).next_power_of_two();
        Self::Values(if power >= 4 && seconds <= power / 4 * 3 { power / 4 * 3 } else { power })
    }

    /// The seconds that leases of this class are granted for.
    fn ttl(self) -> u64 {
        match self {
            Self::Values(seconds) => seconds + seconds / 3 + 5,
            Self::Messages => 2 * MESSAGE_LASTS.as_secs(),
        }
    }
}

/// How long a message is kept at least. A receiver that is connected needs no time.
const MESSAGE_LASTS: Duration = Duration::from_secs(20);

/// The longest time for which a value is put under a lease: 50 years. What lasts longer is kept for ever.
const LONGEST: Duration = Duration::from_secs(50 * 365 * 24 * 60 * 60);

impl Leases {
    pub(super) fn new(client: Arc<Client>, margin: Duration) -> Self {
        Self { client, margin, state: Mutex::default() }
    }

    /// Returns a lease for a value that matters for `lasts` from now on. 0, which is no lease, if that is for ever.
    pub(super) async fn of_value(self: &Arc<Self>, lasts: Duration) -> Result<i64, Failure> {
        if lasts > LONGEST {
            return Ok(0);
        }
        // The clocks of two machines may drift apart.
        let needed = lasts + lasts / 500 + self.margin;
        self.granted(Class::of(needed), needed).await
    }

    /// Returns a lease for messages.
    pub(super) async fn of_messages(self: &Arc<Self>) -> Result<i64, Failure> {
        self.granted(Class::Messages, MESSAGE_LASTS).await
    }

    /// Forgets all leases, after etcd has not found one of them.
    pub(super) fn forget(&self) {
        lock(&self.state).granted.clear();
    }

    /// Ends the leases of messages.
    pub(super) async fn revoke(&self) {
        let leases = std::mem::take(&mut lock(&self.state).of_messages);
        for lease in leases {
            revoke(&self.client, lease.id).await;
        }
    }

    async fn granted(self: &Arc<Self>, class: Class, needed: Duration) -> Result<i64, Failure> {
        let is_enough = |lease: &Granted| lease.until.since(Timestamp::now()) >= needed;
        loop {
            let asked = {
                let mut state = lock(&self.state);
                match state.granted.get(&class).copied().filter(is_enough) {
                    Some(lease) => {
                        if lease.until.since(Timestamp::now()) < needed + AHEAD {
                            drop(self.ask(&mut state, class));
                        }
                        return Ok(lease.id);
                    }
                    None => self.ask(&mut state, class),
                }
            };
            let lease = asked.await?;
            if is_enough(&lease) {
                return Ok(lease.id);
            }
        }
    }

    /// Asks for a new lease of a class, unless that is under way.
    fn ask(self: &Arc<Self>, state: &mut State, class: Class) -> SharedAnswer<Granted> {
        let asked = state.asked.entry(class).or_insert_with(|| {
            let asked = grant(Arc::clone(self), class).boxed().shared();
            background::spawn(asked.clone().map(drop));
            asked
        });
        asked.clone()
    }
}

async fn grant(leases: Arc<Leases>, class: Class) -> Result<Granted, Failure> {
    let granted = grant_for(&leases.client, class.ttl()).await;
    let granted = granted.map(|(id, until)| Granted { id, until });
    let mut state = lock(&leases.state);
    state.asked.remove(&class);
    if let Ok(lease) = granted {
        let now = Timestamp::now();
        state.granted.retain(|_, lease| lease.until > now);
        state.granted.insert(class, lease);
        if class == Class::Messages {
            state.of_messages.retain(|lease| lease.until > now);
            state.of_messages.push(lease);
        }
    }
    granted
}

/// Asks for a lease. Returns its id, and when it ends at the earliest on the clock of this process.
pub(super) async fn grant_for(client: &Arc<Client>, seconds: u64) -> Result<(i64, Timestamp), Failure> {
    let request = LeaseGrant { ttl: i64::try_from(seconds).unwrap_or(i64::MAX) };
    let sent = Timestamp::now();
    let granted: LeaseGrantAnswer =
        client.call("/etcdserverpb.Lease/LeaseGrant", request, Repeat::Yes).await?;
    Ok((granted.id, sent + Duration::from_secs(granted.ttl.unsigned_abs())))
}

/// Ends a lease and removes what is under it, if etcd can be reached. Otherwise it ends by itself.
pub(super) async fn revoke(client: &Arc<Client>, id: i64) {
    let revoked = client.call::<_, Empty>("/etcdserverpb.Lease/LeaseRevoke", LeaseId { id }, Repeat::Yes);
    drop(revoked.await);
}

/// How long before it is needed a new lease is asked for.
const AHEAD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_few_and_leases_long_enough() {
        let mut classes = std::collections::HashSet::new();
        for millis in (0..200_000).step_by(37) {
            let lasts = Duration::from_millis(millis);
            let class = Class::of(lasts);
            classes.insert(class);
            let ttl = Duration::from_secs(class.ttl());
            assert!(ttl >= lasts + Duration::from_secs(5), "{lasts:?}: {ttl:?}");
            assert!(ttl <= 2 * lasts + Duration::from_secs(7), "{lasts:?}: {ttl:?}");
        }
        assert!(classes.len() <= 16, "{classes:?}");
    }
}
