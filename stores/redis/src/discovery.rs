//! Where the server is: at a fixed address, where sentinels say, or where the nodes of a cluster say.
//!
//! The connecting loop asks before each connection of the background thread. Connections of callers' runtimes lead to
//! the same server as that one.

use super::{sentinel::Sentinels, server::Server, slots::Owner, url};
use locker_core::{
    error::Result,
    store::{opening::NetworkOptions, url::StoreUrl},
};
use std::{future::pending, sync::Arc};

/// Says where the server is.
#[derive(Debug)]
pub(super) enum Discovery {
    Fixed(Arc<Server>),
    Sentinels(Box<Sentinels>),
    /// A master of a cluster.
    Node {
        server: Arc<Server>,
        owner: Owner,
        /// Whether it was known at another place.
        has_relocated: bool,
    },
}

impl Discovery {
    /// Returns what a URL says that is not of a cluster. Nothing is asked yet.
    pub(super) fn new(url: &StoreUrl, options: &NetworkOptions) -> Result<Self> {
        if url.scheme.ends_with("+sentinel") {
            let watched = url::Watched::of(url)?;
            return Ok(Self::Sentinels(Box::new(Sentinels::new(watched, options)?)));
        }
        Ok(Self::Fixed(Arc::new(Server::new(url::server(url)?, 0, options)?)))
    }

    /// Returns the address without users and passwords, for messages.
    pub(super) fn address(&self) -> &str {
        match self {
            Self::Fixed(server) | Self::Node { server, .. } => &server.address,
            Self::Sentinels(sentinels) => sentinels.address(),
        }
    }

    /// Whether the address may lead to another server without an end of the connection.
    pub(super) fn may_move(&self) -> bool {
        matches!(self, Self::Sentinels(_))
    }

    /// Whether the server may have lost holds before the first connection to it: a node that has come back at another
    /// place. Before the first connection to any other server there are no holds.
    pub(super) fn may_have_lost(&self) -> bool {
        matches!(self, Self::Node { has_relocated: true, .. })
    }

    /// Returns the node of a cluster.
    pub(super) fn owner(&self) -> Option<&Owner> {
        if let Self::Node { owner, .. } = self { Some(owner) } else { None }
    }

    /// Returns what helps if the server is a replica.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "pass the master's address",
            Self::Sentinels(_) => "the sentinels are asked again",
            Self::Node { .. } => "the other nodes are asked again",
        }
    }

    /// Returns the server to connect to now.
    pub(super) async fn server(&self) -> Result<Arc<Server>> {
        match self {
            Self::Fixed(server) | Self::Node { server, .. } => Ok(Arc::clone(server)),
            Self::Sentinels(sentinels) => sentinels.server().await.map(Arc::new),
        }
    }

    /// Returns the number of the newest server that is known.
    pub(super) fn newest(&self) -> Option<u64> {
        match self {
            Self::Fixed(_) | Self::Node { .. } => None,
            Self::Sentinels(sentinels) => sentinels.newest(),
        }
    }

    /// Waits until a server with a higher number is known.
    pub(super) async fn newer_than(&self, epoch: Option<u64>) {
        match self {
            Self::Fixed(_) | Self::Node { .. } => pending().await,
            Self::Sentinels(sentinels) => sentinels.newer_than(epoch).await,
        }
    }

    /// Waits until another server than this one is the master, as far as sentinels say so.
    pub(super) async fn has_left(&self, server: &Server) {
        match self {
            Self::Fixed(_) | Self::Node { .. } => pending().await,
            Self::Sentinels(sentinels) => sentinels.have_left(server).await,
        }
    }

    /// Follows changes of the server. Does not return.
    pub(super) async fn follow(&self) {
        match self {
            Self::Fixed(_) | Self::Node { .. } => pending().await,
            Self::Sentinels(sentinels) => sentinels.follow().await,
        }
    }
}
