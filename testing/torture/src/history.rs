//! The history of a run: lines of the workers and of this process, in a file that the checker reads.

use crate::clock::now;
use locker_checker::{
    Unreadable, Verdict,
    format::{Call, End, Fault, Kind, Line, Outcome, Text},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, BufWriter, Seek, SeekFrom, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Debug)]
pub(crate) struct History(Arc<Mutex<Writing>>);

#[derive(Debug)]
struct Writing {
    file: BufWriter<File>,
    has_ended: bool,
    /// The counters, events, latches and watchdogs, and whether a kick was taken.
    named: BTreeMap<(Kind, String), bool>,
}

impl History {
    /// Writes to an empty file.
    pub(crate) fn new(file: File) -> Self {
        let (file, named) = (BufWriter::new(file), BTreeMap::new());
        Self(Arc::new(Mutex::new(Writing { file, has_ended: false, named })))
    }

    /// Reads one line of a worker that is a process. The partial line of a killed worker is ignored.
    pub(crate) fn read(&self, line: &str) {
        if let Some(line) = Line::of(line) {
            self.write(&line);
        }
    }

    /// Writes the line of a worker that is a thread of this process. Returns `None` if it is to end.
    pub(crate) fn say(&self, line: &Line) -> Option<()> {
        let mut writing = self.writing();
        (!writing.has_ended).then(|| writing.write(line))
    }

    pub(crate) fn write(&self, line: &Line) {
        self.writing().write(line);
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
        writing.write(&Line::End(End { at: now() }));
        writing.has_ended = true;
    }

    /// Returns the names that leave a state in the store, and of each watchdog whether it was kicked.
    pub(crate) fn named(&self) -> BTreeMap<(Kind, String), bool> {
        self.writing().named.clone()
    }

    /// Judges all that was written.
    pub(crate) fn judge(&self) -> Result<Verdict, Unreadable> {
        let mut writing = self.writing();
        let file = writing.file.flush().and_then(|()| {
            let mut file = writing.file.get_ref().try_clone()?;
            file.seek(SeekFrom::Start(0)).map(|_| file)
        });
        locker_checker::judge(BufReader::new(file.expect("the file of the history")))
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    fn write(&mut self, line: &Line) {
        if let Line::Operation(call) = line {
            let leaves = matches!(call.kind, Kind::Counter | Kind::Event | Kind::Latch | Kind::Watchdog);
            if leaves && call.call != Call::Read {
                let was_kicked = self.named.entry((call.kind, call.name.clone())).or_default();
                *was_kicked |= call.call == Call::Kick && call.outcome == Outcome::Done;
            }
        }
        writeln!(self.file, "{}", line.text()).expect("room for the history");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use locker_checker::format::Operation;

    fn history() -> History {
        let history = History::new(tempfile::tempfile().unwrap());
        history.read(r#"{"type":"header","version":1,"store":"none","made_by":"hand","lease":1}"#);
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
        history.read(&line);
        history.read(&line[..line.len() - 1]);
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
