//! What the nodes of a cluster say about it.
//!
//! Each node has a view: all nodes, and the slots of each master with the number of its configuration (`config-epoch`).
//! A node that takes slots over raises its number. So the claim with the higher number is the later one, whichever node
//! reports it. A node that is cut off from the others has an old view, which takes nothing back.

use super::slots::{NOBODY, NodeNumber, SLOTS};
use redis::Cmd;
use std::collections::BTreeSet;

/// The reply of one node to `CLUSTER NODES`.
#[derive(Debug)]
pub(super) struct View {
    nodes: Vec<Seen>,
    /// The node that has replied.
    myself: Option<usize>,
    /// The owner of each slot.
    owners: Vec<Option<usize>>,
    /// Whether this node gives slots away or takes some over.
    pub(super) is_moving: bool,
    /// Whether it came over the connection to the place where the node is known to be.
    pub(super) was_reached: bool,
}

impl View {
    /// Returns the command that asks for it.
    pub(super) fn question() -> Cmd {
        redis::cmd("CLUSTER").arg("NODES").clone()
    }

    /// Returns the id of the node that has replied.
    pub(super) fn id(&self) -> Option<&str> {
        self.myself.and_then(|myself| self.nodes.get(myself)).map(|seen| seen.id.as_str())
    }

    /// Returns whether every slot has an owner.
    pub(super) fn is_whole(&self) -> bool {
        self.owners.iter().all(Option::is_some)
    }
}

/// A node in a view.
#[derive(Debug)]
struct Seen {
    id: String,
    place: Endpoint,
    is_master: bool,
    /// Whether the nodes agree that it does not answer.
    has_failed: bool,
    epoch: u64,
}

/// Where a node is.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) hostname: Option<String>,
    pub(super) port: u16,
}

impl Endpoint {
    /// Reads `ADDRESS:PORT@BUS[,HOSTNAME][,..]`. A node that does not know its own address leaves it out: it is at
    /// `host`.
    fn read(text: &str, host: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let (address, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
        let hostname = parts.next().filter(|name| !name.is_empty() && !name.contains('='));
        let address = if address.is_empty() { host } else { address };
        Some(Self {
            address: address.trim_matches(['[', ']']).to_owned(),
            hostname: hostname.map(str::to_owned),
            port: port.parse().ok().filter(|port| *port != 0)?,
        })
    }

    /// Returns whether this is what a view says of `known`. Nodes of 6.2 know no names, so a missing one says nothing.
    fn means(&self, known: &Self, by_name: bool) -> bool {
        let is_same_name = !by_name || self.hostname.is_none() || self.hostname == known.hostname;
        (&self.address, self.port) == (&known.address, known.port) && is_same_name
    }

    /// Returns whether a redirection to `HOST:PORT` means this place.
    fn is(&self, place: &str) -> bool {
        let Some((host, port)) = place.rsplit_once(':') else { return false };
        let host = host.trim_matches(['[', ']']);
        port.parse() == Ok(self.port) && (host == self.address || self.hostname.as_deref() == Some(host))
    }
}

impl View {
    /// Reads the reply of the node at `host`. Returns `None` if it is none.
    pub(super) fn read(text: &str, host: &str) -> Option<Self> {
        let mut view = Self {
            nodes: Vec::new(),
            myself: None,
            owners: vec![None; usize::from(SLOTS)],
            is_moving: false,
            was_reached: false,
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            let mut words = line.split(' ');
            let (id, place, flags) = (words.next()?, words.next()?, words.next()?);
            // master, times of the last ping and pong
            let (epoch, _link) = (words.nth(3)?.parse().ok()?, words.next()?);
            let is = |name: &str| flags.split(',').any(|flag| flag == name);
            let number = view.nodes.len();
            let is_master = is("master") && !is("noaddr") && !is("handshake");
            let Some(place) = Endpoint::read(place, host) else { continue };
            if is("myself") {
                view.myself = Some(number);
            }
            for slots in words {
                if slots.starts_with('[') {
                    view.is_moving = true;
                } else if is_master {
                    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
                    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                    view.owners.get_mut(first..=last)?.fill(Some(number));
                }
            }
            view.nodes.push(Seen { id: id.to_owned(), place, is_master, has_failed: is("fail"), epoch });
        }
        view.myself.is_some().then_some(view)
    }
}

/// What is known of a cluster.
#[derive(Debug)]
pub(super) struct Topology {
    /// All masters that there ever were, by their numbers, which begin with 1. One that moves gets another number.
    masters: Vec<Master>,
    claims: Vec<Claim>,
    /// The masters without slots.
    idle: BTreeSet<NodeNumber>,
    /// The masters that have been unknown to all nodes for a while: they were removed from the cluster.
    gone: BTreeSet<NodeNumber>,
    /// Whether another name of its host makes a node another one: certificates are for names.
    by_name: bool,
}

#[derive(Debug)]
struct Master {
    id: String,
    place: Endpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    owner: NodeNumber,
    epoch: u64,
}

/// What a view has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Slots have another owner.
    pub(super) has_moved: bool,
    /// Slots were taken from a node that may not have given them: what it had not replicated is lost.
    pub(super) has_failed_over: bool,
}

impl Default for Topology {
    fn default() -> Self {
        let claims = vec![Claim { owner: NOBODY, epoch: 0 }; usize::from(SLOTS)];
        Self { masters: Vec::new(), claims, idle: BTreeSet::new(), gone: BTreeSet::new(), by_name: false }
    }
}

impl Topology {
    pub(super) fn new(by_name: bool) -> Self {
        Self { by_name, ..Self::default() }
    }

    /// Takes in a view. One of another cluster changes nothing.
    pub(super) fn apply(&mut self, view: &View) -> Change {
        if self.is_foreign(view) { Change::default() } else { self.take_in(view) }
    }

    fn take_in(&mut self, view: &View) -> Change {
        let present = self.masters();
        let number = |(number, seen)| {
            let is_own_word = view.was_reached && view.myself == Some(number);
            let own = if is_own_word { self.known_as(seen, &present) } else { None };
            own.unwrap_or_else(|| self.number_of(seen))
        };
        let numbers: Vec<_> = view.nodes.iter().enumerate().map(number).collect();
        let seen: Vec<_> = self
            .masters
            .iter()
            .map(|master| view.nodes.iter().position(|seen| seen.id == master.id))
            .collect();
        let has_slots = |node: usize| view.owners.contains(&Some(node));
        let mut failed_over = BTreeSet::new();
        let newest = view.nodes.iter().map(|seen| seen.epoch).max().unwrap_or(0);
        // A node without slots may be one that does not know yet that a replica has taken over.
        let has_failed_over =
            |node: usize| !view.nodes[node].is_master || view.nodes[node].has_failed || !has_slots(node);
        let mut change = Change::default();
        for (claim, new) in self.claims.iter_mut().zip(&view.owners) {
            let next = new.map_or(Claim { owner: NOBODY, epoch: 0 }, |new| Claim {
                owner: numbers[new],
                epoch: view.nodes[new].epoch,
            });
            let before = at(&seen, claim.owner).copied().flatten();
            let is_later = match (claim.owner, before) {
                (NOBODY, _) => true,
                // It was removed from the cluster, unless this view is too old to know it.
                (_, None) => {
                    next.owner != NOBODY && (newest > claim.epoch || self.gone.contains(&claim.owner))
                }
                (_, Some(_)) if next.epoch > claim.epoch => true,
                // The same node, perhaps at another place, or one that says itself that it has the slot no more.
                (_, Some(before)) => *new == Some(before) || view.myself == Some(before),
            };
            if !is_later || *claim == next {
                continue;
            }
            if claim.owner != NOBODY && claim.owner != next.owner {
                change.has_moved = true;
                if !failed_over.contains(&claim.owner) && before.is_none_or(has_failed_over) {
                    failed_over.insert(claim.owner);
                }
            }
            *claim = next;
        }
        let is_idle = |(seen, number): &(&Seen, &NodeNumber)| {
            seen.is_master
                && !seen.has_failed
                && !failed_over.contains(*number)
                && !self.claims.iter().any(|claim| claim.owner == **number)
        };
        change.has_failed_over = !failed_over.is_empty();
        self.idle = view.nodes.iter().zip(&numbers).filter(is_idle).map(|(_, number)| *number).collect();
        change
    }

    /// Returns whether a view is of another cluster: no master of this one is known there.
    pub(super) fn is_foreign(&self, view: &View) -> bool {
        let is_known = |seen: &Seen| self.masters.iter().any(|master| master.id == seen.id);
        !self.masters.is_empty() && !view.nodes.iter().any(is_known)
    }

    /// Returns the owners of slots that none of these views knows.
    pub(super) fn owners_unknown_to(&self, views: &[&View]) -> BTreeSet<NodeNumber> {
        let owners: BTreeSet<_> = self.claims.iter().map(|claim| claim.owner).collect();
        let is_known = |id: &str| views.iter().any(|view| view.nodes.iter().any(|seen| seen.id == id));
        let is_unknown = |owner: &NodeNumber| self.master(*owner).is_some_and(|(id, _)| !is_known(id));
        owners.into_iter().filter(is_unknown).collect()
    }

    /// Sets the masters that were removed from the cluster. Other nodes may have their slots with any number.
    pub(super) fn set_gone(&mut self, gone: BTreeSet<NodeNumber>) {
        self.gone = gone;
    }

    /// Takes in the view of another cluster, which is there in place of this one.
    pub(super) fn replace(&mut self, view: &View) -> Change {
        self.claims = Self::default().claims;
        self.take_in(view);
        Change { has_moved: true, has_failed_over: true }
    }

    /// Returns the present number of a master that was reached. What it says of its own place does not count then: it
    /// may know itself by another address than the other nodes do.
    fn known_as(&self, seen: &Seen, present: &BTreeSet<NodeNumber>) -> Option<NodeNumber> {
        let is_same = |number: &&NodeNumber| {
            seen.is_master && at(&self.masters, **number).is_some_and(|master| master.id == seen.id)
        };
        present.iter().rev().find(is_same).copied()
    }

    fn number_of(&mut self, seen: &Seen) -> NodeNumber {
        if !seen.is_master {
            return NOBODY;
        }
        let known = self
            .masters
            .iter()
            .rposition(|master| master.id == seen.id && seen.place.means(&master.place, self.by_name));
        if let (Some(known), Some(name)) = (known, &seen.place.hostname) {
            self.masters[known].place.hostname = Some(name.clone());
        }
        let at = known.unwrap_or_else(|| {
            self.masters.push(Master { id: seen.id.clone(), place: seen.place.clone() });
            self.masters.len() - 1
        });
        NodeNumber::try_from(at + 1).unwrap_or(NOBODY)
    }

    /// Returns the owner of each slot.
    pub(super) fn owners(&self) -> impl Iterator<Item = (u16, NodeNumber)> {
        (0..SLOTS).zip(self.claims.iter().map(|claim| claim.owner))
    }

    /// Returns the masters, also those without slots: they may get some at any time.
    pub(super) fn masters(&self) -> BTreeSet<NodeNumber> {
        let owners = self.claims.iter().map(|claim| claim.owner).filter(|owner| *owner != NOBODY);
        owners.chain(self.idle.iter().copied()).collect()
    }

    /// Returns the id of a master, and where it is.
    pub(super) fn master(&self, number: NodeNumber) -> Option<(&str, &Endpoint)> {
        at(&self.masters, number).map(|master| (master.id.as_str(), &master.place))
    }

    /// Returns whether a master was at another place before. It may have come back without its data.
    pub(super) fn has_relocated(&self, number: NodeNumber) -> bool {
        let is_same =
            |master: &Master| at(&self.masters, number).is_some_and(|latest| latest.id == master.id);
        self.masters.iter().filter(|master| is_same(master)).count() > 1
    }

    /// Returns the latest master at the place that a redirection names.
    pub(super) fn master_at(&self, place: &str) -> Option<NodeNumber> {
        let at = self.masters.iter().rposition(|master| master.place.is(place))?;
        NodeNumber::try_from(at + 1).ok()
    }
}

/// Returns the item of a master in a list that begins with number 1.
fn at<T>(list: &[T], number: NodeNumber) -> Option<&T> {
    list.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

#[cfg(test)]
mod tests;
