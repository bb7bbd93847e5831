//! Notifications as texts, for the waiters of other processes.

use super::backend::{Inbox, Message};
use locker_core::{
    id::Id,
    key::Key,
    primitives::{HoldRequest, Notification, Request, Signal, record},
};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// What can be held at a key, and so be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Lock,
    Permits,
    /// The run of this attempt at a record. Its waiters are handed nothing.
    Run(Id),
    Nothing,
}

impl Holds {
    /// Returns the request that ends what the attempt `id` was granted with `fence`.
    pub(super) fn take_back(self, id: Id, fence: u64) -> Option<Request> {
        match self {
            Self::Lock => Some(Request::Lock(HoldRequest::Evict { of: Some(id), up_to: fence })),
            Self::Permits => Some(Request::Semaphore(HoldRequest::Evict { of: Some(id), up_to: fence })),
            Self::Run(_) | Self::Nothing => None,
        }
    }

    /// Returns the request that ends all holds.
    pub(super) fn evict_all(self) -> Option<Request> {
        let (of, up_to) = (None, u64::MAX);
        match self {
            Self::Lock => Some(Request::Lock(HoldRequest::Evict { of, up_to })),
            Self::Permits => Some(Request::Semaphore(HoldRequest::Evict { of, up_to })),
            // An eviction would leave its outcome unknown, but it has not begun.
            Self::Run(id) => {
                Some(Request::Record(record::Request::Hold(HoldRequest::Cancel { id, tombstone: false })))
            }
            Self::Nothing => None,
        }
    }

    /// Returns the request that removes the waiter `id`.
    pub(super) fn cancel(self, id: Id) -> Option<Request> {
        match self {
            Self::Lock => Some(Request::Lock(HoldRequest::Cancel { id, tombstone: false })),
            Self::Permits => Some(Request::Semaphore(HoldRequest::Cancel { id, tombstone: false })),
            Self::Run(_) | Self::Nothing => None,
        }
    }
}

/// Returns one message for each process: a line with the key, and a line `<signal> <id> <number>` for each
/// notification.
pub(super) fn write<'a>(key: &Key, notifications: impl Iterator<Item = &'a Notification>) -> Vec<Message> {
    let mut texts = BTreeMap::<Inbox, String>::new();
    for Notification { id, signal, .. } in notifications {
        let text = texts.entry(id.inbox()).or_insert_with(|| escaped(key.as_str()));
        let (signal, number) = match signal {
            Signal::Granted { fence } | Signal::HandedOff { fence, .. } => ("granted", *fence),
            Signal::Wake => ("wake", 0),
            Signal::Recheck { within } => ("recheck", u64::try_from(within.as_micros()).unwrap_or(u64::MAX)),
            Signal::Deleted => ("deleted", 0),
        };
        write!(text, "\n{signal} {id} {number}").expect("a string takes any text");
    }
    texts.into_iter().map(|(to, text)| Message { to, text }).collect()
}

/// Reads what [`write`] has written. Lines that a later version may add are passed over.
pub(super) fn read(text: &str) -> Option<Vec<Notification>> {
    let mut lines = text.split('\n');
    let key = Key::new(&unescaped(lines.next()?)?);
    let notification = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (signal, id, number) = (words.next()?, Id::parse(words.next()?)?, words.next()?.parse().ok()?);
        let signal = match signal {
            "granted" => Signal::Granted { fence: number },
            "wake" => Signal::Wake,
            "recheck" => Signal::Recheck { within: Duration::from_micros(number) },
            "deleted" => Signal::Deleted,
            _ => return None,
        };
        Some(Notification { key: key.clone(), id, signal })
    };
    Some(lines.filter_map(notification).collect())
}

fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for letter in key.chars() {
        if letter.is_control() || letter == '%' {
            write!(text, "%{:02X}", u32::from(letter)).expect("a string takes any text");
        } else {
            text.push(letter);
        }
    }
    text
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut key = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        key.push(u8::from_str_radix(code, 16).ok()?.into());
        key.push_str(rest);
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_core::clock::Timestamp;

    #[test]
    fn each_process_gets_its_notifications() {
        let (one, other) = (Id::random_in(1), Id::random_in(2));
        for key in ["a", "lock:a b", "100%\n\u{85}\r\u{1}", ""] {
            let key = Key::new(key);
            let notify = |id, signal| Notification { key: key.clone(), id, signal };
            let sent = [
                notify(one, Signal::Granted { fence: 7 }),
                notify(other, Signal::Wake),
                notify(one, Signal::Recheck { within: Duration::from_millis(3) }),
                notify(one, Signal::Deleted),
            ];
            let messages = write(&key, sent.iter());
            assert_eq!(messages.iter().map(|message| message.to).collect::<Vec<_>>(), [1, 2]);
            let [own, others] = &messages[..] else { panic!("{messages:?}") };
            let expected = [&sent[0], &sent[2], &sent[3]].map(Clone::clone).to_vec();
            assert_eq!(read(&own.text), Some(expected));
            assert_eq!(read(&others.text), Some(vec![sent[1].clone()]));
            assert!(own.text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{own:?}");
        }
    }

    #[test]
    fn hand_off_is_a_grant_elsewhere() {
        let (key, id) = (Key::new("a"), Id::random_in(1));
        let signal = Signal::HandedOff { fence: 9, until: Timestamp::NEVER };
        let messages = write(&key, [Notification { key: key.clone(), id, signal }].iter());
        assert_eq!(read(&messages[0].text).unwrap()[0].signal, Signal::Granted { fence: 9 });
    }

    #[test]
    fn foreign_texts_are_ignored() {
        for text in ["%", "lock%zz", "lock%F"] {
            assert_eq!(read(text), None, "{text}");
        }
        for line in ["granted", "granted x 1", "rain 00000000000000000000000000000001 1", "wake 1"] {
            assert_eq!(read(&format!("lock:a\n{line}")), Some(Vec::new()), "{line}");
        }
    }
    #[test]
    fn only_holds_are_ended_and_cancelled() {
        let id = Id::random();
        let (some, all) = ((Some(id), 7), (None, u64::MAX));
        let lock = |(of, up_to)| Some(Request::Lock(HoldRequest::Evict { of, up_to }));
        let permits = |(of, up_to)| Some(Request::Semaphore(HoldRequest::Evict { of, up_to }));
        assert_eq!([Holds::Lock.take_back(id, 7), Holds::Lock.evict_all()], [lock(some), lock(all)]);
        assert_eq!(
            [Holds::Permits.take_back(id, 7), Holds::Permits.evict_all()],
            [permits(some), permits(all)]
        );
        let tombstone = false;
        let cancel = Some(Request::Lock(HoldRequest::Cancel { id, tombstone }));
        assert_eq!(Holds::Lock.cancel(id), cancel);
        let cancel = Some(Request::Semaphore(HoldRequest::Cancel { id, tombstone }));
        assert_eq!(Holds::Permits.cancel(id), cancel);
        let nothing = Holds::Nothing;
        assert_eq!((nothing.take_back(id, 7), nothing.evict_all(), nothing.cancel(id)), (None, None, None));
    }
}
