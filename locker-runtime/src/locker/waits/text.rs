//! The waits of a locker as text, and the holds whose traces it tells: a line each, of fields between tabs.

use super::MOST;
use crate::locker::{
    TraceContext,
    deadlock::{Around, Wait},
    holders::printable,
    traces::TracedHold,
};
use locker_core::{id::Id, key::Key};
use std::fmt::Write;

/// The first line. A text of another format is not read.
const FORMAT: &str = "waits 1";

/// What the line of a hold begins with. That of a wait begins with an id.
const HOLD: &str = "hold";

/// The maximum of bytes of a text, which every store takes.
const LONGEST: usize = 64 * 1024;

/// Returns the text of these waits and holds, empty if there are none. Those that do not fit are left out.
pub(super) fn write<'a>(waits: impl Iterator<Item = &'a Wait>, holds: &[TracedHold]) -> String {
    let mut text = String::new();
    for line in waits.filter_map(line).chain(holds.iter().filter_map(line_of_hold)) {
        if text.len() + line.len() < LONGEST - FORMAT.len() {
            text.push_str(if text.is_empty() { FORMAT } else { "" });
            text.push_str(&line);
        }
    }
    text
}

/// Whether a line can have it.
fn is_plain(key: &Key) -> bool {
    !key.as_str().contains(['\t', '\n'])
}

/// Returns `None` for a key that a line cannot have.
fn line(wait: &Wait) -> Option<String> {
    if !is_plain(&wait.key) {
        return None;
    }
    let plain = |text: &str| text.replace(['\t', '\n'], " ");
    let Wait { id, key, permits, fair, function, place, around } = wait;
    let mut line = format!("\n{id}\t{key}\t{permits}\t{fair}\t{}\t{}", plain(function), plain(place));
    for Around { key, fence, tag } in around.iter().filter(|hold| is_plain(&hold.key)) {
        write!(line, "\t{key}\t{fence}\t{tag:016x}").ok()?;
    }
    Some(line)
}

/// The context is written as W3C Trace Context has it, but for the version.
fn line_of_hold(TracedHold { hold, context }: &TracedHold) -> Option<String> {
    let (trace, rest) = context.split_first_chunk()?;
    let (span, flags) = rest.split_first_chunk()?;
    let (trace, span) = (u128::from_be_bytes(*trace), u64::from_be_bytes(*span));
    let line =
        || format!("\n{HOLD}\t{}\t{}\t{trace:032x}-{span:016x}-{:02x}", hold.key, hold.fence, flags[0]);
    is_plain(&hold.key).then(line)
}

/// Returns the lines of a text, none of one that no locker writes.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.len() <= LONGEST { text } else { "" };
    text.strip_prefix(FORMAT).unwrap_or_default().split('\n')
}

/// Returns the waits of the locker whose ids have this tag. Lines of others, and lines that cannot be read, are passed
/// over, and so are a text that no locker writes and lines beyond those of a locker.
pub(super) fn read(text: &str, tag: u64) -> Vec<Wait> {
    lines(text).filter_map(wait).filter(|wait| wait.id.tag() == tag).take(MOST).collect()
}

/// Returns the holds of the locker whose ids have this tag, in the same way.
pub(super) fn read_holds(text: &str, tag: u64) -> Vec<TracedHold> {
    lines(text).filter_map(|line| traced_hold(line, tag)).take(MOST).collect()
}

fn traced_hold(line: &str, tag: u64) -> Option<TracedHold> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[HOLD, key, fence, context] = &*fields else { return None };
    let hold = Around { key: Key::new(key), fence: fence.parse().ok()?, tag };
    Some(TracedHold { hold, context: trace_context(context)? })
}

fn trace_context(text: &str) -> Option<TraceContext> {
    let parts: Vec<&str> = text.split('-').collect();
    let &[trace, span, flags] = &*parts else { return None };
    let is_whole = [trace, span, flags].map(str::len) == [32, 16, 2] && !text.contains('+');
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| is_whole && *trace > 0)?.to_be_bytes();
    let span = u64::from_str_radix(span, 16).ok().filter(|span| *span > 0)?.to_be_bytes();
    let flags = u8::from_str_radix(flags, 16).ok()?;
    [&trace[..], &span, &[flags]].concat().try_into().ok()
}

fn wait(line: &str) -> Option<Wait> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (&[id, key, permits, fair, function, place], holds) = fields.split_first_chunk::<6>()?;
    let around = holds.chunks(3).map(hold).collect::<Option<_>>()?;
    Some(Wait {
        id: Id::parse(id)?,
        key: Key::new(key),
        permits: permits.parse().ok()?,
        fair: fair.parse().ok()?,
        function: printable(function.to_owned()),
        place: printable(place.to_owned()),
        around,
    })
}

fn hold(fields: &[&str]) -> Option<Around> {
    let &[key, fence, tag] = fields else { return None };
    let (fence, tag) = (fence.parse().ok()?, u64::from_str_radix(tag, 16).ok()?);
    Some(Around { key: Key::new(key), fence, tag })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(keys: &[&str]) -> (u64, Vec<Wait>) {
        let (locker, other) = (Id::random(), Id::random().tag());
        let around =
            |(fence, key): (usize, &&str)| Around { key: Key::new(key), fence: fence as u64, tag: other };
        let wait = |number: usize| Wait {
            id: Id::random_of(locker),
            key: Key::new(keys[number]),
            permits: 3,
            fair: number.is_multiple_of(2),
            function: "bank::withdraw".to_owned(),
            place: String::new(),
            around: keys[..number].iter().enumerate().map(around).collect(),
        };
        (locker.tag(), (0..keys.len()).map(wait).collect())
    }

    #[test]
    fn waits_are_read_as_written() {
        let (tag, waits) = waits(&["lock:a", "lock:ü b", "semaphore:{c}"]);
        let text = write(waits.iter(), &[]);
        assert_eq!(read(&text, tag), waits);
        assert!(read(&text, tag + 1).is_empty(), "another locker");
        assert_eq!(write([].iter(), &[]), "");
    }

    #[test]
    fn holds_are_read_as_written() {
        let (tag, waits) = waits(&["lock:a", "lock:b"]);
        let hold = |fence: u64, key: &str| TracedHold {
            hold: Around { key: Key::new(key), fence, tag },
            context: std::array::from_fn(|at| u8::try_from(at * 9).unwrap()),
        };
        let holds = [hold(1, "lock:ü b"), hold(u64::MAX, "lock:c")];
        let text = write(waits.iter(), &holds);
        assert!(text.ends_with("\t0009121b242d363f48515a636c757e87-9099a2abb4bdc6cf-d8"), "{text}");
        assert_eq!((read(&text, tag), read_holds(&text, tag)), (waits, holds.to_vec()));
        let text = write([].iter(), &[hold(1, "a\tb"), hold(2, "c")]);
        assert_eq!(read_holds(&text, tag), [hold(2, "c")], "a key that no line can have");
        let many: Vec<_> = (0..80).map(|fence| hold(fence, "c")).collect();
        assert_eq!(read_holds(&write([].iter(), &many), tag), many[..MOST]);
    }

    /// Any user of the store can write one.
    #[test]
    fn hostile_holds_are_passed_over() {
        let id = format!("{:032x}-{:016x}-01", 1, 1);
        let hold = |fence: &str, id: &str| format!("hold\ta\t{fence}\t{id}");
        let zeros = [0, 1].map(|trace| format!("{trace:032x}-{:016x}-01", 1 - trace));
        let ids = [
            "1-1",
            "ä-1-1",
            &format!("{id}-1"),
            &format!("f{id}"),
            &format!("+{}", &id[1..]),
            &zeros[0],
            &zeros[1],
        ];
        let lines = ["", "hold", "hold\ta\t1"].map(str::to_owned).into_iter();
        for line in lines.chain([hold("x", &id)]).chain(ids.map(|id| hold("1", id))) {
            assert_eq!(read_holds(&format!("{FORMAT}\n{line}"), 1), [], "{line}");
        }
        assert_eq!(read_holds(&format!("{FORMAT}\nhold\ta\t1\t{id}"), 1).len(), 1);
    }

    #[test]
    fn other_texts_have_no_waits() {
        let (tag, waits) = waits(&["lock:a", "lock:b"]);
        let text = write(waits.iter(), &[]);
        for other in
            ["", "waits 2", "waits 1\n", &text.replace("waits 1", "waits 2"), &text.replace('\t', " ")]
        {
            assert!(read(other, tag).is_empty(), "{other}");
        }
        let long = format!("{text}{}", "\n".repeat(LONGEST));
        assert!(read(&long, tag).is_empty(), "longer than any");
        let (half, _) = text.split_at(text.len() - 20);
        assert_eq!(read(half, tag), waits[..1], "a hold without its tag");
    }

    /// Any user of the store can write one, and errors show it.
    #[test]
    fn hostile_texts_cannot_move_the_cursor() {
        let (tag, mut waits) = waits(&["lock:a"]);
        waits[0].function = "bank\u{1b}[2Jpay".to_owned();
        waits[0].place = "src\r\u{7}.rs:1".to_owned();
        let told = &read(&write(waits.iter(), &[]), tag)[0];
        assert_eq!((&*told.function, &*told.place), ("bank [2Jpay", "src  .rs:1"));
    }

    /// What a look reads is bounded, whatever other users of the store write.
    #[test]
    fn hostile_texts_have_as_many_waits_as_others() {
        let (tag, many) = waits(&["k"; 80]);
        let (text, first) = (write(many.iter(), &[]), &many[..MOST]);
        assert_eq!(read(&text, tag), first);
    }

    #[test]
    fn keys_with_tabs_and_waits_beyond_the_size_are_left_out() {
        let (tag, some) = waits(&["a\tb", "lock:c"]);
        let read_again = read(&write(some.iter(), &[]), tag);
        assert_eq!(read_again.iter().map(|wait| wait.key.as_str()).collect::<Vec<_>>(), ["lock:c"]);
        assert!(read_again[0].around.is_empty());
        let long = "k".repeat(1_000);
        let (tag, many) = waits(&vec![&*long; 64]);
        let text = write(many.iter(), &[]);
        let told = read(&text, tag);
        assert!(text.len() <= LONGEST && told.len() > 5 && told == many[..told.len()], "{}", told.len());
    }
}
