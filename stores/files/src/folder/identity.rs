//! Whether the path of a directory still leads to it.

use crate::errors::failed;
use locker_core::error::{Error, ErrorKind, Result};
use rustix::{
    fd::OwnedFd,
    fs::{self, Stat},
    io::Errno,
};
use std::path::{Path, PathBuf};

/// The innermost folder that all processes use, by its path and by its number.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    number: Number,
}

/// What distinguishes a folder from all others of the host.
type Number = (u64, u64);

impl Identity {
    pub(super) fn new(path: PathBuf, folder: &OwnedFd) -> Result<Self, Errno> {
        Ok(Self { path, number: number(&fs::fstat(folder)?) })
    }

    /// Returns an error if another process that opens `dir` now would open another folder.
    pub(super) fn check(&self, dir: &Path) -> Result<()> {
        match fs::stat(&self.path) {
            Ok(stat) if number(&stat) == self.number => Ok(()),
            Ok(_) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the directory {} is another one now: it was moved, or something was mounted over it; open the \
                     store anew",
                    dir.display()
                ),
            )),
            Err(errno) => Err(failed("find the files", dir, errno)),
        }
    }
}

#[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "of a type per platform")]
fn number(stat: &Stat) -> Number {
    (stat.st_dev as u64, stat.st_ino as u64)
}
