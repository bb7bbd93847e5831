//! The session of this process with one server or cluster: its connections, mailboxes and settings.

use super::{
    connection::{Connector, Replied},
    discovery::Discovery,
    errors, handshake,
    push_receiver::{PushReceiver, RunMessages},
    records::Records,
    router::{Origin, Router},
    script::{Invocation, ScriptReply, Settings},
    strict::Strict,
    url::Options,
};
use locker_core::{clock::Timestamp, error::Result, id::Id, mailboxes::Mailboxes, store::opening::Opening};
use redis::Value;
use std::{
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

/// The maximum time for connecting.
const MAX_CONNECT: Duration = Duration::from_secs(5);

/// The minimum time for connecting, also for callers with shorter timeouts: a few round trips.
const MIN_CONNECT: Duration = Duration::from_secs(1);

/// The maximum time between two questions for the eviction policy in strict mode. It is at most the longest lease.
const EVICTION_INTERVAL: Duration = Duration::from_secs(60);

/// A session with one server or cluster.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) router: Router,
    pub(super) receiver: Arc<PushReceiver>,
    pub(super) channel: Arc<str>,
    pub(super) command_timeout: Duration,
    /// Whether grants count only once replicas have them.
    pub(super) waits_for_replicas: bool,
    pub(super) settings: Arc<Settings>,
}

impl Session {
    /// Starts to connect in the background.
    pub(super) fn start(
        origin: Origin,
        options: Options,
        opening: &Opening,
        store: Weak<dyn RunMessages>,
    ) -> Self {
        let Options { allow_eviction, replicas, strict } = options;
        let records = Records::new(&opening.prefix, origin.is_cluster());
        let strict = strict.map(|longest| Strict { longest });
        let command_timeout = opening.network.command_timeout;
        let receiver = Arc::new(PushReceiver::new(store));
        let channel = format!("locker:push:{}", Id::random());
        // A little less than the caller's timeout, so that its error has the reason. Later callers may wait longer.
        let connect_timeout = (connect_timeout(opening) * 9 / 10).max(MIN_CONNECT);
        let (is_strict, prefix) = (strict.is_some(), opening.prefix.clone());
        let eviction_interval = strict.as_ref().map(|strict| strict.longest.min(EVICTION_INTERVAL));
        let (of_all, messages) = (channel.clone(), Arc::clone(&receiver));
        let connector = move |discovery: Discovery| Connector {
            checks: handshake::Checks {
                is_replicated: discovery.may_move() || replicas.is_some(),
                has_warned: AtomicBool::new(false),
                replicas,
                has_warned_of_few: AtomicBool::new(false),
                allow_eviction,
                is_strict,
                prefix: prefix.clone(),
            },
            discovery,
            channel: of_all.clone(),
            connect_timeout,
            reconnect_timeout: (command_timeout * 2).clamp(connect_timeout, MAX_CONNECT),
            command_timeout,
            receiver: Arc::clone(&messages),
            replicas,
            eviction_interval,
            knows_scripts: AtomicBool::new(false),
        };
        let router = Router::open(origin, &receiver, connector);
        Self {
            router,
            receiver,
            channel: channel.into(),
            command_timeout,
            waits_for_replicas: replicas.is_some(),
            settings: Arc::new(Settings { records, strict }),
        }
    }

    pub(super) fn mailboxes(&self) -> &Mailboxes {
        &self.receiver.mailboxes
    }

    /// Calls a script. Waits for the reply until `by`.
    pub(super) fn invoke(
        &self,
        invocation: Invocation,
        by: Timestamp,
    ) -> impl Future<Output = Result<ScriptReply>> + Send {
        let invocation = Arc::new(invocation.of(&self.settings));
        async move {
            let records = &self.settings.records;
            let were_divided = records.are_divided();
            let mut reply = self.call(&invocation, by).await?;
            if !were_divided && reply.as_ref().is_err_and(errors::is_about_several_slots) {
                records.divide();
                reply = Box::pin(self.call(&invocation, by)).await?;
            }
            ScriptReply::of_call(reply)
        }
    }

    async fn call(&self, invocation: &Arc<Invocation>, by: Timestamp) -> Replied {
        if let Some(first) = invocation.first() {
            match self.router.invoke(&Arc::new(first), by).await? {
                Ok(Value::Nil) => {}
                reply => return Ok(reply),
            }
        }
        self.router.invoke(invocation, by).await
    }
}

/// Returns how long opening a store waits for the connection.
pub(super) fn connect_timeout(opening: &Opening) -> Duration {
    if opening.timeout.is_zero() { MAX_CONNECT } else { MAX_CONNECT.min(opening.timeout) }
}
