//! Lua scripts, how they are called and what they answer.

use super::errors;
use crate::{
    error::{Error, Result},
    id::Id,
    key::{Key, hex},
};
use once_cell::sync::OnceCell;
use redis::{Cmd, RedisResult, Value};
use std::{fmt::Write, sync::Arc};

const CLOCK: &str = include_str!("clock.lua");

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(super) struct Script {
    /// The helpers of the key that it works on, after the key itself; the id follows a name that ends in a colon.
    helpers: &'static [&'static str],
    first: &'static str,
    parts: &'static [&'static str],
    text: OnceCell<Text>,
}

#[derive(Debug)]
struct Text {
    body: String,
    digest: String,
}

impl Script {
    /// `clock.lua` and then `parts`, the texts of `.lua` files; those that others use too come first.
    pub(super) const fn new(helpers: &'static [&'static str], parts: &'static [&'static str]) -> Self {
        Self::with_first(helpers, "", parts)
    }

    /// The same with a part before all others, in which the common case ends before the others are set up.
    pub(super) const fn with_first(
        helpers: &'static [&'static str],
        first: &'static str,
        parts: &'static [&'static str],
    ) -> Self {
        Self { helpers, first, parts, text: OnceCell::new() }
    }

    /// A call about `key`; [`Invocation::argument`] adds what else it needs.
    pub(super) fn on(&'static self, key: &Key) -> Invocation {
        Invocation { script: self, key: key.clone(), arguments: Vec::with_capacity(12), batch: None }
    }

    /// The command that has a server keep the script, under its digest.
    pub(super) fn load(&self) -> Cmd {
        redis::cmd("SCRIPT").arg("LOAD").arg(&self.text().body).clone()
    }

    fn text(&self) -> &Text {
        self.text.get_or_init(|| Text::new([self.first, CLOCK, &self.parts.concat()].concat()))
    }
}

impl Text {
    fn new(body: String) -> Self {
        let digest = redis::Script::new(&body).get_hash().to_owned();
        Self { body, digest }
    }
}

/// One of `ARGV`.
#[derive(Debug)]
pub(super) enum Argument {
    Number(u64),
    Signed(i64),
    Id(Id),
    Word(&'static str),
    Text(Arc<str>),
}

macro_rules! arguments {
    ($($kind:ident: $type:ty;)+) => {
        $(impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        })+
    };
}

arguments! {
    Number: u64;
    Signed: i64;
    Id: Id;
    Word: &'static str;
    Text: Arc<str>;
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self::Number(value.into())
    }
}

impl Argument {
    fn write(&self, command: &mut Cmd) {
        match self {
            Self::Number(number) => command.arg(number),
            Self::Signed(number) => command.arg(number),
            Self::Id(id) => command.arg(&hex(&id.to_bytes())),
            Self::Word(word) => command.arg(word),
            Self::Text(text) => command.arg(&**text),
        };
    }
}

/// One call of a script.
#[derive(Debug)]
pub(super) struct Invocation {
    script: &'static Script,
    key: Key,
    arguments: Vec<Argument>,
    batch: Option<&'static Batch>,
}

impl Invocation {
    /// Adds the next of `ARGV`.
    pub(super) fn argument(mut self, argument: impl Into<Argument>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Lets the call be made together with others.
    pub(super) fn together(self, batch: &'static Batch) -> Self {
        Self { batch: Some(batch), ..self }
    }

    /// Has the call made by itself unless `common`: a call that does not end in the common case is made twice.
    pub(super) fn together_if(self, common: bool) -> Self {
        Self { batch: self.batch.filter(|_| common), ..self }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// What may make it together with others.
    pub(super) fn batch(&self) -> Option<&'static Batch> {
        self.batch
    }

    /// The call by digest.
    pub(super) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.text().digest)
    }

    /// The call with the whole text: what a server needs that does not know the script yet.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", &self.script.text().body)
    }

    /// The call of a script that a test has changed, which knows the time from the last argument: by digest, and in
    /// full.
    #[cfg(test)]
    pub(super) fn changed(self, change: &mut impl FnMut(&str) -> (String, String), now: u64) -> (Cmd, Cmd) {
        let (body, digest) = change(&self.script.text().body);
        let call = self.argument(now);
        (call.command("EVALSHA", &digest), call.command("EVAL", &body))
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let keys = 1 + self.script.helpers.len();
        let mut command = Cmd::with_capacity(3 + keys + self.arguments.len(), 1024);
        command.arg(name).arg(script).arg(keys);
        let mut text = String::with_capacity(256);
        (0..keys).for_each(|place| self.write_key(place, &mut text, &mut command));
        self.arguments.iter().for_each(|argument| argument.write(&mut command));
        command
    }

    /// Writes the key at this place of `KEYS`; `text` is room for it.
    fn write_key(&self, place: usize, text: &mut String, command: &mut Cmd) {
        let Some(helper) = place.checked_sub(1).and_then(|place| self.script.helpers.get(place)) else {
            command.arg(self.key.as_str());
            return;
        };
        text.clear();
        // The braces keep it in the slot of a cluster that the key is in.
        text.extend(["{", self.key.as_str(), "}:", helper]);
        if let (true, Some(Argument::Id(id))) = (helper.ends_with(':'), self.arguments.first()) {
            write!(text, "{id}").expect("memory takes every write");
        }
        command.arg(text.as_str());
    }
}

/// A script that makes many calls of another one at once, as far as these end in the common case.
///
/// Its keys and arguments are those that the calls have at these places: of all calls the first, then of all the
/// second, and so on. For each call it answers what the other script would, or an empty text where it has done
/// nothing.
#[derive(Debug)]
pub(super) struct Batch {
    script: Script,
    keys: &'static [usize],
    arguments: &'static [usize],
}

impl Batch {
    /// `parts` as for [`Script::new`].
    pub(super) const fn new(
        parts: &'static [&'static str],
        keys: &'static [usize],
        arguments: &'static [usize],
    ) -> Self {
        Self { script: Script::new(&[], parts), keys, arguments }
    }

    /// The one command that makes `calls`; `in_full` for a server that does not know the script yet.
    pub(super) fn command(&self, calls: &[&Invocation], in_full: bool) -> Cmd {
        let Text { body, digest } = self.script.text();
        if in_full { self.with("EVAL", body, calls) } else { self.with("EVALSHA", digest, calls) }
    }

    fn with(&self, name: &str, script: &str, calls: &[&Invocation]) -> Cmd {
        let (keys, arguments) = (calls.len() * self.keys.len(), calls.len() * self.arguments.len());
        let mut command = Cmd::with_capacity(3 + keys + arguments, script.len() + 64 * (keys + arguments));
        command.arg(name).arg(script).arg(keys);
        let mut text = String::with_capacity(256);
        for place in self.keys {
            for call in calls {
                call.write_key(*place, &mut text, &mut command);
            }
        }
        for place in self.arguments {
            for argument in calls.iter().filter_map(|call| call.arguments.get(*place)) {
                argument.write(&mut command);
            }
        }
        command
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    /// As [`Invocation::changed`], in full.
    #[cfg(test)]
    pub(super) fn changed(
        &self,
        calls: &[&Invocation],
        change: &mut impl FnMut(&str) -> (String, String),
        now: u64,
    ) -> Cmd {
        let mut command = self.with("EVAL", &change(&self.script.text().body).0, calls);
        command.arg(now);
        command
    }
}

/// What a script answers: a word, and numbers or a text behind it, as one text or as an array.
#[derive(Debug)]
pub(super) struct Answer {
    word: String,
    numbers: Vec<i64>,
    text: Option<String>,
}

impl Answer {
    /// What came back from a call, or why nothing did.
    pub(super) fn of_call(answer: RedisResult<Value>) -> Result<Self> {
        answer.map_err(|error| errors::of_call(&error)).and_then(Self::read)
    }

    pub(super) fn read(value: Value) -> Result<Self> {
        let value = value.extract_error().map_err(|error| errors::certain(&error))?;
        match value {
            Value::BulkString(text) => {
                let read = std::str::from_utf8(&text).ok().and_then(|text| Self::from_words(text.split(' ')));
                read.ok_or_else(|| errors::unreadable("no word and numbers"))
            }
            other => Self::from_array(other).map_err(|error| errors::unreadable(&error.to_string())),
        }
    }

    fn from_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let word = words.next()?.to_owned();
        let numbers = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { word, numbers, text: None })
    }

    fn from_array(value: Value) -> Result<Self, redis::ParsingError> {
        let (mut texts, mut numbers) = (Vec::new(), Vec::new());
        for value in redis::from_redis_value::<Vec<Value>>(value)? {
            match value {
                Value::Int(number) => numbers.push(number),
                other => texts.push(redis::from_redis_value::<String>(other)?),
            }
        }
        let mut texts = texts.into_iter();
        let word = texts.next().unwrap_or_default();
        Ok(Self { word, numbers, text: texts.next() })
    }

    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// Whether a message may follow that says the same: Redis 7.2 and later send it after the answer to the call that
    /// published it, and any server over another connection.
    pub(super) fn is_told_twice(&self) -> bool {
        self.word == "granted" && self.integer(1) == 1
    }

    /// How many numbers there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number at `index`, 0 when it is missing.
    pub(super) fn integer(&self, index: usize) -> i64 {
        self.numbers.get(index).copied().unwrap_or(0)
    }

    /// The number at `index`, `None` when it is missing or negative.
    pub(super) fn natural(&self, index: usize) -> Option<u64> {
        self.numbers.get(index).and_then(|number| u64::try_from(*number).ok())
    }

    /// The number at `index`, 0 when it is missing or negative.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.natural(index).unwrap_or(0)
    }

    /// The text behind the word.
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    pub(super) fn unexpected(&self) -> Error {
        errors::unreadable(&format!("{self:?}"))
    }
}
