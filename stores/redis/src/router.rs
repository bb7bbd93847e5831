//! The way to the node that has a key: the only server, or a master of a cluster.
//!
//! A node that does not have the slot of a key refuses with `MOVED` and names the owner. While a slot moves, its owner
//! refuses a call for a key that it no longer has with `ASK`, and the next owner accepts that call only right behind
//! `ASKING`. Both refuse a script with `TRYAGAIN` if they have only some of its keys. A refused call has had no effect:
//! it goes to the other node or is repeated.

use super::{
    cluster::{Cluster, Seeds},
    connection::{ConnectionHandle, Connector, Replied},
    discovery::Discovery,
    errors,
    pipeline::Payload,
    push_receiver::PushReceiver,
    script::Invocation,
    slots::slot_of,
    url::Clustered,
};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    key::Key,
    store::{opening::NetworkOptions, url::StoreUrl},
};
use redis::{Cmd, RedisError};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How many times a call is redirected before it pauses.
const MAX_REDIRECTS: usize = 4;

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Router {
    One(ConnectionHandle),
    Cluster(Arc<Cluster>),
}

/// Where the servers of a store are.
pub(super) enum Origin {
    One(Discovery),
    Cluster(Seeds),
}

impl Origin {
    /// Returns what a URL says. Nothing is asked yet.
    pub(super) fn new(url: &StoreUrl, options: &NetworkOptions) -> Result<Self> {
        if url.scheme.ends_with("+cluster") {
            return Ok(Self::Cluster(Seeds { url: Clustered::of(url)?, options: options.clone() }));
        }
        Discovery::new(url, options).map(Self::One)
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns the address without user and password, for messages.
    pub(super) fn address(&self) -> String {
        match self {
            Self::One(discovery) => discovery.address().to_owned(),
            Self::Cluster(seeds) => seeds.url.redacted(),
        }
    }
}

/// What is sent.
#[derive(Clone, Copy)]
enum Call<'a> {
    Script(&'a Arc<Invocation>),
    /// A command, over the main connection.
    Command(&'a Cmd),
}

impl Router {
    /// Starts to connect in the background.
    pub(super) fn open(
        origin: Origin,
        receiver: &Arc<PushReceiver>,
        connector: impl Fn(Discovery) -> Connector + Send + Sync + 'static,
    ) -> Self {
        match origin {
            Origin::One(discovery) => Self::One(ConnectionHandle::open(connector(discovery))),
            Origin::Cluster(seeds) => Self::Cluster(Cluster::open(seeds, Arc::clone(receiver), connector)),
        }
    }

    /// Waits up to `limit` for the connections.
    pub(super) async fn ready(&self, limit: Duration) -> Result<()> {
        match self {
            Self::One(link) => link.main(limit).await.map(drop),
            Self::Cluster(cluster) => cluster.ready(limit).await,
        }
    }

    /// Calls a script. Waits for the reply until `by`.
    pub(super) async fn invoke(&self, invocation: &Arc<Invocation>, by: Timestamp) -> Replied {
        self.send(invocation.key().as_str(), Call::Script(invocation), by).await
    }

    /// Sends a command about `key`. Waits for the reply until `by`.
    pub(super) async fn command(&self, key: &str, command: &Cmd, by: Timestamp) -> Replied {
        self.send(key, Call::Command(command), by).await
    }

    async fn send(&self, key: &str, call: Call<'_>, by: Timestamp) -> Replied {
        match self {
            Self::One(link) => call.to(link, by).await,
            // Boxed, as all that most calls do not need: a call is one allocation, and a large one costs more than two.
            Self::Cluster(cluster) => Box::pin(to_owner(cluster, slot_of(key), call, by)).await,
        }
    }

    /// Returns groups of the places in `keys`: one command may be about the keys of a group.
    pub(super) fn groups(&self, keys: &[Key]) -> Vec<Vec<usize>> {
        if matches!(self, Self::One(_)) {
            return vec![(0..keys.len()).collect()];
        }
        let mut groups = BTreeMap::<u16, Vec<usize>>::new();
        for (place, key) in keys.iter().enumerate() {
            groups.entry(slot_of(key.as_str())).or_default().push(place);
        }
        groups.into_values().collect()
    }

    /// Returns the connections to all servers with keys.
    pub(super) fn links(&self) -> Vec<ConnectionHandle> {
        match self {
            Self::One(link) => vec![link.clone()],
            Self::Cluster(cluster) => cluster.links(),
        }
    }

    /// Returns the reason for a missing connection to the node that has `key`.
    pub(super) fn outage(&self, key: &str) -> Option<Error> {
        match self {
            Self::One(link) => link.outage(),
            Self::Cluster(cluster) => {
                let slot = slot_of(key);
                cluster.link_of(slot).map_or_else(|| Some(cluster.ownerless(slot)), |link| link.outage())
            }
        }
    }

    /// Returns the connections to the node that has `key`, if it is known.
    pub(super) fn link_of(&self, key: &str) -> Option<ConnectionHandle> {
        match self {
            Self::One(link) => Some(link.clone()),
            Self::Cluster(cluster) => cluster.link_of(slot_of(key)),
        }
    }
}

impl Call<'_> {
    async fn to(self, link: &ConnectionHandle, by: Timestamp) -> Replied {
        let limit = by.since(Timestamp::now());
        match self {
            Self::Script(invocation) => {
                let connection = link.local(limit).await?;
                match connection.execute(invocation, by).await? {
                    Err(error) if errors::is_unknown_script(&error) => {
                        link.scripts_are_gone();
                        Box::pin(connection.execute_in_full(invocation, by)).await
                    }
                    reply => Ok(reply),
                }
            }
            Self::Command(command) => link.main(limit).await?.call(command.clone(), by).await,
        }
    }

    /// Sends it to the next owner of a slot that moves.
    async fn asking(self, link: &ConnectionHandle, by: Timestamp) -> Replied {
        let connection = link.main(by.since(Timestamp::now())).await?;
        let call = match self {
            Self::Script(invocation) => Payload::InFull(Arc::clone(invocation)),
            Self::Command(command) => Payload::Command(command.clone()),
        };
        connection.ask(call, by).await
    }
}

/// Sends a call to the owner of a slot, wherever that is by then.
async fn to_owner(cluster: &Cluster, slot: u16, call: Call<'_>, by: Timestamp) -> Replied {
    let (mut backoff, mut redirects) = (Backoff::default(), 0);
    let mut next = None;
    loop {
        let reply = match &next {
            None => call.to(&cluster.owner(slot, by).await?, by).await,
            Some((link, false)) => call.to(link, by).await,
            Some((link, true)) => Box::pin(call.asking(link, by)).await,
        };
        let refusal = match reply {
            Ok(Err(error)) if errors::is_about_a_slot(&error) => error,
            reply => {
                if reply.is_err() {
                    cluster.report_trouble();
                }
                return reply;
            }
        };
        let asks = refusal.code() == Some("ASK");
        if !asks {
            cluster.report_trouble();
        }
        next =
            refusal.redirect_node().and_then(|(place, _)| cluster.master_at(place)).map(|link| (link, asks));
        redirects += 1;
        if next.is_some() && redirects % MAX_REDIRECTS != 0 {
            continue;
        }
        let pause = backoff.next_delay();
        if Timestamp::now() + pause >= by {
            return Err(given_up(&refusal));
        }
        background::sleep(pause).await;
        next = None;
    }
}

/// Returns the error for a call that no node has carried out in time.
fn given_up(refusal: &RedisError) -> Error {
    let why = refusal.to_string();
    Error::new(ErrorKind::Unavailable, format!("the slot of the key has no owner, or is moving: {why}"))
        .with_source(refusal.clone())
}
