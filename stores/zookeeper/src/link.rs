//! The requests of one connection.

use super::{
    connection::{Answer, Call},
    errors::{Failure, Meaning, OK},
    ops::{self, ALL_RIGHTS, Access, Done, Kind, Op},
    wire::{Body, Reader, Stat, texts},
};
use locker_core::error::ErrorKind;
use tokio::sync::{mpsc, oneshot};

/// One connection. Requests are carried out in the order in which they are made, and those that only read see all that
/// the server knew when it answered the ones before.
#[derive(Clone, Debug)]
pub(super) struct Link {
    calls: mpsc::UnboundedSender<Call>,
    access: Access,
}

impl Link {
    pub(super) fn new(access: Access) -> (Self, mpsc::UnboundedReceiver<Call>) {
        let (calls, receiver) = mpsc::unbounded_channel();
        (Self { calls, access }, receiver)
    }

    /// Returns whether nodes are made for one login.
    pub(super) fn has_login(&self) -> bool {
        self.access == Access::Login
    }

    /// Returns whether requests are still taken.
    pub(super) fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }

    /// Makes a request. It is on its way when this returns; the answer may be dropped.
    fn ask(&self, code: i32, body: Body) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.calls.send(Call { code, body, answer });
        async move {
            sent.map_err(|_| Failure::unsent("the connection to ZooKeeper has ended"))?;
            answered.await.unwrap_or_else(|_| Err(Failure::unknown("the connection to ZooKeeper has ended")))
        }
    }

    /// Makes a request about one node, and reads its answer.
    fn ask_about<T, R: FnOnce(&mut Reader<'_>) -> Option<T> + Send>(
        &self,
        code: i32,
        path: &str,
        body: Body,
        read: R,
    ) -> impl Future<Output = Result<T, Failure>> + Send + use<T, R> {
        let (asked, path) = (self.ask(code, body), path.to_owned());
        async move {
            let answer = asked.await?;
            if answer.code != OK {
                return Err(Failure::of_code(answer.code, &path));
            }
            read(&mut Reader(&answer.body)).ok_or_else(not_readable)
        }
    }

    /// Returns the data of a node, `None` if there is none.
    pub(super) fn get(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Stat)>, Failure>> + Send + use<> {
        let body = Body::default().text(path).flag(false);
        let got = self.ask_about(4, path, body, |reader| {
            let data = reader.bytes()?.to_vec();
            Some((data, Stat::read(reader)?))
        });
        async move { if_present(got.await) }
    }

    /// Returns what is known of a node, `None` if there is none.
    pub(super) fn exists(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Stat>, Failure>> + Send + use<> {
        let body = Body::default().text(path).flag(false);
        let got = self.ask_about(3, path, body, Stat::read);
        async move { if_present(got.await) }
    }

    /// Returns the names in a node.
    pub(super) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> + Send + use<> {
        self.ask_about(8, path, Body::default().text(path).flag(false), texts)
    }

    /// Returns whether every client of the ensemble has all rights to a node.
    pub(super) fn is_open_to_all(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<bool, Failure>> + Send + use<> {
        self.ask_about(6, path, Body::default().text(path), |reader| {
            let entries = 0..reader.int()?.max(0);
            let mut entry = || Some((reader.int()?, reader.text()?, reader.text()?));
            let all: Option<Vec<_>> = entries.map(|_| entry()).collect();
            Some(all?.contains(&(ALL_RIGHTS, "world", "anyone")))
        })
    }

    /// Has this session hear of all changes of a node and, if it is `deep`, of those in it. Otherwise it hears of their
    /// names only.
    pub(super) fn watch(
        &self,
        path: &str,
        deep: bool,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        self.ask_about(106, path, Body::default().text(path).int(deep.into()), |_| Some(()))
    }

    /// Carries out one operation. Returns what is known of the node if its data was set.
    pub(super) fn carry_out(
        &self,
        op: &Op,
    ) -> impl Future<Output = Result<Option<Stat>, Failure>> + Send + use<> {
        let (body, is_set) = (op.write(Body::default(), self.access), matches!(op, Op::Set(..)));
        self.ask_about(op.code(), op.path(), body, move |reader| {
            if is_set { Stat::read(reader).map(Some) } else { Some(None) }
        })
    }

    /// Creates a node, unless it exists.
    pub(super) fn ensure(
        &self,
        path: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let created = self.carry_out(&Op::create(path, data, Kind::Kept));
        async move {
            match created.await {
                Err(failure) if failure.meaning != Meaning::Exists => Err(failure),
                _ => Ok(()),
            }
        }
    }

    /// Carries out all operations, or none.
    pub(super) fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<Done, Failure>> + Send + use<> {
        const MULTI: i32 = 14;
        let asked = self.ask(MULTI, ops::request(&ops, self.access));
        async move {
            let answer = asked.await?;
            if answer.code != OK && answer.body.is_empty() {
                let path = ops.first().map_or("", Op::path);
                return Err(Failure::of_code(answer.code, path));
            }
            match ops::answer(&ops, &answer.body).ok_or_else(not_readable)? {
                Done::Nothing(_, failure) if failure.is_unserved() => Err(failure),
                done => Ok(done),
            }
        }
    }

    /// Ends the session, and so removes what is there with it.
    pub(super) fn close(&self) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        const CLOSE: i32 = -11;
        self.ask(CLOSE, Body::default())
    }
}

/// The answer has come: only it cannot be read.
fn not_readable() -> Failure {
    let failure = Failure::unknown("ZooKeeper has sent an answer of an unknown form");
    Failure {
        error: failure.error.with_source(Failure::refused(ErrorKind::Conflict, "unknown form").error),
        ..failure
    }
}

fn if_present<T>(got: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match got {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.meaning == Meaning::Absent => Ok(None),
        Err(failure) => Err(failure),
    }
}
