//! The parameters of the call that says who holds a key.

use super::{answer::Answer, listing::each, params::once};

const NAMES: [&str; 2] = ["key", "id"];

/// Which key to explain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) key: Box<str>,
    pub(super) id: Option<Box<str>>,
}

impl Question {
    /// Parses a query and a form.
    ///
    /// # Errors
    /// 400 with the reason: an unknown parameter, one given twice, an empty value, or no key.
    pub(super) fn parse(query: &str, form: &str) -> Result<Self, Answer> {
        let (mut key, mut id) = (None, None);
        each(query, form, &NAMES, |name, value| match name {
            "key" => once(name, &mut key, value.into()),
            _ => once(name, &mut id, value.into()),
        })?;
        let key = key
            .ok_or_else(|| Answer::bad_request("key is missing: give the whole key, as GET /v1 lists it"))?;
        Ok(Self { key, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_questions_are_400_with_a_reason() {
        for (query, named) in [
            ("", "key is missing"),
            ("key=", "key is empty"),
            ("key=a&key=b", "key is given twice"),
            ("name=a", "unknown parameter"),
        ] {
            let answer = Question::parse(query, "").expect_err(query);
            assert!(answer.status == 400 && answer.body.contains(named), "{query}: {}", answer.body);
        }
        let question = Question::parse("key=lock%3Aa&ID=7", "").unwrap();
        assert_eq!((&*question.key, question.id.as_deref()), ("lock:a", Some("7")));
    }
}
