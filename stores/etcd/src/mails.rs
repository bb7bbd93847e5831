//! Messages on their way into transactions.

use locker_cas::{Inbox, Message};
use prost::bytes::Bytes;
use std::collections::BTreeMap;

/// Messages by receiver. A transaction can put the mail of one receiver only once.
#[derive(Debug)]
pub(super) struct Mails {
    texts: BTreeMap<Inbox, Vec<String>>,
    /// The bytes that each receiver adds to a request.
    overhead: usize,
}

impl Mails {
    pub(super) fn new(messages: Vec<Message>, overhead: usize) -> Self {
        let mut texts = BTreeMap::<_, Vec<_>>::new();
        for Message { to, text } in messages {
            texts.entry(to).or_default().push(text);
        }
        Self { texts, overhead }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Takes out what fits beside a value into one transaction.
    pub(super) fn beside(&mut self, bytes: usize) -> Vec<(Inbox, Bytes)> {
        self.batch(MAX_OPS - 1, MAX_REQUEST.saturating_sub(bytes), false)
    }

    /// Takes out what fits into one transaction: at least one message.
    pub(super) fn next(&mut self) -> Vec<(Inbox, Bytes)> {
        self.batch(MAX_OPS, MAX_REQUEST, true)
    }

    fn batch(&mut self, ops: usize, mut bytes: usize, mut even_too_large: bool) -> Vec<(Inbox, Bytes)> {
        let mut batch = Vec::new();
        while batch.len() < ops {
            let Some(mut entry) = self.texts.first_entry() else { break };
            let (mut used, mut count) = (self.overhead, 0);
            for text in entry.get() {
                if used + text.len() >= bytes && !even_too_large {
                    break;
                }
                even_too_large = false;
                used += text.len() + 1;
                count += 1;
            }
            if count == 0 {
                break;
            }
            bytes = bytes.saturating_sub(used);
            let texts: Vec<_> = entry.get_mut().drain(..count).collect();
            batch.push((*entry.key(), Bytes::from(texts.join(SEPARATOR))));
            if !entry.get().is_empty() {
                break;
            }
            entry.remove();
        }
        batch
    }
}

/// Returns the messages in a mail.
pub(super) fn texts(mail: &[u8]) -> impl Iterator<Item = &str> {
    str::from_utf8(mail).into_iter().flat_map(|mail| mail.split(SEPARATOR))
}

/// Between two messages, which have no control characters but line feeds.
const SEPARATOR: &str = "\0";

/// The operations of one transaction (`--max-txn-ops` is 128), less one for what is inside of an operation.
const MAX_OPS: usize = 127;

/// The bytes of one request (`--max-request-bytes` is 1.5 MiB), less some for what surrounds the texts.
const MAX_REQUEST: usize = 1_400 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(to: Inbox, len: usize) -> Message {
        Message { to, text: "x".repeat(len) }
    }

    #[test]
    fn each_receiver_gets_its_messages_in_order() {
        let text = |to, text: &str| Message { to, text: text.into() };
        let mut mails = Mails::new(vec![text(2, "a\nb"), text(1, "c"), text(2, "d")], 100);
        let batch = mails.beside(1 << 20);
        assert!(mails.is_empty());
        let read: Vec<_> = batch.iter().map(|(to, mail)| (*to, texts(mail).collect::<Vec<_>>())).collect();
        assert_eq!(read, [(1, vec!["c"]), (2, vec!["a\nb", "d"])]);
    }

    #[test]
    fn batches_stay_within_the_limits_of_a_transaction() {
        let mut mails = Mails::new((0..300).map(|to| message(to, 10)).collect(), 100);
        assert_eq!([mails.beside(1 << 20).len(), mails.next().len(), mails.next().len()], [126, 127, 47]);
        assert!(mails.is_empty());

        let mut mails = Mails::new((0..8).map(|to| message(to / 4, 400 << 10)).collect(), 100);
        assert!(mails.beside(1 << 20).is_empty(), "no room beside the value");
        let mut seen = Vec::new();
        while !mails.is_empty() {
            let batch = mails.next();
            assert!(!batch.is_empty());
            let bytes = batch.iter().map(|(_, mail)| mail.len() + 100).sum::<usize>();
            assert!(bytes <= MAX_REQUEST, "{bytes}");
            seen.extend(batch.iter().map(|(to, mail)| (*to, texts(mail).count())));
        }
        assert_eq!(seen, [(0, 3), (0, 1), (1, 2), (1, 2)]);
    }

    #[test]
    fn message_that_is_too_large_is_taken_alone() {
        let mut mails = Mails::new(vec![message(1, 2 << 20), message(2, 1)], 100);
        assert_eq!(mails.next().len(), 1);
        assert_eq!(mails.next().len(), 1);
        assert!(mails.is_empty());
    }
}
