//! What a worker records: lines of the history on its output.

use crate::{clock::now, history::History};
use locker_checker::format::{Call, Kind, Line, Operation, Text};
use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

/// Where the lines of one worker go.
#[derive(Debug)]
pub(crate) struct Record {
    worker: u64,
    calls: AtomicU64,
    /// The history of this process. A process of a worker's own has none, and prints its lines.
    history: Option<History>,
}

impl Record {
    pub(crate) fn new(worker: u64, history: Option<History>) -> Self {
        Self { worker, calls: AtomicU64::new(0), history }
    }

    /// Begins a call.
    pub(crate) fn call(&self, kind: Kind, name: &str, call: Call) -> Operation {
        let id = Some(self.calls.fetch_add(1, Ordering::Relaxed));
        Operation { id, ..Operation::new(self.worker, kind, name, call, now()) }
    }

    /// Records what is known about a call. Returns `None` if nobody listens any more.
    pub(crate) fn say(&self, call: &Operation) -> Option<()> {
        self.write(&Line::Operation(Box::new(call.clone())))
    }

    /// Records a problem. Returns `None` if nobody listens any more.
    pub(crate) fn problem(&self, text: String) -> Option<()> {
        self.write(&Line::Problem(Text { text }))
    }

    fn write(&self, line: &Line) -> Option<()> {
        if let Some(history) = &self.history {
            return history.say(line);
        }
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", line.text()).and_then(|()| output.flush()).ok()
    }
}
