//! The errors that the files in `refused/` announce.
//!
//! Below a line of code with a mistake stands `//~`, a token in backticks, a colon and the message of an error that
//! starts at this token. Where the compiler words it, its code stands there.

/// An error that a file announces, or one that was found.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) line: u64,
    pub(crate) token: String,
    pub(crate) text: String,
}

impl Refusal {
    fn is_announced_by(&self, announced: &Self) -> bool {
        self.line == announced.line
            && self.token.starts_with(&announced.token)
            && self.text.contains(&announced.text)
    }
}

pub(crate) fn announced(file: &str) -> Vec<Refusal> {
    let (mut line, mut found) = (0, Vec::new());
    for (number, text) in (1..).zip(file.lines()) {
        let Some(refusal) = text.trim_start().strip_prefix("//~ `") else {
            line = number;
            continue;
        };
        let (token, text) = refusal.split_once("`: ").expect("a token and a message");
        assert!(!text.is_empty(), "line {number} announces no message");
        found.push(Refusal { line, token: token.to_owned(), text: text.to_owned() });
    }
    assert!(!found.is_empty(), "no error is announced");
    found
}

/// Returns what was announced and not found, and what was found and not announced.
pub(crate) fn differences(
    mut announced: Vec<Refusal>,
    mut found: Vec<Refusal>,
) -> (Vec<Refusal>, Vec<Refusal>) {
    let expected = |one: &Refusal| announced.iter().any(|other| one.is_announced_by(other));
    let others = found.extract_if(.., |one| !expected(one)).collect();
    announced.retain(|one| !found.iter().any(|other| other.is_announced_by(one)));
    (announced, others)
}
