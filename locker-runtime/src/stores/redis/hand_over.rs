//! The calls of the exclusive lock, in the order that handing it on within this process needs.

use super::{
    Redis,
    connection::Connection,
    errors,
    line::{Bequest, Release},
    lock,
    script::{Answer, Invocation},
};
use crate::{
    Result,
    clock::Timestamp,
    id::Id,
    key::Key,
    lease::Keeper,
    primitives::{Holding, Kind, Push, Reply, Signal, lock::Request},
};
use futures_util::FutureExt;
use redis::{RedisResult, Value};
use std::{pin::pin, time::Duration};
use tokio::task::unconstrained;

/// One call about the lock at a key.
#[derive(Clone, Copy)]
struct Call<'a> {
    store: &'a Redis,
    key: &'a Key,
    connection: &'a Connection,
    limit: Duration,
}

impl Redis {
    pub(super) async fn lock(&self, key: &Key, request: &Request, limit: Duration) -> Result<Reply> {
        let connection = self.link.up(limit).await?;
        let call = Call { store: self, key, connection: &connection, limit };
        match *request {
            Holding::Acquire { id, lease, .. } => {
                let sent = Timestamp::now();
                let answer = self.invoke(lock::invocation(key, request, &self.channel), limit).await?;
                let reply = lock::reply(&answer, request)?;
                match reply {
                    Reply::Granted { fence } => {
                        self.lines.granted(key, id);
                        // One that was granted before lasts from then on.
                        if answer.is_told_twice() {
                            self.mail.is_told(id, fence);
                        } else {
                            self.lines.held(key, id, fence, (sent, lease), |id| call.waits(id));
                        }
                    }
                    Reply::Queued { .. } => match answer.text() {
                        "" => {}
                        before => self.lines.queued(key, id, Id::parse(before), lease),
                    },
                    _ => {}
                }
                Ok(reply)
            }
            Holding::Release { id, tombstone: false } => call.release(id).await,
            Holding::Release { id, .. } | Holding::Cancel { id, .. } => {
                call.tell_all_before(id).await?;
                self.lines.over(key, id);
                call.about(id, request).await
            }
            Holding::Renew { id, lease } => {
                call.tell_all_before(id).await?;
                let sent = Timestamp::now();
                let reply = call.about(id, request).await?;
                match reply {
                    Reply::Renewed { fence } => {
                        self.lines.held(key, id, fence, (sent, lease), |id| call.waits(id));
                    }
                    _ => self.lines.over(key, id),
                }
                Ok(reply)
            }
            // Whom it is about may be here, and was to choose its heir.
            Holding::Evict { .. } => {
                self.lines.lost(key);
                call.about(Id::from(0), request).await
            }
        }
    }
}

impl Call<'_> {
    /// Ends a hold. Who comes next is told at once where that is known and it waits in this process.
    async fn release(self, id: Id) -> Result<Reply> {
        self.tell_all_before(id).await?;
        let Self { store, key, connection, .. } = self;
        match store.lines.release(key, id, connection.number, |id| self.waits(id)) {
            Release::Plain(tell) => {
                let tell = if store.mail.boxes.is_empty() { 0 } else { tell };
                let answer = Answer::of_call(self.send(id, &lock::release(key, id, tell)).await?)?;
                store.lines.told(key, answer.text(), |id| self.waits(id));
                lock::released(&answer)
            }
            Release::Again(bequest) => self.tell_again(&bequest).await,
            Release::New(bequest, until) => self.hand_over(bequest, until).await,
        }
    }

    async fn hand_over(self, bequest: Bequest, until: Timestamp) -> Result<Reply> {
        let Self { store, key, .. } = self;
        let (sent, invocation) = (Timestamp::now(), lock::bequeath(key, &bequest));
        let _doubt = Doubt { call: self, from: bequest.from };
        // Polled once, it is in the queue of the connection: what the heir sends comes after it.
        let mut call = pin!(unconstrained(self.send(bequest.from, &invocation)));
        let first = call.as_mut().now_or_never();
        let signal = Signal::Held { fence: bequest.fence, until };
        if let Err(push) = store.mail.boxes.deliver(Push { key: key.clone(), id: bequest.heir, signal }) {
            store.mail.hand_back(Kind::Lock, push);
        }
        let answer = match first {
            Some(answer) => answer,
            None => call.await,
        };
        let reply = self.answered(&bequest, sent, answer)?;
        if reply == Reply::NotHeld {
            // Then the heir has nothing either.
            store.lines.lost(key);
            Keeper::renew_all();
        }
        Ok(reply)
    }

    /// Tells again what led to `id` holding and may have been lost on its way.
    async fn tell_all_before(self, id: Id) -> Result<()> {
        while let Some(bequest) = self.store.lines.untold(self.key, id, self.connection.number) {
            self.tell_again(&bequest).await?;
        }
        Ok(())
    }

    async fn tell_again(self, bequest: &Bequest) -> Result<Reply> {
        let _doubt = Doubt { call: self, from: bequest.from };
        let (sent, command) = (Timestamp::now(), lock::bequeath(self.key, bequest).in_full());
        self.answered(bequest, sent, self.connection.call(&command, self.limit).await)
    }

    /// What the answer to a release with an heir means.
    fn answered(
        self,
        bequest: &Bequest,
        sent: Timestamp,
        answer: Result<RedisResult<Value>>,
    ) -> Result<Reply> {
        let Self { store: Redis { lines, .. }, key, .. } = self;
        let answer = answer.and_then(Answer::of_call)?;
        let reply = lock::released(&answer);
        let held_since = matches!(reply, Ok(Reply::Released)).then_some(sent);
        let by_others = !lines.answered(key, bequest.from, held_since);
        match reply? {
            Reply::Released => {
                lines.told(key, answer.text(), |id| self.waits(id));
                Ok(Reply::Released)
            }
            _ if by_others => Ok(Reply::Released),
            reply => Ok(reply),
        }
    }

    /// A request as it is.
    async fn about(self, id: Id, request: &Request) -> Result<Reply> {
        let invocation = lock::invocation(self.key, request, &self.store.channel);
        lock::reply(&Answer::of_call(self.send(id, &invocation).await?)?, request)
    }

    /// A call that speaks of `id`. A server that does not know the script has not carried out what was sent before
    /// either.
    async fn send(self, id: Id, invocation: &Invocation) -> Result<RedisResult<Value>> {
        let Self { store, key, connection, limit } = self;
        let is_known = invocation.is_known();
        match connection.call(invocation.by_digest(), limit).await? {
            Err(error) if errors::is_unknown_script(&error) => {
                if is_known {
                    store.mail.ask_again();
                }
                store.lines.doubt_all(key);
                Box::pin(self.tell_all_before(id)).await?;
                connection.call(&invocation.in_full(), limit).await
            }
            answer => Ok(answer),
        }
    }

    fn waits(self, id: Id) -> bool {
        self.store.mail.boxes.is_open(id)
    }
}

/// A release with an heir that gets no answer, or that nobody waits for any more, may not have reached the server.
struct Doubt<'a> {
    call: Call<'a>,
    from: Id,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.call.store.lines.doubt(self.call.key, self.from);
    }
}
