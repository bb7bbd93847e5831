//! The sessions of the page: each comes from a token, and lasts eight hours or until the server ends.

use super::tokens::Role;
use crate::sync::lock;
use hyper::{HeaderMap, header::COOKIE};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::Mutex,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// The most sessions of a role. A further one ends the oldest of its role: readers could log out operators otherwise.
const MOST: usize = 1_024;

/// How long a session lasts.
const LIFETIME: Duration = Duration::from_hours(8);

const COOKIE_NAME: &str = "locker_session";

/// The number of a session, for the log.
pub(super) type SessionNumber = NonZeroU64;

/// The current sessions, by the digests of their ids: comparing digests tells nothing about an id.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_digest: HashMap<[u8; 32], Session>,
    started: u64,
}

#[derive(Debug)]
struct Session {
    number: SessionNumber,
    role: Role,
    ends: Instant,
}

impl Sessions {
    /// Starts a session. Returns its number, and its id of 244 random bits.
    pub(super) fn start(&self, role: Role) -> (SessionNumber, String) {
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut known = lock(&self.0);
        let now = Instant::now();
        known.by_digest.retain(|_, session| session.ends > now);
        known.make_room(role);
        let number = SessionNumber::MIN.saturating_add(known.started);
        known.started += 1;
        known.by_digest.insert(digest(&id), Session { number, role, ends: now + LIFETIME });
        (number, id)
    }

    /// Returns the session whose cookie is among these headers.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<(SessionNumber, Role)> {
        let (known, now) = (lock(&self.0), Instant::now());
        let session = ids(headers).find_map(|id| known.by_digest.get(&digest(id)));
        session.filter(|session| session.ends > now).map(|session| (session.number, session.role))
    }

    /// Ends the session whose cookie is among these headers.
    pub(super) fn end(&self, headers: &HeaderMap) {
        let mut known = lock(&self.0);
        for id in ids(headers) {
            known.by_digest.remove(&digest(id));
        }
    }
}

impl Known {
    fn make_room(&mut self, role: Role) {
        let of_role = || self.by_digest.iter().filter(|(_, session)| session.role == role);
        if of_role().count() >= MOST
            && let Some(oldest) =
                of_role().min_by_key(|(_, session)| session.number).map(|(digest, _)| *digest)
        {
            self.by_digest.remove(&oldest);
        }
    }
}

/// Returns the cookie of a session. `secure` keeps it from connections without TLS.
pub(super) fn cookie(id: &str, secure: bool) -> String {
    with_age(id, LIFETIME, secure)
}

/// Returns the cookie that makes a browser forget its session.
pub(super) fn no_cookie(secure: bool) -> String {
    with_age("", Duration::ZERO, secure)
}

fn with_age(id: &str, age: Duration, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", age.as_secs())
}

fn ids(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
        let (name, id) = cookie.split_once('=')?;
        (name.trim() == COOKIE_NAME).then(|| id.trim())
    })
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn oldest_session_makes_room() {
        let sessions = Sessions::default();
        let (first, id) = sessions.start(Role::Full);
        let oldest = headers(&format!("other=1; {COOKIE_NAME}={id}"));
        assert_eq!(sessions.of(&oldest), Some((first, Role::Full)));
        let (second, id) = sessions.start(Role::Full);
        for _ in 2..MOST {
            sessions.start(Role::Full);
        }
        assert!(sessions.of(&oldest).is_some());
        sessions.start(Role::Full);
        assert_eq!(sessions.of(&oldest), None);
        let kept = headers(&format!("{COOKIE_NAME}={id}"));
        assert_eq!(sessions.of(&kept), Some((second, Role::Full)));
        sessions.end(&kept);
        assert_eq!(sessions.of(&kept), None);
    }

    /// A token that may only read could end the sessions of all operators.
    #[test]
    fn session_ends_none_of_another_role() {
        let sessions = Sessions::default();
        let [full, read] = [Role::Full, Role::Read].map(|role| {
            let id = sessions.start(role).1;
            headers(&format!("{COOKIE_NAME}={id}"))
        });
        for _ in 1..MOST {
            sessions.start(Role::Read);
        }
        assert!(sessions.of(&full).is_some() && sessions.of(&read).is_some());
        sessions.start(Role::Read);
        assert!(sessions.of(&full).is_some() && sessions.of(&read).is_none());
        for _ in 1..MOST {
            sessions.start(Role::Full);
        }
        assert!(sessions.of(&full).is_some());
        assert_eq!(lock(&sessions.0).by_digest.len(), 2 * MOST);
    }

    #[test]
    fn session_ends_after_eight_hours() {
        let sessions = Sessions::default();
        let (_, id) = sessions.start(Role::Full);
        let headers = headers(&format!("{COOKIE_NAME}={id}"));
        for session in lock(&sessions.0).by_digest.values_mut() {
            session.ends -= LIFETIME;
        }
        assert_eq!(sessions.of(&headers), None);
    }

    #[test]
    fn ids_are_long_and_differ() {
        let sessions = Sessions::default();
        let (first, second) = (sessions.start(Role::Full).1, sessions.start(Role::Full).1);
        assert!(first.len() == 64 && first != second);
        assert_eq!(sessions.of(&headers(&format!("{COOKIE_NAME}="))), None);
    }
}
