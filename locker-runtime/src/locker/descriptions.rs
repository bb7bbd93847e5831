//! What a locker tells its store for operators: the functions that use it, and its note.
//!
//! The background thread tells it, so that no call waits for it or fails because of it. It repeats everything in time:
//! texts end in the store, and a store may lose its data.

use super::{Inner, Locker};
use futures_util::FutureExt;
use locker_core::{
    background,
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    id::Id,
    key::{FunctionDigest, Key},
    process::Process,
    ranges::LONGEST,
    store::Description,
    sync::{Mutex, lock},
};
use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// The time after which everything is told again.
const REPEAT_EVERY: Duration = Duration::from_secs(10 * 60);

/// How long the description of a function is kept: also between two runs of a daily job.
const FUNCTION_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a note outlives the lease of a hold that is listed with it. Notes of processes that have ended would pile
/// up otherwise.
const NOTE_TTL: Duration = Duration::from_secs(30 * 60);

/// How long a text is kept that nobody asks for any more.
const AFTER_ITS_END: Duration = Duration::from_secs(1);

/// The maximum of bytes of a note.
pub(super) const LONGEST_NOTE: usize = 120;

/// Returns the subject of the description of a function.
pub(crate) fn function_subject(digest: &str) -> String {
    format!("function:{digest}")
}

/// Returns the subject of the note of the locker whose ids have this tag.
pub(crate) fn holder_subject(tag: u64) -> String {
    format!("holder:{tag:016x}")
}

/// Returns the subject of the note of the leader with this fence.
pub(crate) fn elected_subject(key: &Key, fence: u64) -> String {
    format!("elected:{}:{fence}", key.digest())
}

/// Returns the host and the process.
pub(crate) fn default_note() -> String {
    #[cfg(not(windows))]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(windows)]
    let host = std::env::var("COMPUTERNAME").unwrap_or_default();
    let mut note = format!("{}:{}", host, std::process::id());
    note.retain(|letter| !letter.is_control());
    note.truncate(cut(&note, LONGEST_NOTE).len());
    note
}

/// Returns the whole characters in the first `most` bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Refuses notes that are too long for a list or not printable.
pub(crate) fn check_note(note: &str) -> Result<()> {
    let why = if note.len() > LONGEST_NOTE {
        format!("note has {} bytes: give at most {LONGEST_NOTE}", note.len())
    } else if note.chars().any(char::is_control) {
        "note has control characters: give one printable line".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Misused, why))
}

impl Locker {
    /// Makes sure that the store knows the name of a function that uses it.
    pub(crate) fn describe(&self, function: &FunctionDigest) {
        self.0.descriptions.function(function, &self.0);
    }

    /// Makes sure that the store knows the note of this locker, which is about to hold something for `lease`.
    pub(crate) fn introduce(&self, lease: Duration) {
        self.0.descriptions.introduce(lease, &self.0);
    }

    /// Tells the store what a leader says about itself, as long as `term` lives. Default: the note of this locker.
    pub(crate) fn tell_elected(
        &self,
        (key, fence): (&Key, u64),
        note: Option<&str>,
        lease: Duration,
        term: Weak<dyn Any + Send + Sync>,
    ) {
        let descriptions = &self.0.descriptions;
        let text = note.unwrap_or(&descriptions.note).to_owned();
        let keep = NOTE_TTL + lease.min(LONGEST);
        descriptions.tell(
            elected_subject(key, fence),
            Statement { text, keep, of: Some(term), is_told: false },
            &self.0,
        );
    }
}

/// The name and the place of a function with an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FunctionSource {
    /// The path of the function, or its `name = ".."`.
    pub name: String,
    /// The source file, as the compiler was called with it. If functions of one program share a name, the places of the
    /// others are before it: `src/bank.rs:12, src/api.rs`.
    pub file: String,
    /// The line of the function.
    pub line: u32,
}

/// The maximum of bytes of a place after which no other function is added.
const LONGEST_PLACE: usize = 1_000;

impl FunctionSource {
    /// Reads the text that a locker has told its store.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let (name, file, line) = (lines.next()?, lines.next()?, lines.next()?.parse().ok()?);
        Some(Self { name: name.to_owned(), file: file.to_owned(), line })
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Returns the description of functions that share a name. Returns `None` for other texts.
fn of_both(known: &str, text: &str) -> Option<String> {
    let (place, other) = (FunctionSource::read(known)?.place(), FunctionSource::read(text)?);
    let is_known = place.split(", ").any(|one| one == other.place());
    if is_known || place.len() > LONGEST_PLACE {
        return Some(known.to_owned());
    }
    Some(format!("{}\n{place}, {}\n{}", other.name, other.file, other.line))
}

impl fmt::Display for FunctionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.place())
    }
}

/// The descriptions of one locker.
#[derive(Debug)]
pub(super) struct Descriptions {
    /// The bit of this locker in the marks of functions. 0 for the 65th and later lockers of the process.
    bit: u64,
    /// The first half of this locker's ids.
    pub(super) ids: Id,
    note: String,
    /// The seconds of the longest lease that the note was told for, 0 before the first.
    longest_lease: AtomicU64,
    told: Arc<Told>,
    process: &'static Process,
}

/// What the task tells.
#[derive(Debug, Default)]
struct Told {
    texts: Mutex<Texts>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Texts {
    by_subject: HashMap<String, Statement>,
    /// Whether a task tells them.
    has_task: bool,
    /// Whether the locker is gone.
    is_over: bool,
}

#[derive(Clone, Debug)]
struct Statement {
    text: String,
    /// How long it is kept.
    keep: Duration,
    /// What it is told about. `None`: the locker itself and its functions.
    of: Option<Weak<dyn Any + Send + Sync>>,
    is_told: bool,
}

impl Statement {
    fn new(text: String, keep: Duration) -> Self {
        Self { text, keep, of: None, is_told: false }
    }

    fn is_over(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.strong_count() == 0)
    }
}

impl Descriptions {
    pub(super) fn new(note: String, id_prefix: Option<u32>) -> Self {
        static LOCKERS: AtomicU64 = AtomicU64::new(0);
        let number = LOCKERS.fetch_add(1, Ordering::Relaxed);
        let bit = u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0);
        let (ids, process) = (id_prefix.map_or_else(Id::random, Id::random_in), Process::this());
        Self { bit, ids, note, longest_lease: AtomicU64::new(0), told: Arc::default(), process }
    }

    /// Returns the subject and the text of this locker's note.
    pub(super) fn own(&self) -> (String, &str) {
        (holder_subject(self.ids.tag()), &self.note)
    }

    /// Tells the store about a function. Costs one load once it is told.
    pub(super) fn function(&self, function: &FunctionDigest, locker: &Arc<Inner>) {
        if self.bit == 0 || !function.is_marked(self.bit) {
            self.tell_function(function, locker);
        }
    }

    #[cold]
    fn tell_function(&self, function: &FunctionDigest, locker: &Arc<Inner>) {
        if let Some(text) = function.description() {
            self.tell(function_subject(function.as_str()), Statement::new(text, FUNCTION_TTL), locker);
        }
        function.mark(self.bit);
    }

    /// Tells the store the note of this locker, which is about to hold something for `lease`. Costs one load if the
    /// note was told before for as long a lease.
    pub(super) fn introduce(&self, lease: Duration, locker: &Arc<Inner>) {
        let seconds = lease.min(LONGEST).as_secs() + 1;
        if self.longest_lease.load(Ordering::Relaxed) < seconds {
            self.tell_note(seconds, locker);
        }
    }

    #[cold]
    fn tell_note(&self, seconds: u64, locker: &Arc<Inner>) {
        // If leases rise little by little, the note is told a few times, and not for each of them.
        let told = seconds.next_power_of_two();
        if self.longest_lease.fetch_max(told, Ordering::Relaxed) < seconds {
            let keep = NOTE_TTL + Duration::from_secs(told);
            self.tell(holder_subject(self.ids.tag()), Statement::new(self.note.clone(), keep), locker);
        }
    }

    fn tell(&self, subject: String, mut told: Statement, locker: &Arc<Inner>) {
        // The parent of a forked child tells it, and its mutex may be locked in the child for good.
        if !self.process.is_this() {
            return;
        }
        let mut texts = lock(&self.told.texts);
        if let Some(known) = texts.by_subject.get(&subject) {
            told.text = of_both(&known.text, &told.text).unwrap_or(told.text);
            if (&known.text, known.keep) == (&told.text, told.keep) {
                return;
            }
        }
        texts.by_subject.insert(subject, told);
        if !texts.has_task && background::ready().is_ok() {
            texts.has_task = true;
            background::spawn(tell_all(Arc::clone(&self.told), Arc::downgrade(locker)));
        }
        drop(texts);
        self.told.changed.notify_one();
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        lock(&self.told.texts).is_over = true;
        self.told.changed.notify_one();
    }
}

impl Told {
    /// Returns what is new, or everything, and what is over, which is told a last time so that it ends.
    fn next(&self, everything: bool) -> Vec<Description> {
        let mut texts = lock(&self.texts);
        let over: Vec<_> = texts.by_subject.extract_if(|_, told| told.is_over()).collect();
        let mut next: Vec<_> = over.into_iter().filter(|(_, told)| told.is_told).collect();
        for (_, told) in &mut next {
            told.keep = AFTER_ITS_END;
        }
        for (subject, told) in &mut texts.by_subject {
            if everything || !told.is_told {
                told.is_told = true;
                next.push((subject.clone(), told.clone()));
            }
        }
        drop(texts);
        let description =
            |(subject, told): (String, Statement)| Description { subject, text: told.text, keep: told.keep };
        next.into_iter().map(description).collect()
    }

    /// Waits until something is new, the locker is gone, or `time` has passed.
    async fn changed_within(&self, time: Duration) {
        tokio::select! {
            biased;
            () = self.changed.notified() => {}
            () = background::sleep(time) => {}
        }
    }
}

/// Tells what is new after each change, and everything in time, until the locker is gone.
async fn tell_all(told: Arc<Told>, locker: Weak<Inner>) {
    let (mut backoff, mut repeat_at) = (Backoff::default(), Timestamp::default());
    while !lock(&told.texts).is_over {
        let Some((store, prefix)) =
            locker.upgrade().map(|locker| (Arc::clone(&locker.store), locker.prefix.clone()))
        else {
            return;
        };
        let now = Timestamp::now();
        let next = told.next(now >= repeat_at);
        if now >= repeat_at {
            repeat_at = now + REPEAT_EVERY;
        }
        let telling = AssertUnwindSafe(async { store.describe(&prefix, &next).await }).catch_unwind().await;
        drop(store);
        if matches!(&telling, Ok(Err(error)) if error.is_temporary()) {
            background::sleep(backoff.next_delay()).await;
            repeat_at = now;
        } else {
            backoff = Backoff::default();
            told.changed_within(repeat_at.since(Timestamp::now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_note_is_host_and_process() {
        let note = default_note();
        assert!(note.ends_with(&format!(":{}", std::process::id())), "{note}");
        check_note(&note).unwrap();
    }

    #[test]
    fn text_is_told_as_long_as_what_it_is_about() {
        let (told, keep) = (Told::default(), Duration::from_mins(1));
        let add = |subject: &str, of: &Arc<dyn Any + Send + Sync>| {
            let of = Some(Arc::downgrade(of));
            let statement = Statement { text: "web-1".to_owned(), keep, of, is_told: false };
            lock(&told.texts).by_subject.insert(subject.to_owned(), statement);
        };
        let next = |everything| {
            let mut next: Vec<_> =
                told.next(everything).into_iter().map(|text| (text.subject, text.keep)).collect();
            next.sort();
            next
        };
        let of = |subject: &str, keep| (subject.to_owned(), keep);
        let [one, two, three]: [Arc<dyn Any + Send + Sync>; 3] = [Arc::new(()), Arc::new(()), Arc::new(())];
        add("one", &one);
        add("two", &two);
        assert_eq!(next(false), [of("one", keep), of("two", keep)]);
        add("three", &three);
        drop((two, three));
        assert_eq!(next(false), [of("two", AFTER_ITS_END)], "and nothing that was never told");
        assert_eq!(next(false), []);
        assert_eq!(next(true), [of("one", keep)]);
    }

    #[test]
    fn shared_name_has_all_places() {
        let both = of_both("bank.pay\nsrc/bank.rs\n12", "bank.pay\nsrc/api.rs\n40").unwrap();
        let source = FunctionSource::read(&both).unwrap();
        assert_eq!(source.to_string(), "bank.pay (src/bank.rs:12, src/api.rs:40)");
        for text in ["bank.pay\nsrc/bank.rs\n12", "bank.pay\nsrc/api.rs\n40"] {
            assert_eq!(of_both(&both, text).as_ref(), Some(&both));
        }
        assert_eq!(of_both("web-3:4711", "web-3:4711"), None);
        let many =
            (0..500).fold(both, |all, line| of_both(&all, &format!("bank.pay\na.rs\n{line}")).unwrap());
        assert!(many.len() < LONGEST_PLACE + 50, "{many}");
    }

    #[test]
    fn long_and_unprintable_notes_are_refused() {
        check_note(&"ä".repeat(60)).unwrap();
        for note in ["a".repeat(121), "a\nb".to_owned(), "\u{85}".to_owned()] {
            let error = check_note(&note).unwrap_err();
            assert!(error.kind() == ErrorKind::Misused && error.message().contains("note"), "{error}");
        }
    }
}
