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
    Result, background,
    clock::Timestamp,
    id::Id,
    key::Key,
    lease::Keeper,
    primitives::{Holding, Kind, Push, Reply, Signal, lock::Request},
};
use futures_util::FutureExt;
use std::{pin::pin, sync::Arc, time::Duration};
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
        // What hands the lock on within this process counts on the order of one connection.
        let connection = match request {
            Holding::Acquire { .. } if self.lines.is_quiet(key) => self.link.near(limit).await?,
            _ => self.link.up(limit).await?,
        };
        let call = Call { store: self, key, connection: &connection, limit };
        match *request {
            Holding::Acquire { id, lease, .. } => {
                let sent = Timestamp::now();
                let invocation = lock::invocation(key, request, &self.channel);
                let invocation = Arc::new(invocation.together_if(self.lines.is_quiet(key)));
                let answer = call.invoke(&invocation).await?;
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
                    Reply::Queued { .. } => {
                        if let Some(before) = Id::parse(answer.text()) {
                            self.lines.queued(key, id, before, lease);
                        }
                    }
                    _ => {}
                }
                Ok(reply)
            }
            Holding::Release { id, tombstone: false, .. } => {
                call.tell_what_got_lost(id).await?;
                call.release(id).await
            }
            Holding::Release { id, .. } | Holding::Cancel { id, .. } => {
                call.tell_what_got_lost(id).await?;
                self.lines.over(key, id);
                call.about(id, request).await
            }
            Holding::Renew { id, lease, .. } => {
                call.tell_what_got_lost(id).await?;
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
            Holding::Evict { of: Some(id), .. } => {
                call.tell_what_got_lost(id).await?;
                let reply = call.about(id, request).await?;
                if reply == Reply::Released {
                    self.lines.over(key, id);
                }
                Ok(reply)
            }
            // Whom it is about may be here, and was to choose its heir.
            Holding::Evict { of: None, .. } => {
                self.lines.lost(key);
                lock::reply(&call.invoke(&call.invocation(request)).await?, request)
            }
        }
    }
}

impl Call<'_> {
    /// Ends a hold. Who comes next is told at once where that is known and it waits in this process.
    async fn release(self, id: Id) -> Result<Reply> {
        let Self { store, key, connection, limit } = self;
        match store.lines.release(key, id, connection.number, |id| self.waits(id)) {
            Release::Plain { tell, quiet } => {
                let tell = if store.mail.boxes.is_empty() { 0 } else { tell };
                let invocation = Arc::new(lock::release(key, id, tell).together_if(quiet));
                let near = if quiet { Some(store.link.near(limit).await?) } else { None };
                let call = Call { store, key, connection: near.as_deref().unwrap_or(connection), limit };
                let answer = call.say(id, &invocation).await?;
                store.lines.told(key, answer.text(), |id| self.waits(id));
                lock::released(&answer)
            }
            Release::Again(bequest) => self.settle(&bequest).await,
            Release::New(bequest, until) => self.hand_over(bequest, until).await,
        }
    }

    async fn hand_over(self, bequest: Bequest, until: Timestamp) -> Result<Reply> {
        let Self { store, key, connection, limit } = self;
        let (sent, invocation) = (Timestamp::now(), Arc::new(lock::bequeath(key, &bequest)));
        let mut doubt = Doubt::about(self, bequest.from);
        // Polled once, it is in the queue of the connection: what the heir sends comes after it.
        let mut call = pin!(unconstrained(store.invoke_known(connection, &invocation, limit)));
        let first = call.as_mut().now_or_never();
        let signal = Signal::Held { fence: bequest.fence, until };
        if let Err(push) = store.mail.boxes.deliver(Push { key: key.clone(), id: bequest.heir, signal }) {
            store.mail.hand_back(Kind::Lock, push);
        }
        let answer = match first {
            Some(answer) => answer,
            None => call.await,
        };
        match doubt.unless_told(answer)? {
            Some(answer) if lock::released(&answer)? == Reply::Released => {
                self.carried_out(&bequest, sent, &answer);
                Ok(Reply::Released)
            }
            // What led to this hold may not have reached the server, or this release.
            _ => self.settle(&bequest).await,
        }
    }

    /// How a release has ended that is told again as long as that is open.
    async fn settle(self, bequest: &Bequest) -> Result<Reply> {
        Box::pin(self.tell_again(bequest.heir)).await?;
        Ok(if bequest.was_carried_out() { Reply::Released } else { Reply::NotHeld })
    }

    /// Tells again what led to `id` holding, if some of it may not have reached the server.
    async fn tell_what_got_lost(self, id: Id) -> Result<()> {
        if self.store.lines.may_have_lost(self.key, id, self.connection.number) {
            Box::pin(self.tell_again(id)).await?;
        }
        Ok(())
    }

    /// Tells again what led to `id` holding and has had no answer: one after the other, and by one caller at a time.
    /// Of two copies of a release, the second is refused: whoever hears that first must not think that the first was.
    ///
    /// All of it within one limit, also the wait for the turn: behind callers who talk to a connection that is dead by
    /// now, a renewal would else come too late.
    async fn tell_again(self, id: Id) -> Result<()> {
        tokio::select! {
            biased;
            told = self.tell_in_turn(id) => told,
            () = background::sleep(self.limit) => Err(errors::lost("earlier releases were not told in time")),
        }
    }

    async fn tell_in_turn(self, id: Id) -> Result<()> {
        let Self { store: Redis { lines, mail, .. }, key, connection, limit } = self;
        let Some(turn) = lines.turn(key) else { return Ok(()) };
        let _turn = turn.lock().await;
        while let Some(bequest) = lines.first_unanswered(key, id) {
            let mut doubt = Doubt::about(self, bequest.from);
            let (sent, invocation) = (Timestamp::now(), Arc::new(lock::bequeath(key, &bequest)));
            let answer = connection.run_in_full(&invocation, limit).await.and_then(Answer::of_call);
            let answer = doubt.unless_told(answer)?;
            if lock::released(&answer)? == Reply::Released {
                self.carried_out(&bequest, sent, &answer);
            } else if lines.refused(key, bequest.from) {
                // Then the heir has nothing either.
                lines.lost(key);
                mail.boxes.take_back(bequest.heir);
                Keeper::renew_all();
            } else {
                // Only the server knows whether an earlier copy was carried out.
                mail.boxes.take_back(bequest.heir);
                Keeper::renew(bequest.heir);
            }
        }
        Ok(())
    }

    fn carried_out(self, bequest: &Bequest, sent: Timestamp, answer: &Answer) {
        let Self { store: Redis { lines, .. }, key, .. } = self;
        lines.carried_out(key, bequest.from, sent);
        lines.told(key, answer.text(), |id| self.waits(id));
    }

    /// A request as it is.
    async fn about(self, id: Id, request: &Request) -> Result<Reply> {
        lock::reply(&self.say(id, &self.invocation(request)).await?, request)
    }

    /// A call about a hold of `id`. As long as something that led to the hold has had no answer, being refused means
    /// nothing: also when it had none before, for others may have told it meanwhile.
    async fn say(self, id: Id, invocation: &Arc<Invocation>) -> Result<Answer> {
        let is_open = || self.store.lines.first_unanswered(self.key, id).is_some();
        let was_open = is_open();
        let answer = self.invoke(invocation).await?;
        if !lock::is_refusal(&answer) || !(was_open || is_open()) {
            return Ok(answer);
        }
        Box::pin(self.tell_again(id)).await?;
        self.invoke(invocation).await
    }

    fn invocation(self, request: &Request) -> Arc<Invocation> {
        Arc::new(lock::invocation(self.key, request, &self.store.channel))
    }

    async fn invoke(self, invocation: &Arc<Invocation>) -> Result<Answer> {
        self.store.invoke_over(self.connection, invocation, self.limit).await
    }

    fn waits(self, id: Id) -> bool {
        self.store.mail.boxes.is_open(id)
    }
}

/// A release with an heir that gets no answer, or that nobody waits for any more, may not have reached the server.
struct Doubt<'a> {
    call: Call<'a>,
    from: Id,
    doubtful: bool,
}

impl<'a> Doubt<'a> {
    fn about(call: Call<'a>, from: Id) -> Self {
        Self { call, from, doubtful: true }
    }

    fn unless_told<T>(&mut self, answer: Result<T>) -> Result<T> {
        self.doubtful = answer.as_ref().is_err_and(|error| !error.is_certain());
        answer
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.call.store.lines.not_answered(self.call.key, self.from, self.doubtful);
    }
}

#[cfg(test)]
mod tests;
