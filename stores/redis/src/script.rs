//! Lua scripts, their calls and their replies.

use super::{errors, records::Records, strict::Strict};
use locker_core::{
    error::{Error, Result},
    id::Id,
    key::{Key, hex},
};
use once_cell::race::OnceBox;
use redis::{Cmd, RedisResult, Value};
use std::{
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

const CLOCK: &str = include_str!("lua/clock.lua");
const STRICT: &str = include_str!("lua/strict.lua");
const OPEN: &str = include_str!("lua/open.lua");

/// The record of strict mode.
const EPOCH: &str = "epoch";

/// The record of the last fence of all names.
const FENCE: &str = "fence";

/// How long the server keeps the place of a waiter without a request from it.
pub(super) const WAITER_TTL: Duration = Duration::from_secs(30);

/// Returns `duration` in milliseconds, rounded up: a lease may last longer, never shorter.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// In place of the name of a helper key: the record of the last fence of all names.
pub(super) const LAST_FENCE: &str = "fence of all";

/// What all calls of a session share.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) records: Records,
    pub(super) strict: Option<Strict>,
}

/// A script that the server knows by its digest.
#[derive(Debug)]
pub(super) struct Script {
    /// The names of the helper keys, which follow the key itself. The id is appended to a name that ends in a colon.
    /// [`LAST_FENCE`] stands for a record.
    helpers: &'static [&'static str],
    first: &'static str,
    parts: &'static [&'static str],
    /// The texts before and after the first part in strict mode, if the mode concerns this script.
    strict: Option<(&'static str, &'static str)>,
    /// The script that has the text, and the word that comes before the arguments, if this is one of its operations.
    operation: Option<(&'static Script, &'static str)>,
    text: OnceBox<Text>,
    strict_text: OnceBox<Text>,
}

#[derive(Debug)]
pub(super) struct Text {
    pub(super) body: String,
    pub(super) digest: String,
}

impl Script {
    /// A script of `clock.lua` and then `parts`, the texts of `.lua` files. Shared parts come first.
    pub(super) const fn new(helpers: &'static [&'static str], parts: &'static [&'static str]) -> Self {
        Self::with_first(helpers, "", parts)
    }

    /// A script with a part before all others. The common case ends in it, before the others are set up.
    pub(super) const fn with_first(
        helpers: &'static [&'static str],
        first: &'static str,
        parts: &'static [&'static str],
    ) -> Self {
        Self {
            helpers,
            first,
            parts,
            strict: None,
            operation: None,
            text: OnceBox::new(),
            strict_text: OnceBox::new(),
        }
    }

    /// An operation of `script`, with the same keys and the same mode.
    pub(super) const fn operation(
        script: &'static Self,
        helpers: &'static [&'static str],
        word: &'static str,
    ) -> Self {
        let mut operation = Self::new(helpers, &[]);
        operation.operation = Some((script, word));
        operation
    }

    /// Gives the script a variant for strict mode, with these texts before and after its first part.
    pub(super) const fn strict(mut self, before: &'static str, after: &'static str) -> Self {
        self.strict = Some((before, after));
        self
    }

    /// Begins a call for `key`. [`Invocation::argument`] adds its arguments.
    pub(super) fn on(&'static self, key: &Key) -> Invocation {
        let arguments = Vec::with_capacity(12);
        let (key, batch, first, rest, settings) = (key.clone(), None, None, None, None);
        Invocation { script: self, key, arguments, batch, first, rest, is_promise: false, settings }
    }

    /// Returns the command that makes a server keep the script under its digest.
    pub(super) fn load(&self, is_strict: bool) -> Cmd {
        redis::cmd("SCRIPT").arg("LOAD").arg(&self.text(is_strict).body).clone()
    }

    pub(super) fn digest(&self, is_strict: bool) -> &str {
        &self.text(is_strict).digest
    }

    fn text(&self, is_strict: bool) -> &Text {
        if let Some((script, _)) = self.operation {
            return script.text(is_strict);
        }
        let parts = || self.parts.concat();
        let new = |texts: &[&str]| Box::new(Text::new(texts.concat()));
        match self.strict {
            Some((before, after)) if is_strict => {
                self.strict_text.get_or_init(|| new(&[STRICT, before, self.first, after, CLOCK, &parts()]))
            }
            Some(_) => self.text.get_or_init(|| new(&[self.first, OPEN, CLOCK, &parts()])),
            None => self.text.get_or_init(|| new(&[self.first, CLOCK, &parts()])),
        }
    }
}

impl Text {
    pub(super) fn new(body: String) -> Self {
        let digest = redis::Script::new(&body).get_hash().to_owned();
        Self { body, digest }
    }
}

/// One element of `ARGV`.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Number(u64),
    Signed(i64),
    Id(Id),
    Word(&'static str),
    Text(Arc<str>),
    Bytes(locker_core::primitives::Value),
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
    Bytes: locker_core::primitives::Value;
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
            Self::Bytes(value) => command.arg(value.as_bytes()),
        };
    }
}

/// One call of a script.
#[derive(Debug)]
pub(super) struct Invocation {
    script: &'static Script,
    key: Key,
    arguments: Vec<Argument>,
    batch: Option<&'static BatchScript>,
    first: Option<&'static Script>,
    /// The script after this one, if this is the first.
    rest: Option<&'static Script>,
    is_promise: bool,
    settings: Option<Arc<Settings>>,
}

impl Invocation {
    /// Adds the next element of `ARGV`.
    pub(super) fn argument(mut self, argument: impl Into<Argument>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Allows `batch` to make the call together with others: what its first script would do.
    pub(super) fn batched(self, batch: &'static BatchScript) -> Self {
        Self { batch: Some(batch), ..self }
    }

    /// Forbids batching unless `common`, and the script that comes first: a call that is not the common case has to be
    /// sent twice.
    pub(super) fn batched_if(self, common: bool) -> Self {
        if common || self.batch.is_none() { self } else { Self { batch: None, first: None, ..self } }
    }

    /// Makes the call of `first`, which has the same arguments and fewer keys, come before this one. This one follows
    /// if `first` returns nothing: it has then done nothing.
    pub(super) fn after(self, first: &'static Script) -> Self {
        Self { first: Some(first), ..self }
    }

    /// Returns the call that comes before this one. It may be made in the batch.
    pub(super) fn first(&self) -> Option<Self> {
        self.first.map(|first| Self { batch: self.batch, rest: Some(self.script), ..self.by(first) })
    }

    /// Returns the call that follows if this one has done nothing.
    pub(super) fn rest(&self) -> Option<Self> {
        self.rest.map(|rest| self.by(rest))
    }

    /// Returns the call of another script for the same request.
    fn by(&self, script: &'static Script) -> Self {
        Self {
            script,
            key: self.key.clone(),
            arguments: self.arguments.clone(),
            batch: None,
            first: None,
            rest: None,
            is_promise: self.is_promise,
            settings: self.settings.clone(),
        }
    }

    /// Marks a call whose reply may be that the caller holds something.
    pub(super) fn promise(self) -> Self {
        Self { is_promise: true, ..self }
    }

    pub(super) fn is_promise(&self) -> bool {
        self.is_promise
    }

    /// Makes the call one of a session.
    pub(super) fn of(self, settings: &Arc<Settings>) -> Self {
        Self { settings: Some(Arc::clone(settings)), ..self }
    }

    fn is_strict(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.strict.is_some())
    }

    fn text(&self) -> &Text {
        self.script.text(self.is_strict())
    }

    /// Returns the settings of strict mode, if it concerns this script.
    fn strict_for(&self, script: &Script) -> Option<Strict> {
        self.settings.as_ref()?.strict.filter(|_| script.strict.is_some())
    }

    fn record(&self, kind: &str) -> String {
        let mut name = String::new();
        self.write_record(kind, &mut name);
        name
    }

    fn write_record(&self, kind: &str, text: &mut String) {
        if let Some(settings) = &self.settings {
            settings.records.write(&self.key, kind, text);
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the script that may make this call together with others. A call after another one is made alone.
    pub(super) fn batch(&self) -> Option<&'static BatchScript> {
        self.batch.filter(|_| self.first.is_none())
    }

    /// Returns the call by digest.
    pub(super) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.text().digest)
    }

    /// Returns the call with the whole text, for a server that does not know the script.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", &self.text().body)
    }

    /// Returns the call of a script that a test has changed, by digest or in full. Its last argument is the time.
    #[cfg(test)]
    pub(super) fn changed(self, text: impl FnOnce(&Text) -> Arc<Text>, in_full: bool, now: u64) -> Cmd {
        let text = text(self.text());
        let (name, script) = if in_full { ("EVAL", &text.body) } else { ("EVALSHA", &text.digest) };
        let mut command = self.command(name, script);
        command.arg(now);
        command
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let keys = 1 + self.script.helpers.len();
        let strict = self.strict_for(self.script);
        let mut command = Cmd::with_capacity(6 + keys + self.arguments.len(), 1024);
        command.arg(name).arg(script).arg(keys + usize::from(strict.is_some()));
        let mut text = String::with_capacity(256);
        (0..keys).for_each(|place| self.write_key(place, &mut text, &mut command));
        // Nothing without strict mode.
        command.arg(strict.map(|_| self.record(EPOCH)));
        command.arg(self.script.operation.map(|(_, word)| word));
        self.arguments.iter().for_each(|argument| argument.write(&mut command));
        command.arg(strict.map(Strict::limits));
        command
    }

    /// Writes the key at this place of `KEYS`, with `text` as a buffer.
    fn write_key(&self, place: usize, text: &mut String, command: &mut Cmd) {
        let Some(helper) = place.checked_sub(1).and_then(|place| self.script.helpers.get(place)) else {
            command.arg(self.key.as_str());
            return;
        };
        text.clear();
        if *helper == LAST_FENCE {
            self.write_record(FENCE, text);
            command.arg(text.as_str());
            return;
        }
        // The braces keep it in the same cluster slot as the key.
        text.extend(["{", self.key.as_str(), "}:", helper]);
        if let (true, Some(Argument::Id(id))) = (helper.ends_with(':'), self.arguments.first()) {
            write!(text, "{id}").expect("memory takes every write");
        }
        command.arg(text.as_str());
    }
}

/// A script that makes many calls of another script at once, if they are the common case.
///
/// Its keys and arguments are those of the calls at these places: the first of each call, then the second of each
/// call, and so on; then come the records that all calls share. For each call it returns the reply of the other
/// script, or an empty text if it has done nothing.
#[derive(Debug)]
pub(super) struct BatchScript {
    script: Script,
    keys: &'static [usize],
    arguments: &'static [usize],
    has_fences: bool,
}

impl BatchScript {
    /// A script of `parts` as for [`Script::new`].
    pub(super) const fn new(
        parts: &'static [&'static str],
        keys: &'static [usize],
        arguments: &'static [usize],
    ) -> Self {
        Self { script: Script::new(&[], parts), keys, arguments, has_fences: false }
    }

    /// Gives the script one more key, the record of the last fence.
    pub(super) const fn with_fences(mut self) -> Self {
        self.has_fences = true;
        self
    }

    /// Gives the script a variant for strict mode, which begins with this text.
    pub(super) const fn strict(mut self, before: &'static str) -> Self {
        self.script.strict = Some((before, ""));
        self
    }

    /// Returns the command that makes `calls`, with the whole text if `in_full`.
    pub(super) fn command(&self, calls: &[&Invocation], in_full: bool) -> Cmd {
        let Text { body, digest } = self.script.text(is_strict(calls));
        if in_full { self.with("EVAL", body, calls) } else { self.with("EVALSHA", digest, calls) }
    }

    fn with(&self, name: &str, script: &str, calls: &[&Invocation]) -> Cmd {
        let keys = calls.len() * self.keys.len() + usize::from(self.has_fences);
        let arguments = calls.len() * self.arguments.len();
        let strict = calls.first().and_then(|call| Some((*call, call.strict_for(&self.script)?)));
        let mut command = Cmd::with_capacity(6 + keys + arguments, script.len() + 64 * (keys + arguments));
        command.arg(name).arg(script).arg(keys + usize::from(strict.is_some()));
        let mut text = String::with_capacity(256);
        for place in self.keys {
            for call in calls {
                call.write_key(*place, &mut text, &mut command);
            }
        }
        command.arg(calls.first().filter(|_| self.has_fences).map(|call| call.record(FENCE)));
        command.arg(strict.map(|(call, _)| call.record(EPOCH)));
        for place in self.arguments {
            for argument in calls.iter().filter_map(|call| call.arguments.get(*place)) {
                argument.write(&mut command);
            }
        }
        command.arg(strict.map(|(_, strict)| strict.limits()));
        command
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    /// Returns what [`Invocation::changed`] does, in full.
    #[cfg(test)]
    pub(super) fn changed(
        &self,
        calls: &[&Invocation],
        text: impl FnOnce(&Text) -> Arc<Text>,
        now: u64,
    ) -> Cmd {
        let mut command = self.with("EVAL", &text(self.script.text(is_strict(calls))).body, calls);
        command.arg(now);
        command
    }
}

fn is_strict(calls: &[&Invocation]) -> bool {
    calls.iter().any(|call| call.is_strict())
}

/// The reply of a script: a word, then numbers or a text. The server sends it as one text or as an array.
pub(super) struct ScriptReply {
    word: String,
    numbers: Vec<i64>,
    text: Vec<u8>,
}

/// Shows the length of the text alone: it may be a result that is confidential.
impl fmt::Debug for ScriptReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, numbers, text } = self;
        write!(f, "{word} {numbers:?}")?;
        if text.is_empty() { Ok(()) } else { write!(f, ", and {} bytes", text.len()) }
    }
}

impl ScriptReply {
    /// Reads the result of a call.
    pub(super) fn of_call(result: RedisResult<Value>) -> Result<Self> {
        result.map_err(|error| errors::of_call(&error)).and_then(Self::read)
    }

    pub(super) fn read(value: Value) -> Result<Self> {
        let value = value.extract_error().map_err(|error| errors::refused(&error))?;
        match value {
            Value::BulkString(text) => {
                let read = std::str::from_utf8(&text).ok().and_then(|text| Self::from_words(text.split(' ')));
                read.ok_or_else(|| errors::unexpected_reply("no word and numbers"))
            }
            Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(_))) => {
                Self::from_array(parts).map_err(|error| errors::unexpected_reply(&error.to_string()))
            }
            _ => Err(errors::unexpected_reply("no array that begins with a word")),
        }
    }

    fn from_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let word = words.next()?.to_owned();
        let numbers = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { word, numbers, text: Vec::new() })
    }

    fn from_array(parts: Vec<Value>) -> Result<Self, redis::ParsingError> {
        let (mut texts, mut numbers) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Value::Int(number) => numbers.push(number),
                Value::BulkString(text) => texts.push(text),
                other => texts.push(redis::from_redis_value::<String>(other)?.into_bytes()),
            }
        }
        let mut texts = texts.into_iter();
        let word = redis::from_redis_value(Value::BulkString(texts.next().unwrap_or_default()))?;
        Ok(Self { word, numbers, text: texts.next().unwrap_or_default() })
    }

    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// Returns whether the reply says that the caller holds something.
    pub(super) fn is_of_a_hold(value: &Value) -> bool {
        let text = match value {
            Value::BulkString(text) => text,
            Value::Array(parts) => match parts.first() {
                Some(Value::BulkString(text)) => text,
                _ => return false,
            },
            _ => return false,
        };
        matches!(
            text.split(|byte| *byte == b' ').next(),
            Some(b"granted" | b"run" | b"renewed" | b"begun" | b"recorded")
        )
    }

    /// Returns how many numbers there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number at `index`, or 0 if it is missing.
    pub(super) fn integer(&self, index: usize) -> i64 {
        self.numbers.get(index).copied().unwrap_or(0)
    }

    /// Returns the number at `index`, or `None` if it is missing or negative.
    pub(super) fn natural(&self, index: usize) -> Option<u64> {
        self.numbers.get(index).and_then(|number| u64::try_from(*number).ok())
    }

    /// Returns the number at `index`, or 0 if it is missing or negative.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.natural(index).unwrap_or(0)
    }

    /// Returns the text after the word.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Returns the bytes after the word.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn unexpected(&self) -> Error {
        errors::unexpected_reply(&format!("{self:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas are asked for what begins with the word of a hold, and nothing else may be read as a hold.
    #[test]
    fn reply_begins_with_its_word() {
        let word = || Value::BulkString(b"granted".into());
        for holds in [word(), Value::Array(vec![word(), Value::Int(7)])] {
            assert!(ScriptReply::is_of_a_hold(&holds));
            assert_eq!(ScriptReply::read(holds).unwrap().word(), "granted");
        }
        for other in [
            Value::Array(vec![Value::Int(7), word()]),
            Value::Array(vec![Value::SimpleString("granted".into()), Value::Int(7)]),
            Value::Set(vec![word(), Value::Int(7)]),
            Value::Array(Vec::new()),
            Value::Nil,
        ] {
            assert!(!ScriptReply::is_of_a_hold(&other));
            assert!(ScriptReply::read(other.clone()).is_err(), "{other:?}");
        }
    }
}
