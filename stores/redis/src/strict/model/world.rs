//! Two servers, their clients, and the messages between them.

use super::{Setting, Sign, data::Data};
use crate::strict::reference::{Answer, Record};
use locker_core::{
    clock::Timestamp,
    id::Id,
    key::Key,
    primitives::{AnyState, HoldRequest, Reply, Request, Signal, Wait},
};
use std::time::Duration;

/// The first moment.
const START: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Master,
    Replica,
    /// A former master that has not noticed, until this time.
    Alone(u64),
    Down,
}

#[derive(Clone, Debug, Hash)]
struct Server {
    role: Role,
    run: u8,
    replication: u8,
    data: Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Whether it has asked before: then a grant has to be confirmed.
    Asks {
        again: bool,
    },
    Holds {
        until: u64,
    },
}

#[derive(Clone, Debug, Hash)]
struct Client {
    phase: Phase,
    attempts: u8,
    asks: u8,
    renewals: u8,
    releases: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Acquire { again: bool },
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    client: usize,
    attempt: u8,
    kind: Kind,
    sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Once,
    /// Another copy arrives later.
    Twice,
    /// The reply is lost.
    Unanswered,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Second,
    Ask(usize),
    Renew(usize),
    Release(usize),
    Deliver(usize, usize, Fate),
    Replicate,
    FailOver,
    Rejoin,
    Restart,
    Flush,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    now: u64,
    servers: [Server; 2],
    clients: Vec<Client>,
    network: Vec<Message>,
    names: u8,
    copies: u8,
    replications: u8,
    failovers: u8,
    restarts: u8,
    flushes: u8,
}

/// The name of the first client's holds.
const NAME: u128 = 99;

impl World {
    pub(super) fn new(setting: &Setting) -> Self {
        let longest = Duration::from_secs(setting.longest);
        let record = Some(Record { epoch: 0, began: Timestamp::default(), longest });
        let data = Data { record, ..Data::empty() };
        let server = |role| Server { role, run: 0, replication: 0, data: data.clone() };
        let client = Client {
            phase: Phase::Idle,
            attempts: setting.attempts,
            asks: setting.asks,
            renewals: setting.renewals,
            releases: setting.releases,
        };
        let mut servers = [server(Role::Master), server(Role::Replica)];
        servers[1].run = 1;
        Self {
            now: 0,
            servers,
            clients: vec![client; setting.clients],
            network: Vec::new(),
            names: 1,
            copies: setting.copies,
            replications: setting.replications,
            failovers: setting.failovers,
            restarts: setting.restarts,
            flushes: setting.flushes,
        }
    }

    fn place(&self, role: Role) -> Option<usize> {
        self.servers.iter().position(|server| server.role == role)
    }

    pub(super) fn overlap(&self) -> bool {
        let holds = |client: &&Client| matches!(client.phase, Phase::Holds { until } if until > self.now);
        self.clients.iter().filter(holds).count() > 1
    }

    fn is_ready(&self, setting: &Setting) -> bool {
        let longest = setting.first_longest.map(Duration::from_secs);
        let has_record = |server: &Server| server.data.record.map(|record| record.longest) == longest;
        !setting.must_replicate || self.servers.iter().all(has_record)
    }

    pub(super) fn actions(&self, setting: &Setting) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.now < setting.end {
            actions.push(Action::Second);
        }
        for (number, client) in self.clients.iter().enumerate() {
            if self.network.len() >= setting.network {
                break;
            }
            let is_silent = !self.network.iter().any(|message| message.client == number);
            match client.phase {
                Phase::Idle if client.attempts > 0 && (is_silent || !setting.is_named) => {
                    actions.push(Action::Ask(number));
                }
                Phase::Asks { .. } if is_silent && client.asks > 0 => actions.push(Action::Ask(number)),
                Phase::Holds { until } if until > self.now => {
                    if client.renewals > 0 {
                        actions.push(Action::Renew(number));
                    }
                    if client.releases > 0 {
                        actions.push(Action::Release(number));
                    }
                }
                _ => {}
            }
        }
        for message in 0..self.network.len() {
            for (number, server) in self.servers.iter().enumerate() {
                if matches!(server.role, Role::Master | Role::Alone(_)) {
                    actions.push(Action::Deliver(message, number, Fate::Once));
                    if self.copies > 0 {
                        actions.push(Action::Deliver(message, number, Fate::Twice));
                        actions.push(Action::Deliver(message, number, Fate::Unanswered));
                    }
                }
            }
        }
        let has_replica = self.place(Role::Replica).is_some();
        for (possible, action) in [
            (self.replications > 0 && has_replica, Action::Replicate),
            (self.failovers > 0 && has_replica && self.is_ready(setting), Action::FailOver),
            (self.failovers > 0 && !has_replica, Action::Rejoin),
            (self.restarts > 0 && has_replica, Action::Restart),
            (self.flushes > 0, Action::Flush),
        ] {
            if possible {
                actions.push(action);
            }
        }
        actions
    }

    pub(super) fn take(&mut self, setting: &Setting, action: Action) {
        match action {
            Action::Second => {
                self.now += 1;
                for server in &mut self.servers {
                    if matches!(server.role, Role::Alone(until) if until < self.now) {
                        server.role = Role::Down;
                    }
                }
                for client in &mut self.clients {
                    if matches!(client.phase, Phase::Holds { until } if until <= self.now) {
                        client.phase = Phase::Idle;
                    }
                }
            }
            Action::Ask(number) => {
                let client = &mut self.clients[number];
                let again = client.phase != Phase::Idle;
                if again {
                    client.asks -= 1;
                } else {
                    client.attempts -= 1;
                }
                client.phase = Phase::Asks { again };
                self.send(number, Kind::Acquire { again });
            }
            Action::Renew(number) => {
                self.clients[number].renewals -= 1;
                self.send(number, Kind::Renew);
            }
            Action::Release(number) => {
                self.clients[number].releases -= 1;
                self.send(number, Kind::Release);
                self.clients[number].phase = Phase::Idle;
            }
            Action::Deliver(message, server, fate) => self.deliver(setting, message, server, fate),
            Action::Replicate => {
                self.replications -= 1;
                self.copy();
            }
            Action::FailOver => {
                let (Some(new), Some(old)) = (self.place(Role::Replica), self.place(Role::Master)) else {
                    return;
                };
                self.failovers -= 1;
                let until = self.now + setting.isolation;
                self.servers[old].role = if until > self.now { Role::Alone(until) } else { Role::Down };
                self.servers[new].role = Role::Master;
                self.servers[new].replication = self.names;
                self.names += 1;
            }
            Action::Rejoin => {
                for server in &mut self.servers {
                    if server.role != Role::Master {
                        server.role = Role::Replica;
                    }
                }
                self.copy();
            }
            Action::Restart => {
                let (Some(old), Some(master)) = (self.place(Role::Replica), self.place(Role::Master)) else {
                    return;
                };
                self.restarts -= 1;
                self.servers[master].data = self.servers[old].data.clone();
                (self.servers[master].run, self.servers[master].replication) = (self.names + 1, self.names);
                self.names += 1;
            }
            Action::Flush => {
                self.flushes -= 1;
                let Some(master) = self.place(Role::Master) else { return };
                self.servers[master].data = Data::empty();
            }
        }
    }

    fn copy(&mut self) {
        if let (Some(replica), Some(master)) = (self.place(Role::Replica), self.place(Role::Master)) {
            self.servers[replica].data = self.servers[master].data.clone();
        }
    }

    fn send(&mut self, client: usize, kind: Kind) {
        let attempt = self.clients[client].attempts;
        let message = Message { client, attempt, kind, sent: self.now };
        if !self.network.contains(&message) {
            self.network.push(message);
            self.network.sort_unstable();
        }
    }

    /// A server carries out a request, and the client reads the reply, unless it is lost.
    fn deliver(&mut self, setting: &Setting, at: usize, server: usize, fate: Fate) {
        let message = self.network[at];
        if fate != Fate::Twice {
            self.network.remove(at);
        }
        if fate != Fate::Once {
            self.copies -= 1;
        }
        let Message { client, attempt, kind, sent } = message;
        let lease = setting.lease(client);
        let request = request(setting, message);
        let behind = if server == 1 { setting.behind } else { 0 };
        let local = (START + self.now).saturating_add_signed(-behind);
        let now = Timestamp::from_micros(local * 1_000_000);
        let Server { data, run, replication, .. } = &mut self.servers[server];
        let epoch = match setting.sign {
            Sign::ReplicationId => u64::from(*replication),
            // The record of the beginning is that of the first server.
            Sign::RunId => u64::from(*run),
        };
        let before = held_until(&data.state);
        let place = (&Key::new("lock"), now);
        let (answer, notifications) =
            setting.rules(client).call(&mut data.record, epoch, &mut data.state, &request, place);
        data.follow([id(client, attempt)].into_iter());
        for notification in notifications {
            if matches!(notification.signal, Signal::Granted { .. }) {
                let told = (0..self.clients.len()).find(|number| {
                    let Client { phase, attempts, .. } = self.clients[*number];
                    matches!(phase, Phase::Asks { .. }) && id(*number, attempts) == notification.id
                });
                if let Some(told) = told {
                    self.send(told, Kind::Renew);
                }
            }
        }
        if fate == Fate::Unanswered || self.clients[client].attempts != attempt {
            return;
        }
        let phase = self.clients[client].phase;
        let until = match (answer, kind, phase) {
            (Answer::Reply(Reply::Granted { .. }), Kind::Acquire { again: false }, Phase::Asks { .. }) => {
                match before.filter(|end| *end > now) {
                    // A hold of its name, which lasts as long as it did.
                    Some(end) if setting.is_named && client == 0 => {
                        (end.as_micros() / 1_000_000 - START).saturating_add_signed(behind)
                    }
                    _ => sent + lease,
                }
            }
            (Answer::Reply(Reply::Granted { .. }), Kind::Acquire { .. }, Phase::Asks { .. }) => {
                return self.send(client, Kind::Renew);
            }
            (Answer::Reply(Reply::Renewed { .. }), Kind::Renew, Phase::Asks { .. }) => sent + lease,
            (Answer::Reply(Reply::Renewed { .. }), Kind::Renew, Phase::Holds { until }) => {
                until.max(sent + lease)
            }
            (Answer::Reply(Reply::Lost), Kind::Renew, Phase::Holds { .. }) => {
                self.clients[client].phase = Phase::Idle;
                return;
            }
            _ => return,
        };
        if until > self.now {
            self.clients[client].phase = Phase::Holds { until };
        }
    }
}

fn id(client: usize, attempt: u8) -> Id {
    Id::from(client as u128 * 16 + u128::from(attempt) + 1)
}

fn held_until(state: &AnyState) -> Option<Timestamp> {
    let AnyState::Lock(state) = state else { return None };
    state.holder().map(|(_, _, until)| until)
}

fn request(setting: &Setting, Message { client, attempt, kind, .. }: Message) -> Request {
    let (lease, id) = (Duration::from_secs(setting.lease(client)), id(client, attempt));
    let name = (setting.is_named && client == 0).then_some(Id::from(NAME));
    let wait = Some(Wait { live: Some(Duration::from_secs(30)), fair: true });
    Request::Lock(match kind {
        Kind::Acquire { .. } => HoldRequest::Acquire { id, lease, wait, ask: name },
        Kind::Renew => HoldRequest::Renew { id: name.unwrap_or(id), lease, once: None },
        Kind::Release => HoldRequest::Release { id: name.unwrap_or(id), tombstone: false, once: None },
    })
}
