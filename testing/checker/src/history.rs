//! A history that was read, with the numbers of its lines.

mod check;

use crate::format::{Call, End, Fault, Header, Kind, Line, Operation, Resource, Text, VERSION};
use check::check;
use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    error, fmt,
    io::BufRead,
};

/// The reason why a text is no history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The number of the line, from 1.
    line: usize,
    why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} cannot be read: {}", self.line, self.why)
    }
}

impl error::Error for Unreadable {}

/// Something with the number of its line.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) line: usize,
    pub(crate) it: T,
}

/// A call with the number of the last line about it.
pub(crate) type Called = At<Operation>;

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) header: Header,
    /// By kind and name, in the order of their first lines.
    pub(crate) calls: BTreeMap<(Kind, String), Vec<Called>>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) resources: Vec<At<Resource>>,
    pub(crate) problems: Vec<At<Text>>,
    /// The time up to which the callers are observed.
    pub(crate) end: u64,
}

impl History {
    /// Reads a history to its end.
    pub(crate) fn read(input: impl BufRead) -> Result<Self, Unreadable> {
        let (mut reader, mut line) = (Reader::default(), 0);
        for text in input.lines() {
            line += 1;
            let unreadable = |why: String| Unreadable { line, why };
            let text = text.map_err(|error| unreadable(error.to_string()))?;
            let read = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
            reader.take(line, read).map_err(unreadable)?;
        }
        let mut history =
            reader.history.ok_or(Unreadable { line: line + 1, why: "the header is missing".into() })?;
        history.end = reader.end.map_or_else(|| history.latest(), |end| end.at);
        Ok(history)
    }

    /// Returns the time of the first fault.
    pub(crate) fn calm_until(&self) -> u64 {
        if !self.header.calm {
            return 0;
        }
        self.faults.iter().map(|fault| fault.at).min().unwrap_or(u64::MAX)
    }

    /// Returns the latest time that callers or faults have.
    fn latest(&self) -> u64 {
        let calls = self.calls.values().flatten().filter(|call| call.it.call != Call::Read);
        let calls = calls.flat_map(|call| times(&call.it)).flatten();
        calls.chain(self.faults.iter().map(|fault| fault.at)).max().unwrap_or(0)
    }
}

/// Returns the times of a call, in the order that they must have.
fn times(call: &Operation) -> [Option<u64>; 5] {
    [Some(call.asked), call.entered, call.seen, call.left, call.ended]
}

#[derive(Debug, Default)]
struct Reader {
    history: Option<History>,
    end: Option<End>,
    /// The places of the calls that have an id.
    places: HashMap<(u64, u64), (Kind, String, usize)>,
}

impl Reader {
    fn take(&mut self, line: usize, read: Line) -> Result<(), String> {
        let Some(history) = &mut self.history else { return self.begin(read) };
        match read {
            Line::Header(_) => return Err("the header comes once".into()),
            Line::Operation(call) => return self.called(line, *call),
            Line::Fault(fault) => history.faults.push(fault),
            Line::Resource(resource) => history.resources.push(At { line, it: resource }),
            Line::Problem(problem) => history.problems.push(At { line, it: problem }),
            Line::End(end) => self.end = Some(end),
            Line::Note(_) => {}
        }
        Ok(())
    }

    fn begin(&mut self, read: Line) -> Result<(), String> {
        let Line::Header(header) = read else { return Err("the first line is no header".into()) };
        if header.version != VERSION {
            return Err(format!("version {}, but this program reads {VERSION}", header.version));
        }
        let (calls, faults, resources, problems) = Default::default();
        self.history = Some(History { header, calls, faults, resources, problems, end: 0 });
        Ok(())
    }

    fn called(&mut self, line: usize, call: Operation) -> Result<(), String> {
        check(&call)?;
        let calls = &mut self.history.as_mut().expect("it has begun").calls;
        let same = calls.entry((call.kind, call.name.clone())).or_default();
        let first = same.iter().find(|first| first.it.call != Call::Read);
        if let Some(first) = first.filter(|first| differs(&first.it, &call)) {
            return Err(format!("size or quota differs from line {}", first.line));
        }
        let new = (call.kind, call.name.clone(), same.len());
        let called = At { line, it: call };
        let Some(id) = called.it.id else {
            same.push(called);
            return Ok(());
        };
        match self.places.entry((called.it.process, id)) {
            Entry::Vacant(place) => {
                place.insert(new);
                same.push(called);
            }
            Entry::Occupied(place) => {
                let (kind, name, at) = place.get();
                if (*kind, name) != (called.it.kind, &called.it.name) || same[*at].it.call != called.it.call {
                    return Err("another call has this process and id".into());
                }
                same[*at] = called;
            }
        }
        Ok(())
    }
}

fn differs(one: &Operation, other: &Operation) -> bool {
    other.call != Call::Read && (one.size, one.quota) != (other.size, other.quota)
}
