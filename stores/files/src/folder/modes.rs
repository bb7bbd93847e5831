//! The permissions of files, and folders that are open.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, Dir, Mode, OFlags},
    io::Errno,
    path::Arg,
};
use std::fs::File;

/// The permissions of folders and of files: those of the directory for its owner and its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modes {
    pub(super) folder: Mode,
    pub(super) file: Mode,
}

impl Modes {
    /// Returns the permissions in the directory of a store.
    pub(super) fn of(root: &OwnedFd) -> Result<Self, Errno> {
        let shared = Mode::from_raw_mode(fs::fstat(root)?.st_mode) & Mode::RWXG;
        Ok(Self { folder: Mode::RWXU | shared, file: Mode::RUSR | Mode::WUSR | (shared - Mode::XGRP) })
    }

    /// Creates a folder unless it is there, and opens it.
    pub(super) fn folder(self, of: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
        match fs::mkdirat(of, name, self.folder) {
            Ok(()) => {
                let folder = open_folder(of, name)?;
                // The umask was applied to the mode, and a group that the directory passes on must stay.
                let inherited = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode) & Mode::SGID;
                fs::fchmod(&folder, self.folder | inherited)?;
                Ok(folder)
            }
            Err(Errno::EXIST) => open_folder(of, name),
            Err(errno) => Err(errno),
        }
    }

    /// Creates a file unless it is there, and opens it.
    pub(super) fn file(self, of: &OwnedFd, name: &str) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(of, name, flags | OFlags::CREATE | OFlags::EXCL, self.file) {
            Ok(file) => {
                fs::fchmod(&file, self.file)?;
                Ok(File::from(file))
            }
            Err(Errno::EXIST) => open_file(of, name),
            Err(errno) => Err(errno),
        }
    }
}

/// Opens a file for reading and appending.
pub(crate) fn open_file(of: &OwnedFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    fs::openat(of, name, flags, Mode::empty()).map(File::from)
}

/// Opens a folder.
pub(super) fn open_folder(of: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    fs::openat(of, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the names of what a folder contains.
pub(crate) fn names(folder: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        if let Ok(name) = entry?.file_name().to_str().map(str::to_owned)
            && name != "."
            && name != ".."
        {
            names.push(name);
        }
    }
    Ok(names)
}
