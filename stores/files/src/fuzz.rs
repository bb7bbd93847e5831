//! What the fuzz target calls. A broken law is a panic.

use super::{
    log::{AppendOutcome, Log},
    record::{self, FIXED, HEAD, Head, Record},
};
use locker_core::clock::Timestamp;
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
};

/// Reads a log: as it is, and with the checksums that its bytes should have.
///
/// # Panics
/// If a law is broken.
pub fn file_log(bytes: &[u8]) {
    read(bytes);
    let mut mended = bytes.to_vec();
    if mend(&mut mended).is_some() {
        read(&mended);
    }
}

/// Makes heads and records of bytes that could be some.
fn mend(bytes: &mut [u8]) -> Option<()> {
    let head = bytes.first_chunk_mut::<HEAD>()?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    *head = Head { mark: number(&head[8..16]), base: number(&head[16..24]).cast_signed() }.bytes();
    let mark = head[8..16].to_owned();
    let mut at = HEAD;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let lengths = if rest.len() < FIXED { None } else { Record::lengths(rest) };
        at += match lengths {
            Some((len, _)) if len <= rest.len() => {
                rest[..8].copy_from_slice(&mark);
                let check = record::checksum(&rest[16..len]);
                rest[8..16].copy_from_slice(&check.to_le_bytes());
                len
            }
            _ => 1,
        };
    }
    Some(())
}

fn read(bytes: &[u8]) {
    let Some(head) = Head::read(bytes) else { return };
    assert_eq!(head.bytes(), bytes[..HEAD]);
    let log = replayed(head, bytes);
    assert!(log.seen <= bytes.len() as u64);
    let copy = Head { mark: head.mark ^ 1, base: head.base };
    let again = replayed(copy, &copied(&log, copy));
    assert_eq!(again.needed, log.needed);
    assert_eq!(versions(&again), versions(&log), "a copy of the log has other values");
    for (key, value) in &log.values {
        let values = [(&log, value), (&again, &again.values[key])].map(|(log, value)| {
            let mut bytes = vec![0; value.len as usize];
            log.file.read_exact_at(&mut bytes, value.at).expect("the value is in the file");
            bytes
        });
        assert_eq!(values[0], values[1]);
    }
}

fn versions(log: &Log) -> Vec<(&str, i64, Timestamp)> {
    log.values.iter().map(|(key, value)| (&**key, value.version, value.over_at)).collect()
}

/// Returns the log in a file, which has the records that all of the bytes have.
fn replayed(head: Head, bytes: &[u8]) -> Log {
    let file = File::from(memfd_create("log", MemfdFlags::empty()).expect("a file in memory"));
    (&file).write_all(bytes).expect("memory takes every write");
    let mut whole = unread(head, file.try_clone().expect("a file"));
    let mut log = unread(head, file);
    let (_, next) = log.replay(&mut Vec::new(), 0).expect("memory can be read");
    let mut from = HEAD;
    let mut sealed = None;
    while let (None, Ok((at, record))) = (sealed, record::next(bytes, head.mark, from, true)) {
        let outcome = whole.apply(&record, at as u64);
        from = at + record.len();
        whole.seen = from as u64;
        if record.kind == record::Kind::Seal && outcome != AppendOutcome::Lost {
            sealed = Some(record.nonce);
        }
    }
    assert_eq!((sealed, whole.seen, whole.needed), (next, log.seen, log.needed));
    assert_eq!(versions(&whole), versions(&log), "what is read depends on the pieces");
    log
}

fn unread(head: Head, file: File) -> Log {
    Log { file, head, id: None, seen: HEAD as u64, values: BTreeMap::new(), needed: 0, patience: 0 }
}

/// Returns the bytes of a new log with the values of this one.
fn copied(log: &Log, head: Head) -> Vec<u8> {
    let mut file = File::from(memfd_create("copy", MemfdFlags::empty()).expect("a file in memory"));
    log.copy(|_| true, head.mark, &file).expect("memory takes every write");
    file.seek(SeekFrom::Start(0)).expect("memory has places");
    let mut bytes = head.bytes().to_vec();
    file.read_to_end(&mut bytes).expect("memory can be read");
    bytes
}

#[cfg(test)]
mod tests {
    use locker_harness::corpus;

    #[test]
    fn corpus_of_logs_keeps_the_laws() {
        corpus("file_log", super::file_log);
    }
}
