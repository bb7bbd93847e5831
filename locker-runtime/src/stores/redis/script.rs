//! Lua scripts, how they are called and what they answer.

use super::errors;
use crate::{Error, Result};
use once_cell::sync::OnceCell;
use redis::{Cmd, RedisResult, Value};
use std::{
    fmt::Display,
    sync::atomic::{AtomicBool, Ordering},
};

const CLOCK: &str = include_str!("clock.lua");

/// A script, known to the server by its digest.
#[derive(Debug)]
pub(super) struct Script {
    first: &'static str,
    parts: &'static [&'static str],
    text: OnceCell<Text>,
    /// This process has called it before.
    known: AtomicBool,
}

#[derive(Debug)]
struct Text {
    body: String,
    digest: String,
}

impl Script {
    /// `clock.lua` and then `parts`, the texts of `.lua` files; those that others use too come first.
    pub(super) const fn new(parts: &'static [&'static str]) -> Self {
        Self::with_first("", parts)
    }

    /// The same with a part before all others, in which the common case ends before the others are set up.
    pub(super) const fn with_first(first: &'static str, parts: &'static [&'static str]) -> Self {
        Self { first, parts, text: OnceCell::new(), known: AtomicBool::new(false) }
    }

    /// A call with these keys; [`Invocation::argument`] adds what else it needs.
    pub(super) fn on<const N: usize>(&'static self, keys: [&dyn Display; N]) -> Invocation {
        let mut command = Cmd::with_capacity(N + 8, 512);
        command.arg("EVALSHA").arg(&self.text().digest).arg(N);
        let mut invocation = Invocation { script: self, command };
        for key in keys {
            invocation = invocation.argument(key);
        }
        invocation
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

/// One call of a script.
#[derive(Debug)]
pub(super) struct Invocation {
    script: &'static Script,
    command: Cmd,
}

impl Invocation {
    /// Adds the next of `ARGV`.
    pub(super) fn argument(mut self, argument: impl Display) -> Self {
        use std::io::Write;
        let mut writer = redis::RedisWrite::writer_for_next_arg(&mut self.command);
        write!(writer, "{argument}").expect("memory takes every write");
        drop(writer);
        self
    }

    /// Whether this process has called the script before. Then a server that does not know it has forgotten it: it may
    /// be another one, and may have forgotten more.
    pub(super) fn is_known(&self) -> bool {
        let known = &self.script.known;
        known.load(Ordering::Relaxed) || {
            known.store(true, Ordering::Relaxed);
            false
        }
    }

    /// The call by digest.
    pub(super) fn by_digest(&self) -> &Cmd {
        &self.command
    }

    /// The call with the whole text: what a server needs that does not know the script yet.
    pub(super) fn in_full(&self) -> Cmd {
        self.as_command("EVAL", &self.script.text().body)
    }

    /// The call of a script that a test has changed, which knows the time from the last argument: by digest, and in
    /// full.
    #[cfg(test)]
    pub(super) fn changed(self, change: &mut impl FnMut(&str) -> (String, String), now: u64) -> (Cmd, Cmd) {
        let (body, digest) = change(&self.script.text().body);
        let call = self.argument(now);
        (call.as_command("EVALSHA", &digest), call.as_command("EVAL", &body))
    }

    /// The same keys and arguments behind another way to name the script.
    fn as_command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script);
        for argument in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
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
    /// published it, and any server over a connection of its own.
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
