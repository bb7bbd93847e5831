//! The embedded store, with failures that a test decides on.

use locker_core::{
    error::{Error, Result},
    key::Key,
    mailboxes::Mailboxes,
    primitives::{HoldRequest, Reply, Request},
    store::{Answering, Calling, Description, KeyPage, Store, memory::Memory},
    sync::{Mutex, lock},
};
use std::{fmt, future::pending, pin::Pin, sync::Arc, time::Duration};

/// What has to happen before a delayed operation goes on.
pub type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a [`ScriptedStore`] does with an operation that returns `T`.
#[expect(missing_debug_implementations, reason = "futures have none")]
pub enum Step<T = Reply> {
    /// Carries it out.
    CarryOut,
    /// Returns this and does not carry it out.
    Answer(Result<T>),
    /// Carries it out and returns this error.
    LoseAnswer(Error),
    /// Never returns and does not carry it out.
    Hang,
    /// Waits for the first future before it carries it out, and for the second before it returns.
    Delay(Wait, Wait),
}

impl<T> Step<T> {
    async fn run(self, carry_out: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        match self {
            Self::CarryOut => carry_out().await,
            Self::Answer(answer) => answer,
            Self::LoseAnswer(error) => {
                drop(carry_out().await);
                Err(error)
            }
            Self::Hang => pending().await,
            Self::Delay(before, after) => {
                before.await;
                let answer = carry_out().await;
                after.await;
                answer
            }
        }
    }
}

/// The embedded store, which asks a script what to do with each request and with each description. It records all
/// requests. Clones share everything.
#[derive(Clone)]
pub struct ScriptedStore(Arc<Scripted>);

type Script = Box<dyn FnMut(&Key, &Request) -> Step + Send>;

struct Scripted {
    memory: Memory,
    waiter_ttl: Option<Duration>,
    on_call: Mutex<Script>,
    on_describe: Mutex<Box<dyn FnMut() -> Step<()> + Send>>,
    no_texts: Mutex<Option<Error>>,
    requests: Mutex<Vec<(Key, Request)>>,
}

impl ScriptedStore {
    /// Returns a store that seems to be in this process, and carries everything out.
    #[must_use]
    pub fn local() -> Self {
        Self::new(None)
    }

    /// Returns a store that seems to be across a network, and carries everything out.
    #[must_use]
    pub fn remote() -> Self {
        Self::new(Some(Duration::from_secs(30)))
    }

    fn new(waiter_ttl: Option<Duration>) -> Self {
        Self(Arc::new(Scripted {
            memory: Memory::new(),
            waiter_ttl,
            on_call: Mutex::new(Box::new(|_, _| Step::CarryOut)),
            on_describe: Mutex::new(Box::new(|| Step::CarryOut)),
            no_texts: Mutex::default(),
            requests: Mutex::default(),
        }))
    }

    /// Asks `script` what to do with each request from now on.
    pub fn on_call(&self, mut script: impl FnMut(&Request) -> Step + Send + 'static) {
        self.on_call_at(move |_, request| script(request));
    }

    /// Asks `script` what to do with each request at a key from now on.
    pub fn on_call_at(&self, script: impl FnMut(&Key, &Request) -> Step + Send + 'static) {
        *lock(&self.0.on_call) = Box::new(script);
    }

    /// Asks `script` what to do with each description from now on.
    pub fn on_describe(&self, script: impl FnMut() -> Step<()> + Send + 'static) {
        *lock(&self.0.on_describe) = Box::new(script);
    }

    /// Returns `error` to each question for descriptions from now on.
    pub fn refuse_texts(&self, error: Error) {
        *lock(&self.0.no_texts) = Some(error);
    }

    /// Returns `error` to each of these requests from now on, and carries out the others.
    pub fn fail(&self, fails: impl Fn(&Request) -> bool + Send + 'static, error: Error) {
        self.on_call(
            move |request| if fails(request) { Step::Answer(Err(error.clone())) } else { Step::CarryOut },
        );
    }

    /// Carries out each request from now on.
    pub fn recover(&self) {
        self.on_call(|_| Step::CarryOut);
    }

    /// Returns the embedded store that carries out the requests.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Returns all requests in their order.
    #[must_use]
    pub fn requests(&self) -> Vec<(Key, Request)> {
        lock(&self.0.requests).clone()
    }

    /// Returns how many of these requests there were.
    pub fn count(&self, is_counted: impl Fn(&Request) -> bool) -> usize {
        lock(&self.0.requests).iter().filter(|(_, request)| is_counted(request)).count()
    }
}

/// Returns whether this releases a lock.
#[must_use]
pub fn is_release(request: &Request) -> bool {
    matches!(request, Request::Lock(HoldRequest::Release { .. }))
}

/// Returns whether this renews a lock.
#[must_use]
pub fn is_renewal(request: &Request) -> bool {
    matches!(request, Request::Lock(HoldRequest::Renew { .. }))
}

impl fmt::Debug for ScriptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedStore")
    }
}

impl Store for ScriptedStore {
    fn call<'a>(&'a self, key: &'a Key, request: &'a Request) -> Calling<'a> {
        lock(&self.0.requests).push((key.clone(), request.clone()));
        let step = lock(&self.0.on_call)(key, request);
        Calling::Pending(Box::pin(step.run(async || self.0.memory.call(key, request).await)))
    }

    fn page<'a>(&'a self, prefix: &'a str, after: Option<&'a str>, limit: usize) -> Answering<'a, KeyPage> {
        self.0.memory.page(prefix, after, limit)
    }

    fn describe<'a>(&'a self, prefix: &'a str, descriptions: &'a [Description]) -> Answering<'a, ()> {
        let step = lock(&self.0.on_describe)();
        Box::pin(step.run(async || self.0.memory.describe(prefix, descriptions).await))
    }

    fn descriptions<'a>(
        &'a self,
        prefix: &'a str,
        subjects: &'a [String],
    ) -> Answering<'a, Vec<Option<String>>> {
        match lock(&self.0.no_texts).clone() {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => self.0.memory.descriptions(prefix, subjects),
        }
    }

    fn mailboxes(&self) -> &Mailboxes {
        self.0.memory.mailboxes()
    }

    fn waiter_ttl(&self) -> Option<Duration> {
        self.0.waiter_ttl
    }

    fn fence_is_time(&self) -> bool {
        self.0.memory.fence_is_time()
    }
}
