//! Sentinels, which say which server is the master.
//!
//! Each sentinel has a view of the master: its address, and the number of the configuration (`config-epoch`), which
//! rises with each failover. The highest number counts, because a sentinel that was cut off from the others has an old
//! view. All sentinels are asked before each connection. Beside that, a connection to each of them receives
//! `+switch-master` and asks every few seconds, in case a message was lost.

mod views;

use super::{
    server::Server,
    url::{Watched, place},
};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    diagnostics::warning,
    error::{Error, ErrorKind, Result},
    store::opening::NetworkOptions,
};
use redis::{
    AsyncConnectionConfig, FromRedisValue, PushInfo, PushKind, RedisError, RedisResult, Value,
    aio::{AsyncPushSender, MultiplexedConnection, SendError},
    from_redis_value,
};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};
use tokio::sync::{Notify, watch};
use views::{View, Views};

/// How long a sentinel may take to reply.
const LIMIT: Duration = Duration::from_secs(1);

/// How long the other sentinels may take after the first one: a dead one costs no more.
const GRACE: Duration = Duration::from_millis(100);

/// The time between two questions to a sentinel whose messages are received.
const ASK_INTERVAL: Duration = Duration::from_secs(2);

const CHANNEL: &str = "+switch-master";

/// The sentinels of one master.
pub(super) struct Sentinels {
    watched: Watched,
    address: String,
    /// Where the sentinels are.
    places: Vec<Server>,
    options: NetworkOptions,
    /// What they say.
    views: watch::Sender<Views>,
}

impl Sentinels {
    pub(super) fn new(watched: Watched, options: &NetworkOptions) -> Result<Self> {
        let places = watched.sentinels.iter().map(|info| Server::new(info.clone(), 0, options));
        let places = places.collect::<Result<Vec<_>>>()?;
        let views = watch::channel(Views::of(places.len())).0;
        Ok(Self { address: watched.redacted(), watched, places, options: options.clone(), views })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Asks all sentinels for the master.
    pub(super) async fn server(&self) -> Result<Server> {
        let mut answers: FuturesUnordered<_> = (0..self.places.len())
            .map(|number| async move { (number, within(self.ask_once(number)).await) })
            .collect();
        let mut refusals = Vec::new();
        let mut grace = None;
        loop {
            let patience = async {
                match &mut grace {
                    Some(grace) => grace.await,
                    None => std::future::pending().await,
                }
            };
            let answer = tokio::select! {
                biased;
                answer = answers.next() => answer,
                () = patience => None,
            };
            match answer {
                Some((number, Ok(view))) => {
                    self.set_view(number, Some(view));
                    grace.get_or_insert_with(|| Box::pin(background::sleep(GRACE)));
                }
                Some((number, Err(refusal))) => {
                    self.set_view(number, None);
                    refusals.push((number, refusal));
                }
                None => break,
            }
        }
        let view = self.views.borrow().newest().cloned();
        let Some(View { epoch, host, port }) = view else { return Err(self.unknown(&refusals)) };
        let mut server = Server::new(self.watched.server(host, port), epoch, &self.options)?;
        server.address = format!("{} (the master `{}` of the sentinels)", server.address, self.watched.name);
        Ok(server)
    }

    /// Returns the error for a master that no sentinel names.
    fn unknown(&self, refusals: &[(usize, Refusal)]) -> Error {
        let reasons: Vec<_> = refusals
            .iter()
            .map(|(number, refusal)| {
                format!("{} {}", place(&self.watched.sentinels[*number]), refusal.reason)
            })
            .collect();
        let is_lasting = !refusals.is_empty() && refusals.iter().all(|(_, refusal)| refusal.is_lasting);
        let kind = if is_lasting { ErrorKind::Misused } else { ErrorKind::Unavailable };
        let name = &self.watched.name;
        Error::new(kind, format!("no sentinel names the master `{name}`: {}", reasons.join("; ")))
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.views.borrow().newest().map(|view| view.epoch)
    }

    pub(super) async fn newer_than(&self, epoch: Option<u64>) {
        self.until(|views| views.newest().map(|view| view.epoch) > epoch).await;
    }

    pub(super) async fn have_left(&self, server: &Server) {
        self.until(|views| views.have_left(server)).await;
    }

    async fn until(&self, is_so: impl FnMut(&Views) -> bool) {
        // The sender is of this value: it does not end first.
        drop(self.views.subscribe().wait_for(is_so).await);
    }

    pub(super) async fn follow(&self) {
        join_all((0..self.places.len()).map(|number| self.follow_one(number))).await;
    }

    /// Keeps the view of one sentinel up to date.
    async fn follow_one(&self, number: usize) {
        let mut backoff = Backoff::default();
        loop {
            if let Err(refusal) = self.listen(number, &mut backoff).await {
                let is_first = self.set_view(number, None);
                if is_first {
                    let sentinel = place(&self.watched.sentinels[number]);
                    warning!("the sentinel {sentinel} {}", refusal.reason);
                    let _ = (&sentinel, &refusal.reason);
                }
            }
            background::sleep(backoff.next_delay()).await;
        }
    }

    async fn listen(&self, number: usize, backoff: &mut Backoff) -> Asked<()> {
        let news = Arc::new(Notify::new());
        let sink = SwitchSink { name: format!("{} ", self.watched.name), news: Arc::clone(&news) };
        let mut connection = within(self.dial(number, Some(sink))).await?;
        let subscribing = async { connection.subscribe(CHANNEL).await.map_err(|error| Refusal::new(&error)) };
        // A user that may not subscribe can still ask.
        let refused = within(subscribing).await.err();
        if refused.is_some_and(|refused| !refused.is_lasting) {
            return Err(Refusal::temporary("did not confirm the subscription"));
        }
        loop {
            let view = within(self.ask(&mut connection)).await?;
            *backoff = Backoff::default();
            self.set_view(number, Some(view));
            tokio::select! {
                () = news.notified() => {}
                () = background::sleep(ASK_INTERVAL) => {}
            }
        }
    }

    /// Sets the view of a sentinel. Returns whether it had another one.
    fn set_view(&self, number: usize, view: Option<View>) -> bool {
        self.views.send_if_modified(|views| views.set(number, view, Timestamp::now()))
    }

    async fn ask_once(&self, number: usize) -> Asked<View> {
        self.ask(&mut self.dial(number, None).await?).await
    }

    async fn dial(&self, number: usize, sink: Option<SwitchSink>) -> Asked<MultiplexedConnection> {
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if let Some(sink) = sink {
            config = config.set_push_sender(sink);
        }
        let client = &self.places[number].client;
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map_err(|error| Refusal::new(&error))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Asked<View> {
        let mut questions = redis::pipe();
        // The number first: if the master changes in between, the address is newer than its number, not older.
        questions.cmd("SENTINEL").arg("MASTER").arg(&self.watched.name);
        questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.watched.name);
        let answers = connection.send_packed_commands(&questions, 0, 2).await;
        let mut answers = answers.map_err(|error| Refusal::new(&error))?.into_iter();
        let mut answer = || answers.next().unwrap_or(Value::Nil).extract_error();
        read_view(answer(), answer()).map_err(|error| Refusal::new(&error))
    }
}

pub(super) fn read_view(master: RedisResult<Value>, address: RedisResult<Value>) -> RedisResult<View> {
    let facts: HashMap<String, Value> = from_redis_value(master?)?;
    let epoch = facts.get("config-epoch").map(|epoch| from_redis_value(epoch.clone()));
    let (host, port) = from_redis_value(address?)?;
    Ok(View { epoch: epoch.transpose()?.unwrap_or(0), host, port })
}

/// The view of a sentinel, or why there is none.
type Asked<T> = std::result::Result<T, Refusal>;

#[derive(Debug)]
struct Refusal {
    reason: String,
    /// Whether waiting does not help.
    is_lasting: bool,
}

impl Refusal {
    fn new(error: &RedisError) -> Self {
        use redis::ErrorKind as K;
        let text = error.to_string();
        let reason = match error.kind() {
            _ if text.contains("No such master") => "does not know a master of this name".into(),
            _ if text.contains("unknown command") => "is not a sentinel".into(),
            K::AuthenticationFailed => format!("refused sentinel_user or sentinel_password ({text})"),
            K::Server(_) | K::Extension
                if matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM")) =>
            {
                format!("refused sentinel_user or sentinel_password ({text})")
            }
            _ => return Self::temporary(&format!("does not answer ({text})")),
        };
        Self { reason, is_lasting: true }
    }

    fn temporary(reason: &str) -> Self {
        Self { reason: reason.into(), is_lasting: false }
    }
}

async fn within<T>(asking: impl Future<Output = Asked<T>>) -> Asked<T> {
    tokio::select! {
        biased;
        answer = asking => answer,
        () = background::sleep(LIMIT) => Err(Refusal::temporary(&format!("does not answer within {LIMIT:?}"))),
    }
}

/// The sink for the messages of a sentinel.
struct SwitchSink {
    /// The name of the master, with a blank: messages are of all masters.
    name: String,
    /// Notified when the master has changed, and when the connection breaks.
    news: Arc<Notify>,
}

impl AsyncPushSender for SwitchSink {
    fn send(&self, info: PushInfo) -> std::result::Result<(), SendError> {
        let is_news = match info.kind {
            PushKind::Disconnection => true,
            PushKind::Message => {
                let payload =
                    info.data.into_iter().nth(1).and_then(|data| String::from_redis_value(data).ok());
                payload.is_some_and(|payload| payload.starts_with(&self.name))
            }
            _ => false,
        };
        if is_news {
            self.news.notify_one();
        }
        Ok(())
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_another_master_is_no_news() {
        let news = Arc::new(Notify::new());
        let sink = SwitchSink { name: "main ".into(), news: Arc::clone(&news) };
        for (name, is_news) in [("main", true), ("main2", false), ("domain", false)] {
            let payload = format!("{name} 127.0.0.1 1 127.0.0.1 2");
            let data = [CHANNEL.to_owned(), payload].map(|text| Value::BulkString(text.into_bytes())).into();
            sink.send(PushInfo { kind: PushKind::Message, data }).unwrap();
            let notified = futures_util::FutureExt::now_or_never(news.notified()).is_some();
            assert_eq!(notified, is_news, "{name}");
        }
    }
}
