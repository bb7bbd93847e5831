//! Errors of files.

use locker_core::error::{Error, ErrorKind};
use rustix::io::Errno;
use std::{io, path::Path};

/// Returns the error of a call of the system that was not carried out.
pub(super) fn failed(doing: &str, dir: &Path, errno: Errno) -> Error {
    let (kind, hint) = match errno {
        Errno::NOSPC => (ErrorKind::Unavailable, ": free space on its file system; the former value is kept"),
        Errno::DQUOT => (ErrorKind::Unavailable, ": raise the disk quota; the former value is kept"),
        Errno::MFILE => {
            (ErrorKind::Unavailable, ": raise the limit of open files of this process (ulimit -n)")
        }
        Errno::NFILE => {
            (ErrorKind::Unavailable, ": raise the limit of open files of this host (fs.file-max)")
        }
        Errno::ACCESS | Errno::PERM => {
            (ErrorKind::Misused, ": this user needs the permissions to read, write and search there")
        }
        Errno::ROFS => (ErrorKind::Misused, ": it must be writable"),
        Errno::NOTDIR => (ErrorKind::Misused, ": it is not a directory"),
        Errno::NOENT => (ErrorKind::Unavailable, ": it was removed or moved; open the store anew"),
        _ => (ErrorKind::Unavailable, ""),
    };
    let message = format!("cannot {doing} in the directory {}{hint}: {errno}", dir.display());
    Error::new(kind, message).with_source(io::Error::from(errno))
}

/// Returns the number of an error of the standard library.
pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
