//! The time after the start of a server with its store in memory in which nothing that is held is granted.
//!
//! A restarted server does not know the holds of its predecessor. Until the grace is over it grants none, and clients
//! take theirs back by renewing them.

use crate::api::{Answer, Resource};
use locker_runtime::{ErrorKind, Result};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// How many holds are remembered. Beyond it no further hold is taken back.
const REMEMBERED: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct RestartGrace {
    length: Duration,
    ends: Instant,
    /// Locked until the end. The calls that wait for it pass one by one, in the order of their arrival.
    gate: Arc<Mutex<()>>,
    /// Set when they have passed. Later calls need no turn.
    is_open: AtomicBool,
    /// `None` after the end.
    claims: Mutex<Option<Claims>>,
    has_warned: AtomicBool,
}

/// The holds that clients took back or released.
#[derive(Debug, Default)]
struct Claims {
    /// Digests of these holds. Each hold is taken back once at most: a late renewal must not bring back a hold that
    /// was released, had expired or was lost to a higher fence.
    known: HashSet<u64>,
    digest: RandomState,
    names: HashMap<(Resource, Box<str>), Name>,
    taken_back: usize,
}

/// The claims on one name.
#[derive(Debug, Default)]
struct Name {
    /// The largest size that a claim gave.
    size: u64,
    /// The holds whose clients gave a fence.
    fences: Vec<(Box<str>, u64)>,
}

/// A hold that a client says to have, and that the store does not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) resource: Resource,
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    pub(crate) size: u64,
    /// 0 if the client does not know its fence.
    pub(crate) fence: u64,
}

/// The store's part in a claim.
pub(crate) trait Places {
    /// Makes later fences of the name higher than `fence`.
    fn raise_fence(&self, fence: u64) -> Result<()>;

    /// Takes one of `size` places for the key of the claim.
    fn take(&self, size: u64) -> impl Future<Output = Result<()>> + Send;

    /// Ends the hold of another key.
    fn end(&self, key: &str) -> impl Future<Output = Result<()>> + Send;
}

impl RestartGrace {
    /// Starts the grace of this server.
    pub(crate) fn start(length: Duration) -> Arc<Self> {
        let grace = Arc::new(Self {
            length,
            ends: Instant::now() + length,
            gate: Arc::default(),
            is_open: AtomicBool::new(false),
            claims: Mutex::new(Some(Claims::default())),
            has_warned: AtomicBool::new(false),
        });
        let (ending, turn) = (grace.clone(), grace.gate.clone().try_lock_owned());
        tokio::spawn(async move {
            tokio::time::sleep_until(ending.ends).await;
            let claims = ending.claims.lock().await.take().unwrap_or_default();
            drop(turn);
            drop(ending.gate.lock().await);
            ending.is_open.store(true, Ordering::Release);
            tracing::info!(taken_back = claims.taken_back, "the restart grace is over");
        });
        grace
    }

    /// Returns whether no hold is taken back any more.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Waits for the end of the grace and for the calls that arrived before. The caller's turn lasts until the guard is
    /// dropped. Returns `None` if all of these calls have passed.
    ///
    /// # Errors
    /// 408 if `maxwait` is exceeded.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped call loses its turn.
    pub(crate) async fn turn(
        &self,
        maxwait: Duration,
    ) -> std::result::Result<Option<MutexGuard<'_, ()>>, Answer> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(None);
        }
        let left = self.ends.saturating_duration_since(Instant::now());
        if maxwait < left {
            tokio::time::sleep(maxwait).await;
            return Err(Answer::timed_out(Some(left.saturating_sub(maxwait))));
        }
        // The line passes at once, even a call that does not wait for a hold.
        Ok(Some(self.gate.lock().await))
    }

    /// Takes a hold back. Returns `None` if the grace is over or the hold was known to this server before, and
    /// otherwise whether there was a place for it.
    ///
    /// # Errors
    /// As `places`.
    pub(crate) async fn take_back(&self, claim: Claim<'_>, places: &impl Places) -> Result<Option<bool>> {
        let mut claims = self.claims.lock().await;
        let Some(claims) = claims.as_mut() else { return Ok(None) };
        let digest = claims.digest(claim.resource, claim.name, claim.key);
        if claims.known.contains(&digest) || claims.known.len() >= REMEMBERED {
            return Ok(None);
        }
        places.raise_fence(claim.fence)?;
        let size = claims.size_for(claim);
        let mut taken = places.take(size).await;
        // A loser whose hold has ended since leaves no place: the next one is tried.
        while is_full(&taken)
            && let Some(loser) = claims.pop_lower(claim)
        {
            places.end(&loser).await?;
            taken = places.take(size).await;
        }
        if is_full(&taken) {
            return Ok(Some(false));
        }
        taken?;
        claims.add(claim, digest);
        Ok(Some(true))
    }

    /// Remembers that a client has released its hold, whether or not this server knew of it.
    pub(crate) async fn released(&self, resource: Resource, name: &str, key: &str) {
        if let Some(claims) = self.claims.lock().await.as_mut()
            && claims.known.len() < REMEMBERED
        {
            let digest = claims.digest(resource, name, key);
            claims.known.insert(digest);
        }
    }

    /// Warns once of holds that would be granted again after a restart while their time still runs.
    pub(crate) fn warn_of_long_hold(&self, expires: Option<Duration>) {
        if expires.is_none_or(|expires| expires > self.length)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                grace = %humantime::format_duration(self.length),
                "holds are granted for longer than --restart-grace: after a restart a client loses its hold unless it \
                 renews it within that time (logged once)"
            );
        }
    }
}

fn is_full(taken: &Result<()>) -> bool {
    matches!(taken, Err(error) if error.kind() == ErrorKind::TimedOut)
}

impl Claims {
    fn digest(&self, resource: Resource, name: &str, key: &str) -> u64 {
        self.digest.hash_one((resource as usize, name, key))
    }

    /// Returns the largest size that was given: a client that leaves its size out must not make the name smaller.
    fn size_for(&self, Claim { resource, name, size, .. }: Claim<'_>) -> u64 {
        self.names.get(&(resource, name.into())).map_or(size, |known| known.size.max(size))
    }

    /// Removes and returns the key of the lowest fence, if it is lower than that of the claim.
    fn pop_lower(&mut self, Claim { resource, name, fence, .. }: Claim<'_>) -> Option<Box<str>> {
        let Name { fences, .. } = self.names.get_mut(&(resource, name.into()))?;
        let (index, _) = fences
            .iter()
            .enumerate()
            .filter(|(_, (_, known))| *known < fence)
            .min_by_key(|(_, (_, known))| *known)?;
        Some(fences.swap_remove(index).0)
    }

    fn add(&mut self, Claim { resource, name, key, size, fence }: Claim<'_>, digest: u64) {
        self.known.insert(digest);
        self.taken_back += 1;
        let known = self.names.entry((resource, name.into())).or_default();
        known.size = known.size.max(size);
        if fence > 0 {
            known.fences.push((key.into(), fence));
        }
    }
}
