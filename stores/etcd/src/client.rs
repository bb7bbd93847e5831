//! Calls to a cluster: which member is asked, for how long, with which token, and what is asked again.

use super::{
    endpoints::{Endpoints, Member},
    errors::{Failure, Meaning},
    messages::{Authenticate, AuthenticateAnswer},
    url::Login,
};
use futures_util::{
    FutureExt, Stream,
    future::{BoxFuture, Shared},
};
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    sync::{Mutex, lock},
};
use prost::Message;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tonic::{
    Request, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{AsciiMetadataValue, MetadataMap},
    transport::Channel,
};

/// An answer that several callers await. The background thread makes progress with it.
pub(super) type SharedAnswer<T> = Shared<BoxFuture<'static, Result<T, Failure>>>;

/// A cluster.
pub(super) struct Client {
    pub(super) endpoints: Endpoints,
    limits: Limits,
    login: Option<Login>,
    token: Mutex<Token>,
    /// The last failure of a call that was made again.
    trouble: Mutex<Option<Failure>>,
    /// The smoothed time to an answer, in microseconds.
    answer_time: AtomicU64,
}

/// How long calls take at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// One call.
    pub(super) call: Duration,
    /// One question to one member.
    pub(super) member: Duration,
}

impl Limits {
    /// Returns limits that leave some time of `command_timeout` to the caller, who learns more from an answer of this
    /// module than from a time-out.
    pub(super) fn of(command_timeout: Duration) -> Self {
        Self { call: command_timeout * 9 / 10, member: command_timeout * 45 / 100 }
    }
}

/// What is known of the token that stands for user and password.
enum Token {
    None,
    Asked(SharedAnswer<Option<AsciiMetadataValue>>),
    Known(Option<AsciiMetadataValue>),
}

/// Whether a call whose outcome is unknown may be carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Yes,
    No,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(endpoints: Endpoints, limits: Limits, login: Option<Login>) -> Self {
        Self {
            endpoints,
            limits,
            login,
            token: Mutex::new(Token::None),
            trouble: Mutex::default(),
            answer_time: AtomicU64::new(0),
        }
    }

    /// Makes one call within the limit of a call.
    pub(super) async fn call<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        self: &Arc<Self>,
        path: &'static str,
        request: Q,
        repeat: Repeat,
    ) -> Result<A, Failure> {
        self.call_until(Timestamp::now() + self.limits.call, path, request, repeat).await
    }

    /// Makes one call. Members that provably have not carried it out are asked again or replaced by others, until the
    /// time `by`.
    pub(super) async fn call_until<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        self: &Arc<Self>,
        by: Timestamp,
        path: &'static str,
        request: Q,
        repeat: Repeat,
    ) -> Result<A, Failure> {
        let (mut tries, mut has_new_token) = (Tries::default(), false);
        loop {
            let member = self.endpoints.current();
            let token = self.token().await.map_err(Failure::before)?;
            let limit = self.limits.member.min(by.since(Timestamp::now()));
            let sent = Timestamp::now();
            let failure = match self.ask(member, path, request.clone(), token.as_ref(), limit).await {
                Ok(answer) => {
                    self.note_answer_time(Timestamp::now().since(sent));
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            match failure.meaning {
                Meaning::TokenRefused if self.login.is_some() && !has_new_token => {
                    has_new_token = true;
                    self.forget(token.as_ref());
                    continue;
                }
                Meaning::Unreachable | Meaning::Elsewhere => self.endpoints.leave(member),
                Meaning::Unknown => {
                    self.endpoints.leave(member);
                    if repeat == Repeat::No {
                        return Err(failure);
                    }
                }
                _ => return Err(failure),
            }
            *lock(&self.trouble) = Some(failure.clone());
            if !tries.pause(self.endpoints.len(), by).await {
                return Err(failure);
            }
        }
    }

    /// Returns the smoothed time to an answer.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.answer_time.load(Ordering::Relaxed))
    }

    fn note_answer_time(&self, took: Duration) {
        let (took, before) = (took.as_micros(), self.answer_time.load(Ordering::Relaxed));
        let smoothed = u64::try_from((7 * u128::from(before) + took) / 8).unwrap_or(u64::MAX);
        self.answer_time.store(smoothed, Ordering::Relaxed);
    }

    /// Returns the last failure of a call that was made again.
    pub(super) fn trouble(&self) -> Option<Failure> {
        lock(&self.trouble).clone()
    }

    /// Asks one member.
    async fn ask<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        member: &Arc<Member>,
        path: &'static str,
        request: Q,
        token: Option<&AsciiMetadataValue>,
        limit: Duration,
    ) -> Result<A, Failure> {
        let (mut grpc, request) = (grpc(member), with_headers(request, token));
        let answering = async {
            grpc.ready()
                .await
                .map_err(|error| Failure::of(&tonic::Status::from_error(error.into()), &member.address))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| Failure::of(&status, &member.address))
        };
        within(member, limit, answering).await
    }

    /// Opens a stream of answers from one member.
    pub(super) async fn stream<Q: Message + 'static, A: Message + Default + 'static>(
        self: &Arc<Self>,
        member: &Arc<Member>,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Failure> {
        let token = self.token().await?;
        let (mut grpc, request) = (grpc(member), with_headers(requests, token.as_ref()));
        let answering = async {
            grpc.ready()
                .await
                .map_err(|error| Failure::of(&tonic::Status::from_error(error.into()), &member.address))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answers = grpc.streaming(request, PathAndQuery::from_static(path), codec).await;
            answers.map(tonic::Response::into_inner).map_err(|status| Failure::of(&status, &member.address))
        };
        within(member, self.limits.member, answering).await
    }

    /// Waits for the next message of a stream as long as for an answer. `None` at its end.
    pub(super) async fn next<A>(
        &self,
        member: &Arc<Member>,
        answers: &mut Streaming<A>,
    ) -> Result<Option<A>, Failure> {
        let next = async { answers.message().await.map_err(|status| Failure::of(&status, &member.address)) };
        within(member, self.limits.member, next).await
    }

    /// Returns the token of user and password, if they are set and in use.
    async fn token(self: &Arc<Self>) -> Result<Option<AsciiMetadataValue>, Failure> {
        let Some(login) = &self.login else { return Ok(None) };
        let asked = {
            let mut token = lock(&self.token);
            match &*token {
                Token::Known(token) => return Ok(token.clone()),
                Token::Asked(asked) => asked.clone(),
                Token::None => {
                    let asked = authenticate(Arc::clone(self), login.clone()).boxed().shared();
                    background::spawn(asked.clone().map(drop));
                    *token = Token::Asked(asked.clone());
                    asked
                }
            }
        };
        asked.await
    }

    /// Forgets a token that was refused, unless there is another one by now.
    fn forget(&self, refused: Option<&AsciiMetadataValue>) {
        let mut token = lock(&self.token);
        if matches!(&*token, Token::Known(known) if known.as_ref() == refused) {
            *token = Token::None;
        }
    }
}

/// Exchanges user and password for a token.
async fn authenticate(client: Arc<Client>, login: Login) -> Result<Option<AsciiMetadataValue>, Failure> {
    let request = Authenticate { name: login.user, password: login.password };
    let (mut tries, by) = (Tries::default(), Timestamp::now() + client.limits.call);
    let result = loop {
        let member = client.endpoints.current();
        let limit = client.limits.member.min(by.since(Timestamp::now()));
        let answer =
            client.ask(member, "/etcdserverpb.Auth/Authenticate", request.clone(), None, limit).await;
        match answer {
            Err(failure)
                if matches!(
                    failure.meaning,
                    Meaning::Unreachable | Meaning::Elsewhere | Meaning::Unknown
                ) =>
            {
                client.endpoints.leave(member);
                *lock(&client.trouble) = Some(failure.clone());
                if !tries.pause(client.endpoints.len(), by).await {
                    break Err(failure);
                }
            }
            // Authentication is not enabled: no token is needed.
            Err(failure) if failure.meaning == Meaning::NoAuth => break Ok(None),
            Err(failure) => break Err(failure),
            Ok(AuthenticateAnswer { token }) => break read_token(&token),
        }
    };
    let token = result.as_ref().map_or(Token::None, |token| Token::Known(token.clone()));
    *lock(&client.token) = token;
    result
}

fn read_token(token: &str) -> Result<Option<AsciiMetadataValue>, Failure> {
    let value = AsciiMetadataValue::try_from(token).map(|mut value| {
        value.set_sensitive(true);
        Some(value)
    });
    value.map_err(|_| Failure {
        meaning: Meaning::Refused,
        error: Error::new(ErrorKind::Unavailable, "etcd has sent a token that is no text"),
    })
}

/// Waits for a member up to a limit, and records whether it has answered.
async fn within<T>(
    member: &Arc<Member>,
    limit: Duration,
    answering: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let answers = member.answers();
    let result = tokio::select! {
        biased;
        result = answering => result,
        () = background::sleep(limit) => {
            if member.answers() == answers {
                member.reconnect();
            }
            return Err(Failure::silence(&member.address));
        }
    };
    if result.is_ok() {
        member.has_answered();
    }
    result
}

fn grpc(member: &Member) -> Grpc<Channel> {
    // A page of a list has many values.
    Grpc::new(member.channel()).max_decoding_message_size(usize::MAX)
}

fn with_headers<T>(message: T, token: Option<&AsciiMetadataValue>) -> Request<T> {
    let mut headers = MetadataMap::new();
    // A member that has lost the others refuses at once.
    headers.insert("hasleader", AsciiMetadataValue::from_static("true"));
    if let Some(token) = token {
        headers.insert("token", token.clone());
    }
    Request::from_parts(headers, tonic::Extensions::default(), message)
}

/// The tries of one call.
#[derive(Default)]
struct Tries {
    count: usize,
    backoff: Backoff,
}

impl Tries {
    /// Waits after each member was asked once more. Returns `false` if there is no time left.
    async fn pause(&mut self, members: usize, by: Timestamp) -> bool {
        self.count += 1;
        if self.count.is_multiple_of(members) {
            let (now, pause) = (Timestamp::now(), self.backoff.next_delay());
            if now + pause >= by {
                return false;
            }
            background::sleep_from(now, now + pause).await;
        }
        Timestamp::now() < by
    }
}
