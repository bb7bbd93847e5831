//! What a process puts in place when it has connected: the nodes of the store, its inbox and its watches.

use super::{
    errors::{Failure, Meaning},
    exchange::Exchange,
    handshake::Identity,
    keys::BUCKETS,
    link::Link,
    mails::texts,
    ops::{Data, Done, Kind, Op, data},
    shared::Shared,
};
use futures_util::future::try_join_all;
use locker_cas::{Received, ticker::Ticking};
use locker_core::{error::ErrorKind, id::Id};
use std::{
    collections::BTreeSet,
    str::{FromStr, from_utf8},
    time::{Duration, SystemTime},
};

/// How long the inbox outlives this process.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How often nodes are made that others remove at once.
const TRIES: u32 = 3;

/// What is known from the last connection.
pub(super) struct State {
    pub(super) identity: Identity,
    /// What the inbox of this process holds, by which it knows it.
    pub(super) mark: Data,
    /// Whether the inbox was in place once.
    pub(super) has_inbox: bool,
    /// Whether messages may have been lost, which the receiver has not been told.
    pub(super) has_gap: bool,
    /// Whether the nodes of the store are there, as far as this process knows.
    pub(super) has_nodes: bool,
    /// The names of messages that were heard, and are to be deleted.
    pub(super) heard: BTreeSet<String>,
}

impl Default for State {
    fn default() -> Self {
        let mark = data(Id::random().to_string().as_bytes());
        let (has_inbox, has_gap, has_nodes, heard) = Default::default();
        Self { identity: Identity::new(SESSION_TIMEOUT), mark, has_inbox, has_gap, has_nodes, heard }
    }
}

impl State {
    /// Takes the messages in a node, if it is there and was not heard before.
    pub(super) fn hear(&mut self, name: String, mail: Option<Vec<u8>>, shared: &Shared) {
        let Some(mail) = mail else { return };
        if self.heard.insert(name) {
            texts(&mail).for_each(|text| shared.tell(Received::Text(text)));
        }
    }
}

/// Puts what this process needs in place, and hears what has come meanwhile.
pub(super) async fn announce(exchange: &Exchange, state: &mut State, link: Link) -> Result<(), Failure> {
    if !state.has_nodes {
        make_nodes(exchange, &link).await?;
        state.has_nodes = true;
    }
    let announced = claim(exchange, state, &link).await;
    if announced.as_ref().is_err_and(|failure| failure.meaning == Meaning::Absent) {
        state.has_nodes = false;
    }
    announced
}

async fn claim(exchange: &Exchange, state: &mut State, link: &Link) -> Result<(), Failure> {
    let (keys, shared) = (&exchange.keys, &exchange.shared);
    let was_there = loop {
        // First: whoever finds the inbox finds it, too.
        link.ensure(&keys.mail(shared.inbox()), b"").await?;
        match claim_inbox(&keys.inbox(shared.inbox()), state, link).await? {
            Some(was_there) => break was_there,
            // Waiters of this process have its number already.
            None if state.has_inbox => return Err(inbox_is_taken()),
            None => shared.draw_inbox(),
        }
    };
    // Without an inbox, others have sent nothing.
    state.has_gap |= state.has_inbox && !was_there;
    if !was_there {
        // The node of the messages may be another one, which numbers them anew.
        state.heard.clear();
    }
    state.has_inbox = true;
    let mail = keys.mail(shared.inbox());
    ensure_generation(exchange, link).await?;
    let nodes = [(&mail, true), (&keys.clock(), true), (&keys.values(), false), (&keys.base(), false)];
    let watched = nodes.map(|(path, is_deep)| link.watch(path, is_deep));
    let (names, base) = (link.children(&mail), link.get(&keys.base()));
    try_join_all(watched).await?;
    let (base, mut names) = (base.await?, names.await?);
    let (base, _) = base.ok_or_else(|| Failure::absent(&keys.base()))?;
    let base = number(&base).ok_or_else(|| no_number(&keys.base()))?;
    // After the watch.
    let generation = ensure_generation(exchange, link).await?;
    let (is_other_base, is_other_generation) = (shared.set_base(base), keys.set_generation(generation));
    if is_other_base {
        exchange.clock.forget();
    }
    if is_other_base || is_other_generation {
        shared.next_epoch();
        exchange.memory.forget();
    }
    exchange.clock.clock().doubt();
    exchange.clock.ensure(link.clone()).await?;
    // An error is for the next tick.
    drop(exchange.clock.jump(link).await);
    names.sort_unstable();
    names.retain(|name| !state.heard.contains(name));
    let reads = names.iter().map(|name| link.get(&format!("{mail}/{name}")));
    let found = try_join_all(reads).await?;
    for (name, mail) in names.into_iter().zip(found) {
        state.hear(name, mail.map(|(mail, _)| mail), shared);
    }
    Ok(())
}

/// Creates the inbox. Returns whether it was there without a pause, or `None` if it is that of another process.
async fn claim_inbox(inbox: &str, state: &State, link: &Link) -> Result<Option<bool>, Failure> {
    let create = Op::create(inbox, &state.mark, Kind::Ephemeral);
    loop {
        let Some((mark, stat)) = link.get(inbox).await? else {
            match link.carry_out(&create).await {
                Err(failure) if failure.meaning == Meaning::Exists => continue,
                created => return created.map(|_| Some(false)),
            }
        };
        if *mark != *state.mark {
            return Ok(None);
        }
        if stat.owner == state.identity.id {
            return Ok(Some(true));
        }
        // It is of the last session of this process.
        match link.multi(vec![Op::Delete(inbox.into(), stat.version), create.clone()]).await? {
            Done::All(_) => return Ok(Some(true)),
            Done::Nothing(0, failure) if failure.meaning == Meaning::Absent => {}
            Done::Nothing(_, failure) => return Err(failure),
        }
    }
}

/// Creates the nodes of the store that are missing.
async fn make_nodes(exchange: &Exchange, link: &Link) -> Result<(), Failure> {
    let keys = &exchange.keys;
    let ends = keys.root().match_indices('/').map(|(at, _)| at).skip(1).chain([keys.root().len()]);
    for end in ends {
        let path = &keys.root()[..end];
        if link.exists(path).await?.is_none() {
            link.ensure(path, b"").await?;
        }
    }
    // Before this process makes a node that others cannot read.
    let of_values = keys.values();
    if link.has_login() && link.exists(&of_values).await?.is_some() && link.is_open_to_all(&of_values).await?
    {
        let why = format!(
            "the nodes below {} in ZooKeeper are open to all: leave the login out of the URL, choose another path, or \
             end all processes and delete the nodes",
            keys.root()
        );
        return Err(Failure::refused(ErrorKind::Misused, why));
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros().to_string();
    let nodes = [keys.values(), keys.mails(), keys.inboxes(), keys.clock(), keys.gauges()];
    try_join_all(nodes.iter().map(|path| link.ensure(path, b""))).await?;
    link.ensure(&keys.base(), now.as_bytes()).await
}

/// Returns the generation of the buckets, and makes one if there is none.
async fn ensure_generation(exchange: &Exchange, link: &Link) -> Result<i64, Failure> {
    let (keys, path) = (&exchange.keys, exchange.keys.values());
    for _ in 0..TRIES {
        let (name, stat) = link.get(&path).await?.ok_or_else(|| Failure::absent(&path))?;
        let before: Option<i64> = number(&name);
        if before.is_none() && !name.is_empty() {
            return Err(no_number(&path));
        }
        if let Some(generation) = before
            && link.exists(&keys.generation(generation)).await?.is_some()
        {
            return Ok(generation);
        }
        // Above all former ones: the end of the last one was seen.
        let next = exchange.client.zxid().max(before.unwrap_or(0).saturating_add(1));
        let mut ops = vec![
            Op::set(&path, next.to_string().as_bytes(), stat.version),
            Op::create(&keys.generation(next), b"", Kind::Kept),
        ];
        ops.extend((0..BUCKETS).map(|number| Op::create(&keys.bucket_of(next, number), b"", Kind::Kept)));
        match link.multi(ops).await? {
            Done::Nothing(_, failure) if !matches!(failure.meaning, Meaning::Differs | Meaning::Exists) => {
                return Err(failure);
            }
            _ => {}
        }
    }
    Err(Failure::unsent("the buckets in ZooKeeper were removed while they were made"))
}

fn number<N: FromStr>(text: &[u8]) -> Option<N> {
    from_utf8(text).ok()?.parse().ok()
}

fn no_number(path: &str) -> Failure {
    Failure::refused(ErrorKind::Conflict, format!("the node {path} of ZooKeeper holds no number"))
}

fn inbox_is_taken() -> Failure {
    Failure::unsent("another process has the inbox of this one at ZooKeeper")
}
