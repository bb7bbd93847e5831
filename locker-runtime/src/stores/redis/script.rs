//! Lua scripts, how they are called and what they answer.

use super::errors;
use crate::{Error, Result};
use once_cell::sync::OnceCell;
use redis::{Cmd, Value};
use std::fmt::Display;

const CLOCK: &str = include_str!("clock.lua");

/// A script, known to the server by its digest. Its text is `clock.lua` and its own parts.
#[derive(Debug)]
pub(super) struct Script {
    parts: &'static [&'static str],
    text: OnceCell<Text>,
    /// By a clock that a test moves.
    #[cfg(test)]
    by_hand: OnceCell<Text>,
}

#[derive(Debug)]
struct Text {
    body: String,
    digest: String,
}

impl Script {
    /// `parts` are the texts of `.lua` files, those that others use too coming first.
    pub(super) const fn new(parts: &'static [&'static str]) -> Self {
        Self {
            parts,
            text: OnceCell::new(),
            #[cfg(test)]
            by_hand: OnceCell::new(),
        }
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
        self.text.get_or_init(|| Text::new(CLOCK, self.parts))
    }
}

impl Text {
    fn new(clock: &str, parts: &[&str]) -> Self {
        let body = clock.to_owned() + &parts.concat();
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

    /// The call by digest.
    pub(super) fn by_digest(&self) -> &Cmd {
        &self.command
    }

    /// The call with the whole text: what a server needs that does not know the script yet.
    pub(super) fn in_full(&self) -> Cmd {
        self.as_command("EVAL", &self.script.text().body)
    }

    /// The call by a clock that a test moves, which knows it from the last argument: by digest, and in full.
    #[cfg(test)]
    pub(super) fn at(self, clock: &str, now: crate::Timestamp) -> (Cmd, Cmd) {
        let text = self.script.by_hand.get_or_init(|| Text::new(clock, self.script.parts));
        let call = self.argument(now.as_micros());
        (call.as_command("EVALSHA", &text.digest), call.as_command("EVAL", &text.body))
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

/// What a script answers: a word, and numbers behind it.
#[derive(Debug)]
pub(super) struct Answer {
    word: String,
    numbers: Vec<i64>,
}

impl Answer {
    pub(super) fn read(value: Value) -> Result<Self> {
        let value = value.extract_error().map_err(|error| errors::certain(&error))?;
        redis::from_redis_value::<(String, Vec<i64>)>(regroup(value))
            .map(|(word, numbers)| Self { word, numbers })
            .map_err(|error| errors::unreadable(&error.to_string()))
    }

    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// The number at `index`, 0 when it is missing or negative.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.numbers.get(index).map_or(0, |number| u64::try_from(*number).unwrap_or(0))
    }

    pub(super) fn unexpected(&self) -> Error {
        errors::unreadable(&format!("{self:?}"))
    }
}

/// `[word, numbers..]` as `[word, [numbers..]]`.
fn regroup(value: Value) -> Value {
    match value {
        Value::Array(mut values) if !values.is_empty() => {
            let numbers = values.split_off(1);
            values.push(Value::Array(numbers));
            Value::Array(values)
        }
        other => other,
    }
}
