//! The rest of a file, read in pieces: it may be long.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
};

/// The sizes of the first piece and of the largest.
const SIZES: [usize; 2] = [8 * 1024, 1 << 20];

/// What is read, into a buffer that is used again.
pub(super) struct Pieces<'a> {
    buffer: &'a mut Vec<u8>,
    /// The bytes in the buffer that were read, and where they begin in the file.
    len: usize,
    start: u64,
    /// The size of the next piece.
    size: usize,
}

/// Bytes of the file.
pub(super) struct Piece<'a> {
    /// Where they begin in the file.
    pub(super) start: u64,
    pub(super) bytes: &'a [u8],
    /// Whether the file ends with them.
    pub(super) is_last: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(buffer: &'a mut Vec<u8>, start: u64) -> Self {
        Self { buffer, len: 0, start, size: SIZES[0] }
    }

    /// Reads on. The piece begins with the bytes of the one before from `kept` on.
    pub(super) fn next(&mut self, file: &File, kept: usize) -> io::Result<Piece<'_>> {
        self.buffer.copy_within(kept..self.len, 0);
        self.len -= kept;
        self.start += kept as u64;
        let end = self.len + self.size;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.size = (2 * self.size).min(SIZES[1]);
        let is_last = self.fill(file, end)?;
        Ok(Piece { start: self.start, bytes: &self.buffer[..self.len], is_last })
    }

    /// Reads up to `end` in the buffer. Returns whether the file ends before.
    fn fill(&mut self, file: &File, end: usize) -> io::Result<bool> {
        loop {
            match file.read_at(&mut self.buffer[self.len..end], self.start + self.len as u64) {
                Ok(read) => {
                    self.len += read;
                    return Ok(self.len < end);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
