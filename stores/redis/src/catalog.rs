//! The keys in use, and the texts about their users.

use super::{
    codec::primitives,
    connection::{Connection, ConnectionHandle},
    errors,
    router::Router,
    script::milliseconds,
    session::Session,
};
use futures_util::future::try_join_all;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::Result,
    key::{Key, Named},
    store::{Description, FirstKeys, KeyPage},
};
use redis::{Cmd, FromRedisValue, RedisResult, Value};
use std::{sync::Arc, time::Duration};

/// How many keys one command is about.
const AT_ONCE: usize = 512;

/// How many times a pass over the keys of one server begins anew.
const MAX_RESTARTS: usize = 16;

/// How long a command without a reply is repeated.
const RETRY_WINDOW: Duration = Duration::from_secs(5);

/// Returns a page of keys in use. Every page passes over all keys of the database: the server has no order of keys, and
/// a position in its own order (a cursor) has no exact size.
pub(super) async fn page(
    session: &Session,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<KeyPage> {
    let KeyPage { keys, next } = scan_all(session, prefix, FirstKeys::new(after, limit)).await?;
    let mut in_use = Vec::with_capacity(keys.len());
    for keys in keys.chunks(AT_ONCE) {
        let looks = looks(session, keys).await?;
        in_use.extend(keys.iter().zip(looks).filter(|(_, look)| *look == b'1').map(|(key, _)| key.clone()));
    }
    Ok(KeyPage { keys: in_use, next })
}

/// Passes over the keys of all servers.
async fn scan_all(session: &Session, prefix: &str, mut first: FirstKeys<'_>) -> Result<KeyPage> {
    let before = version(session).await;
    let mut scanned = scan_each(session, prefix, &mut first).await;
    let after = version(session).await;
    if after != before || after.is_some_and(|(_, is_moving)| is_moving) {
        // A key may have moved from a server that was to come to one that was passed over, and a master that gave no
        // reply may have a successor. Each happens once.
        scanned = scan_each(session, prefix, &mut first).await;
    }
    scanned.map(|()| first.page())
}

async fn scan_each(session: &Session, prefix: &str, first: &mut FirstKeys<'_>) -> Result<()> {
    let links = session.router.links();
    if links.is_empty() {
        return Err(session.router.outage(prefix).unwrap_or_else(|| errors::lost("no server is known")));
    }
    for link in links {
        scan(session, &link, prefix, first).await?;
    }
    Ok(())
}

/// Returns the version of the slots of a cluster, and whether some are moving.
async fn version(session: &Session) -> Option<(u64, bool)> {
    let Router::Cluster(cluster) = &session.router else { return None };
    cluster.ask_all().await;
    Some(cluster.version())
}

/// Keys of other programs and helper keys are passed over.
async fn scan(
    session: &Session,
    link: &ConnectionHandle,
    prefix: &str,
    first: &mut FirstKeys<'_>,
) -> Result<()> {
    let pattern: String = prefix.chars().flat_map(escaped).chain(['*']).collect();
    let (mut cursor, mut connection, mut restarts) = (0_u64, link.up(), 0);
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
        let (next, found): (u64, Vec<Vec<u8>>) = read(ask(session, At::Link(link), command).await?)?;
        // The keys of this crate are texts.
        for text in found.iter().filter_map(|key| std::str::from_utf8(key).ok()) {
            if text.contains(['{', '}']) {
                continue;
            }
            let key = Key::new(text);
            if Named::of(prefix, &key).is_some() && first.takes(text) {
                first.add(key);
            }
        }
        cursor = next;
        let present = link.up();
        if !is_same(connection.as_ref(), present.as_ref()) {
            // A cursor means nothing to a server that was restarted, or to another one.
            (cursor, connection, restarts) = (0, present, restarts + 1);
            if restarts > MAX_RESTARTS {
                return Err(errors::lost("the connection broke again and again"));
            }
        } else if cursor == 0 {
            return Ok(());
        }
    }
}

fn is_same(one: Option<&Arc<Connection>>, other: Option<&Arc<Connection>>) -> bool {
    one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
}

/// Returns `1` for each key that is in use.
async fn looks(session: &Session, keys: &[Key]) -> Result<Vec<u8>> {
    let groups = session.router.groups(keys);
    let found = try_join_all(groups.iter().map(async |places| {
        let keys: Vec<_> = places.iter().map(|place| keys[*place].clone()).collect();
        looks_together(session, &keys).await
    }));
    let mut looks = vec![0; keys.len()];
    for (places, found) in groups.iter().zip(found.await?) {
        places.iter().zip(found.bytes()).for_each(|(place, look)| looks[*place] = look);
    }
    Ok(looks)
}

/// Looks at keys that one command may be about.
async fn looks_together(session: &Session, keys: &[Key]) -> Result<String> {
    let Some(at) = keys.first().map(|key| At::Key(key.as_str())) else { return Ok(String::new()) };
    match ask(session, at, primitives::in_use(keys, false)).await? {
        Err(error) if errors::is_unknown_script(&error) => {
            read(ask(session, at, primitives::in_use(keys, true)).await?)
        }
        looks => read(looks),
    }
}

/// Keeps texts, each in a key of its own: the text of a process that is gone ends by itself.
pub(super) async fn describe(session: &Session, prefix: &str, descriptions: &[Description]) -> Result<()> {
    for descriptions in descriptions.chunks(AT_ONCE) {
        let set = |Description { subject, text, keep }: &Description| {
            let mut command = redis::cmd("SET");
            command.arg(key_of(prefix, subject)).arg(text).arg("PX").arg(milliseconds(*keep));
            call::<Value>(session, prefix, command)
        };
        try_join_all(descriptions.iter().map(set)).await?;
    }
    Ok(())
}

/// Returns the texts that are known. One that another program has written and that is not UTF-8 is not known.
pub(super) async fn descriptions(
    session: &Session,
    prefix: &str,
    subjects: &[String],
) -> Result<Vec<Option<String>>> {
    let mut texts = Vec::with_capacity(subjects.len());
    for subjects in subjects.chunks(AT_ONCE) {
        let mut command = redis::cmd("MGET");
        for subject in subjects {
            command.arg(key_of(prefix, subject));
        }
        let replies = call::<Vec<Option<Vec<u8>>>>(session, prefix, command).await?;
        texts.extend(replies.into_iter().map(|text| String::from_utf8(text?).ok()));
    }
    Ok(texts)
}

/// The key of a text. It has braces, as helper keys have, so that it is no key of a name. In a cluster the keys of all
/// texts with a prefix are on one node.
fn key_of(prefix: &str, subject: &str) -> String {
    format!("{{{prefix}locker}}:{subject}")
}

/// Where a command is sent.
#[derive(Clone, Copy)]
enum At<'a> {
    /// To the server that has this key.
    Key(&'a str),
    Link(&'a ConnectionHandle),
}

impl At<'_> {
    /// Returns whether the servers still have it: another one may have become the master.
    fn is_known(self, router: &Router) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Link(link) => router.links().iter().any(|other| other.is_same(link)),
        }
    }
}

/// Sends a command about texts.
async fn call<T: FromRedisValue>(session: &Session, prefix: &str, command: Cmd) -> Result<T> {
    read(ask(session, At::Key(&key_of(prefix, "")), command).await?)
}

/// Sends a command, again if there is no reply, or a refusal that is over soon: all commands of this file may be
/// repeated.
async fn ask(session: &Session, at: At<'_>, command: Cmd) -> Result<RedisResult<Value>> {
    let (mut backoff, give_up) = (Backoff::default(), Timestamp::now() + RETRY_WINDOW);
    loop {
        let reply = ask_once(session, at, command.clone()).await;
        let error = match &reply {
            Ok(Ok(_)) => return reply,
            Ok(Err(refusal)) if errors::is_unknown_script(refusal) => return reply,
            Ok(Err(refusal)) => errors::of_call(refusal),
            Err(error) => error.clone(),
        };
        let delay = backoff.next_delay();
        if !error.is_temporary() || !at.is_known(&session.router) || Timestamp::now() + delay >= give_up {
            return Err(error);
        }
        background::sleep(delay).await;
    }
}

async fn ask_once(session: &Session, at: At<'_>, command: Cmd) -> Result<RedisResult<Value>> {
    let timeout = session.command_timeout;
    match at {
        At::Key(key) => session.router.command(key, &command, Timestamp::now() + timeout * 2).await,
        At::Link(link) => {
            let connection = link.main(timeout).await?;
            connection.call(command, Timestamp::now() + timeout).await
        }
    }
}

fn read<T: FromRedisValue>(reply: RedisResult<Value>) -> Result<T> {
    let reply = reply.map_err(|error| errors::of_call(&error))?;
    redis::from_redis_value(reply).map_err(|error| errors::unexpected_reply(&error.to_string()))
}

/// Escapes characters that have a meaning in patterns.
fn escaped(letter: char) -> impl Iterator<Item = char> {
    ['\\'].into_iter().filter(move |_| "\\*?[]".contains(letter)).chain([letter])
}
