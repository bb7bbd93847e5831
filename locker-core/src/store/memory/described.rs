//! The texts about users of the embedded store.

use crate::{clock::Timestamp, store::Description};
use std::collections::HashMap;

/// The texts by prefix and subject.
#[derive(Debug, Default)]
pub(super) struct Described {
    texts: HashMap<(String, String), Text>,
    /// How many there may be before those that are over are removed.
    room: usize,
}

#[derive(Debug)]
struct Text {
    text: String,
    until: Timestamp,
}

impl Described {
    pub(super) fn keep(&mut self, prefix: &str, descriptions: &[Description], now: Timestamp) {
        for Description { subject, text, keep } in descriptions {
            let kept = Text { text: text.clone(), until: now + *keep };
            self.texts.insert((prefix.to_owned(), subject.clone()), kept);
        }
        if self.texts.len() > self.room {
            self.texts.retain(|_, text| text.until > now);
            self.room = 2 * self.texts.len();
        }
    }

    pub(super) fn texts(&self, prefix: &str, subjects: &[String], now: Timestamp) -> Vec<Option<String>> {
        let text = |subject: &String| {
            let kept = self.texts.get(&(prefix.to_owned(), subject.clone()));
            kept.filter(|text| text.until > now).map(|text| text.text.clone())
        };
        subjects.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn texts_end_and_do_not_pile_up() {
        let (mut described, mut now) = (Described::default(), Timestamp::from_micros(1));
        for number in 0..10_000 {
            let of = |subject: &str, keep: Duration| Description {
                subject: subject.to_owned(),
                text: number.to_string(),
                keep,
            };
            let (note, stays) = (format!("holder:{number}"), Duration::from_hours(24));
            described.keep("a", &[of(&note, Duration::from_mins(30)), of("stays", stays)], now);
            now = now + Duration::from_mins(10);
        }
        assert!(described.texts.len() < 100, "{}", described.texts.len());
        let subjects = ["stays".to_owned(), "holder:0".to_owned()];
        assert_eq!(described.texts("a", &subjects, now), [Some("9999".to_owned()), None]);
        assert_eq!(described.texts("b", &subjects, now), [None, None]);
        let later = now + Duration::from_hours(24);
        assert_eq!(described.texts("a", &subjects, later), [None, None]);
    }
}
