//! The history of a run: lines of the workers and of this process, in a file that the checker reads.

use crate::clock::now;
use locker_checker::{
    Unreadable, Verdict,
    format::{Call, End, Fault, Kind, Line, Operation, Outcome, Text},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Debug)]
pub(crate) struct History(Arc<Mutex<Writing>>);

#[derive(Debug)]
struct Writing {
    file: BufWriter<File>,
    has_ended: bool,
}

impl History {
    /// Writes to an empty file.
    pub(crate) fn new(file: File) -> Self {
        Self(Arc::new(Mutex::new(Writing { file: BufWriter::new(file), has_ended: false })))
    }

    /// Takes one line of a worker that is a process. A part of one, of a killed worker, has no line break.
    pub(crate) fn take(&self, line: &str) {
        if let Some(line) = line.strip_suffix('\n') {
            self.writing().write(line);
        }
    }

    /// Writes the line of a worker that is a thread of this process. Returns `None` if it is to end.
    pub(crate) fn say(&self, line: &Line) -> Option<()> {
        let mut writing = self.writing();
        (!writing.has_ended).then(|| writing.write(&line.text()))
    }

    pub(crate) fn write(&self, line: &Line) {
        self.writing().write(&line.text());
    }

    /// Writes that a fault begins or ends.
    pub(crate) fn fault(&self, fault: &str, process: Option<u64>) {
        self.write(&Line::Fault(Fault { at: now(), fault: fault.to_owned(), process }));
    }

    /// Writes problems that the run has found itself.
    pub(crate) fn problems(&self, problems: impl IntoIterator<Item = String>) {
        problems.into_iter().for_each(|text| self.write(&Line::Problem(Text { text })));
    }

    /// Ends the workers that are threads of this process.
    pub(crate) fn end(&self) {
        let mut writing = self.writing();
        writing.write(&Line::End(End { at: now() }).text());
        writing.has_ended = true;
    }

    /// Returns the names that leave a state in the store, and of each watchdog whether it was kicked.
    pub(crate) fn named(&self) -> BTreeMap<(Kind, String), bool> {
        let mut named: BTreeMap<(Kind, String), bool> = BTreeMap::new();
        for call in self.operations() {
            if matches!(call.kind, Kind::Counter | Kind::Event | Kind::Latch | Kind::Watchdog) {
                let was_kicked = named.entry((call.kind, call.name)).or_default();
                *was_kicked |= call.call == Call::Kick && call.outcome == Outcome::Done;
            }
        }
        named
    }

    /// Returns the kinds of which a hold was released.
    pub(crate) fn released(&self) -> BTreeSet<Kind> {
        let released = self.operations().into_iter().filter(|call| call.outcome == Outcome::Released);
        released.map(|call| call.kind).collect()
    }

    fn operations(&self) -> Vec<Operation> {
        let lines = self.writing().reader().lines().map_while(Result::ok);
        let operation = |line: String| match Line::of(&line) {
            Some(Line::Operation(operation)) => Some(*operation),
            _ => None,
        };
        lines.filter_map(operation).collect()
    }

    /// Judges all that was written.
    pub(crate) fn judge(&self) -> Result<Verdict, Unreadable> {
        locker_checker::judge(self.writing().reader())
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    fn write(&mut self, line: &str) {
        writeln!(self.file, "{line}").expect("room for the history");
    }

    /// Returns the file from its start. It is to be read to its end, where the next line is written.
    fn reader(&mut self) -> BufReader<File> {
        let file = self.file.flush().and_then(|()| self.file.get_ref().try_clone());
        let mut file = file.expect("the file of the history");
        file.seek(SeekFrom::Start(0)).expect("the start of the history");
        BufReader::new(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let history = History::new(tempfile::tempfile().unwrap());
        let header = r#"{"type":"header","version":1,"store":"none","made_by":"hand","lease":1}"#;
        history.take(&format!("{header}\n"));
        history
    }

    fn addition(value: u64) -> Line {
        let mut call = Operation::new(1, Kind::Counter, "a", Call::Add, 10);
        (call.value, call.ended, call.outcome) = (Some(value), Some(20), Outcome::Done);
        Line::Operation(Box::new(call))
    }

    #[test]
    fn partial_line_is_ignored() {
        let (history, line) = (history(), addition(1).text());
        history.take(&format!("{line}\n"));
        history.take(&line);
        let verdict = history.judge().unwrap();
        assert_eq!((verdict.steps["counter"], verdict.problems), (1, vec![]));
    }

    #[test]
    fn own_problems_are_in_the_verdict() {
        let history = history();
        history.write(&addition(1));
        history.problems(["leak".to_owned()]);
        assert_eq!(history.judge().unwrap().problems[0].to_string(), "line 3: leak");
    }

    /// What was read of the store is written after what the workers did.
    #[test]
    fn names_are_read_before_more_is_written() {
        let history = history();
        history.write(&addition(1));
        assert_eq!(history.named(), BTreeMap::from([((Kind::Counter, "a".to_owned()), false)]));
        history.write(&addition(2));
        assert_eq!(history.judge().unwrap().steps["counter"], 2);
    }

    /// A thread that goes on may still be in a call: a process is killed there.
    #[test]
    fn threads_write_nothing_after_the_end() {
        let history = history();
        assert_eq!(history.say(&addition(1)), Some(()));
        history.end();
        assert_eq!(history.say(&addition(2)), None);
        assert_eq!(history.judge().unwrap().steps["counter"], 1);
    }
}
