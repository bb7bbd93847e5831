//! Messages on their way into transactions.

use super::{
    keys::Keys,
    ops::{ANY, Kind, Op, data},
};
use locker_cas::{Inbox, Message};
use std::collections::BTreeMap;

/// Messages by receiver. Those to one receiver go into one node.
#[derive(Debug)]
pub(super) struct Mails {
    texts: BTreeMap<Inbox, Vec<String>>,
    /// The bytes that each receiver adds to a request.
    overhead: usize,
}

/// Messages of one transaction.
pub(super) type Batch = Vec<(Inbox, String)>;

impl Mails {
    /// Takes messages. One that is too large for any request is left out: messages are hints.
    pub(super) fn new(messages: Vec<Message>, keys: &Keys) -> Self {
        let overhead = 2 * keys.mail(0).len() + 200;
        let mut texts = BTreeMap::<_, Vec<_>>::new();
        for Message { to, text } in messages.into_iter().filter(|it| it.text.len() + overhead < MAX_REQUEST) {
            texts.entry(to).or_default().push(text);
        }
        Self { texts, overhead }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Takes out what fits beside other operations of so many bytes into one transaction.
    pub(super) fn beside(&mut self, bytes: usize) -> Batch {
        let (mut batch, mut left) = (Vec::new(), MAX_REQUEST.saturating_sub(bytes));
        while batch.len() < MAX_RECEIVERS {
            let Some(mut entry) = self.texts.first_entry() else { break };
            let (mut used, mut count) = (self.overhead, 0);
            for text in entry.get() {
                if used + text.len() > left {
                    break;
                }
                used += text.len() + 1;
                count += 1;
            }
            if count == 0 {
                break;
            }
            left = left.saturating_sub(used);
            let texts: Vec<_> = entry.get_mut().drain(..count).collect();
            batch.push((*entry.key(), texts.join(SEPARATOR)));
            if !entry.get().is_empty() {
                break;
            }
            entry.remove();
        }
        batch
    }
}

/// Returns the operations that put messages where a process listens: two for each.
pub(super) fn ops<'a>(batch: &'a Batch, keys: &'a Keys) -> impl Iterator<Item = Op> + 'a {
    batch.iter().flat_map(|(inbox, text)| {
        let check = Op::Check(keys.inbox(*inbox).into(), ANY);
        let path = format!("{}/m", keys.mail(*inbox)).into();
        [check, Op::Create(path, data(text.as_bytes()), Kind::Numbered)]
    })
}

/// Returns the messages in a mail.
pub(super) fn texts(mail: &[u8]) -> impl Iterator<Item = &str> {
    str::from_utf8(mail).into_iter().flat_map(|mail| mail.split(SEPARATOR))
}

/// Between two messages, which have no control characters but line feeds.
const SEPARATOR: &str = "\0";

/// The receivers of one transaction.
const MAX_RECEIVERS: usize = 500;

/// The bytes of one request, of which a server takes 1,048,575 (`jute.maxbuffer`): it ends the connection at a larger
/// one.
pub(super) const MAX_REQUEST: usize = 1_040_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(to: Inbox, len: usize) -> Message {
        Message { to, text: "x".repeat(len) }
    }

    fn mails(messages: Vec<Message>) -> Mails {
        Mails::new(messages, &Keys::new("/locker"))
    }

    #[test]
    fn each_receiver_gets_its_messages_in_order() {
        let text = |to, text: &str| Message { to, text: text.into() };
        let mut mails = mails(vec![text(2, "a\nb"), text(1, "c"), text(2, "d")]);
        let batch = mails.beside(0);
        assert!(mails.is_empty());
        let read: Vec<_> =
            batch.iter().map(|(to, mail)| (*to, texts(mail.as_bytes()).collect::<Vec<_>>())).collect();
        assert_eq!(read, [(1, vec!["c"]), (2, vec!["a\nb", "d"])]);
    }

    #[test]
    fn batches_stay_within_a_request() {
        let mut few = mails((0..1_200).map(|to| message(to, 10)).collect());
        assert_eq!([few.beside(0).len(), few.beside(0).len(), few.beside(0).len()], [500, 500, 200]);
        let mut large = mails((0..8).map(|to| message(to / 4, 400_000)).collect());
        assert!(large.beside(1_000_000).is_empty(), "no room beside the value");
        let keys = Keys::new("/locker");
        while !large.is_empty() {
            let batch = large.beside(0);
            let bytes = ops(&batch, &keys).map(|op| op.len()).sum::<usize>();
            assert!(!batch.is_empty() && bytes <= MAX_REQUEST, "{bytes}");
        }
        assert!(mails(vec![message(1, 2 << 20)]).is_empty());
    }
}
