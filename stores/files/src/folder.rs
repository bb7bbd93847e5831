//! The directory of a store, its clock, and whose files are refused.
//!
//! ```text
//! DIR/floor.<microseconds>     fences that were granted are below the highest of these, also after a reboot
//! DIR/<boot id>/               all else, of one boot of the host
//!     clock                    the offset that makes the time since the boot the time of the store
//!     logs/<2 digits>          a log, see `shard.rs`
//!     inbox/<8 digits>         the socket of a process, see `inbox.rs`
//!     new/                     files that are linked to their names when they are complete
//! ```
//!
//! After a reboot the first process creates the folder of the new boot; values of earlier boots are not read again. All
//! files of a boot are made complete and then linked to their names, so the first of several processes wins, and all
//! read what it wrote.

mod host;
mod identity;
mod modes;

use super::errors::{errno, failed};
#[cfg(test)]
use super::tests::Pauses;
pub(super) use host::Host;
use identity::Identity;
use locker_core::{
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
};
use modes::{Modes, open_folder};
pub(super) use modes::{names, open_file};
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, FlockOperation},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The number of logs. It is part of the format of the directory.
pub(super) const SHARDS: usize = 64;

/// How far the floor that is kept for the time after a reboot is ahead of the clock.
const FLOOR_AHEAD: u64 = 180_000_000;

/// The file that is locked by the process that sweeps. Its time of change is that of the last sweep.
const SWEEP_LOCK: &str = "sweep.lock";

/// The open directory of a store.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    root: OwnedFd,
    boot: String,
    /// The folder of this boot. Its lock says that a process uses it.
    of_boot: OwnedFd,
    pub(super) logs: OwnedFd,
    identity: Identity,
    pub(super) inbox: OwnedFd,
    new: OwnedFd,
    modes: Modes,
    /// What is added to the time since the boot.
    offset: u64,
    #[cfg(test)]
    pub(super) pauses: std::sync::Arc<Pauses>,
}

impl Folder {
    pub(super) fn open(path: PathBuf, host: &Host) -> Result<Self> {
        let fail = |doing, errno| failed(doing, &path, errno);
        create(&path)?;
        let root = open_folder(fs::CWD, &path).map_err(|errno| fail("open files", errno))?;
        host::refuse_network(&root, &path)?;
        let modes = Modes::of(&root).map_err(|errno| fail("look at the permissions", errno))?;
        let folder =
            |of: &OwnedFd, name: &str| modes.folder(of, name).map_err(|errno| fail("create a folder", errno));
        let of_boot = folder(&root, &host.boot)?;
        // `systemd-tmpfiles` removes nothing from a directory that is locked.
        let _ = fs::flock(&root, FlockOperation::NonBlockingLockShared);
        fs::flock(&of_boot, FlockOperation::NonBlockingLockShared)
            .map_err(|errno| fail("lock a folder", errno))?;
        let (logs, inbox, new) =
            (folder(&of_boot, "logs")?, folder(&of_boot, "inbox")?, folder(&of_boot, "new")?);
        let identity = Identity::new(path.join(&host.boot).join("logs"), &logs)
            .map_err(|errno| fail("look at a folder", errno))?;
        let mut this = Self {
            boot: host.boot.clone(),
            of_boot,
            root,
            logs,
            identity,
            inbox,
            new,
            modes,
            offset: 0,
            #[cfg(test)]
            pauses: Pauses::of(&path),
            path,
        };
        this.refuse_other_kernels()?;
        this.touch(&this.of_boot, SWEEP_LOCK).map_err(|errno| this.failed("create a file", errno))?;
        this.offset = this.agreed_offset(host)?;
        this.raise_floor()?;
        Ok(this)
    }

    /// Returns the present time on the clock of all processes.
    pub(super) fn now(&self) -> Timestamp {
        #[cfg(test)]
        let ahead = self.pauses.ahead.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        let ahead = 0;
        Timestamp::from_micros(self.offset + since_boot() + ahead)
    }

    /// Returns the error of a call that was not carried out.
    pub(super) fn failed(&self, doing: &str, errno: Errno) -> Error {
        failed(doing, &self.path, errno)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns an error if the path leads to other files now, which processes that come later would use.
    pub(super) fn check_identity(&self) -> Result<()> {
        self.identity.check(&self.path)
    }

    /// Returns the path of a log, for messages.
    pub(super) fn log_path(&self, name: &str) -> String {
        self.path.join(&self.boot).join("logs").join(name).display().to_string()
    }

    /// Lets a test act at this point of the work of another process.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only tests pause"))]
    pub(super) fn pause(&self, point: &'static str) {
        #[cfg(test)]
        self.pauses.at(point);
        #[cfg(not(test))]
        let _ = point;
    }

    /// Creates a file with what `write` writes, unless one has its name.
    pub(super) fn create(
        &self,
        of: &OwnedFd,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), Errno> {
        let draft = self.draft(write)?;
        let linked = fs::linkat(&self.new, &*draft, of, name, AtFlags::empty());
        let _ = fs::unlinkat(&self.new, &*draft, AtFlags::empty());
        linked.or_else(|errno| if errno == Errno::EXIST { Ok(()) } else { Err(errno) })
    }

    /// Writes a file that has no name yet but a random one in `new`.
    fn draft(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<String, Errno> {
        let name = format!("{:016x}", random());
        let mut file = self.modes.file(&self.new, &name)?;
        match write(&mut file) {
            Ok(()) => Ok(name),
            Err(error) => {
                let _ = fs::unlinkat(&self.new, &*name, AtFlags::empty());
                Err(errno(&error))
            }
        }
    }

    /// Locks the file `name`, which is created if it is missing. Returns `None` if another process has it locked.
    pub(super) fn lock(&self, of: &OwnedFd, name: &str) -> Result<Option<Locked>, Errno> {
        let file = self.modes.file(of, name)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Locks the work that one process does for all.
    pub(super) fn lock_sweep(&self) -> Result<Option<Locked>, Errno> {
        self.lock(&self.of_boot, SWEEP_LOCK)
    }

    /// Whether a process has swept within this time, or was the first to open the directory.
    pub(super) fn swept_within(&self, time: Duration) -> bool {
        let file = open_file(&self.of_boot, SWEEP_LOCK);
        let modified = file.map_err(io::Error::from).and_then(|file| file.metadata()?.modified());
        modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|elapsed| elapsed < time))
    }

    /// Creates an empty file unless it is there.
    pub(super) fn touch(&self, of: &OwnedFd, name: &str) -> Result<(), Errno> {
        self.modes.file(of, name).map(drop)
    }

    /// Gives the socket `name` the permissions of files.
    pub(super) fn share_socket(&self, name: &str) -> Result<(), Errno> {
        fs::chmodat(&self.inbox, name, self.modes.file, AtFlags::empty())
    }

    /// Refuses a directory that processes of another kernel use: their boot id is another one, and so is their clock.
    fn refuse_other_kernels(&self) -> Result<()> {
        for name in self.other_boots()? {
            let Ok(other) = open_folder(&self.root, &name) else { continue };
            if fs::flock(&other, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                let message = format!(
                    "the directory {} is in use by processes with another boot id: a virtual machine or a sandbox \
                     with a kernel of its own cannot share it",
                    self.path.display()
                );
                return Err(Error::new(ErrorKind::Misused, message));
            }
        }
        Ok(())
    }

    /// Returns the folders of other boots.
    pub(super) fn other_boots(&self) -> Result<Vec<String>> {
        let is_boot = |name: &String| {
            let is_id = name.len() == 36 && name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
            is_id && *name != self.boot
        };
        Ok(names(&self.root)
            .map_err(|errno| self.failed("list files", errno))?
            .into_iter()
            .filter(is_boot)
            .collect())
    }

    /// Removes the folders of earlier boots.
    pub(super) fn remove_other_boots(&self) -> Result<()> {
        for name in self.other_boots()? {
            let Ok(other) = open_folder(&self.root, &name) else { continue };
            // Nobody opens a folder of another boot to use it.
            if fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = std::fs::remove_dir_all(self.path.join(name));
            }
        }
        Ok(())
    }

    /// Reads the offset of the clock, which the first process of this boot has written.
    fn agreed_offset(&self, host: &Host) -> Result<u64> {
        let fail = |errno| self.failed("create the clock", errno);
        let mine = host.wall.max(self.floor()?).saturating_sub(since_boot());
        let text = format!("{mine} {}\n", host.time_namespace);
        self.create(&self.of_boot, "clock", |file| file.write_all(text.as_bytes())).map_err(fail)?;
        let mut agreed = String::new();
        let mut file = open_file(&self.of_boot, "clock").map_err(fail)?;
        file.read_to_string(&mut agreed).map_err(|error| fail(errno(&error)))?;
        let parts =
            agreed.trim_end().split_once(' ').and_then(|(offset, rest)| Some((offset.parse().ok()?, rest)));
        let Some((offset, namespace)) = parts else { return Err(fail(Errno::IO)) };
        if namespace != host.time_namespace {
            let message = format!(
                "the directory {} is in use by processes of another time namespace, whose clock is another one",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Misused, message));
        }
        Ok(offset)
    }

    /// Returns the floor that was kept last.
    fn floor(&self) -> Result<u64> {
        let names = names(&self.root).map_err(|errno| self.failed("list files", errno))?;
        Ok(names.iter().filter_map(|name| floor_of(name)).max().unwrap_or_default())
    }

    /// Keeps a floor for the time after a reboot, on the disk.
    pub(super) fn raise_floor(&self) -> Result<()> {
        let fail = |errno| self.failed("keep a floor of the fences", errno);
        let (now, present) = (self.now().as_micros(), self.floor()?);
        if present > now + FLOOR_AHEAD / 2 {
            return Ok(());
        }
        let floor = now + FLOOR_AHEAD;
        self.create(&self.root, &format!("floor.{floor:020}"), |_| Ok(())).map_err(fail)?;
        self.pause("before the sync");
        fs::fsync(&self.root).map_err(fail)?;
        for name in names(&self.root).map_err(fail)? {
            if floor_of(&name).is_some_and(|other| other < floor) {
                let _ = fs::unlinkat(&self.root, &*name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Returns the names of the drafts.
    pub(super) fn drafts(&self) -> Vec<String> {
        names(&self.new).unwrap_or_default()
    }

    pub(super) fn remove_draft(&self, name: &str) {
        let _ = fs::unlinkat(&self.new, name, AtFlags::empty());
    }
}

/// A file that is locked while this value lives.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// Notes the time in the file.
    pub(super) fn note_time(&self) {
        let _ = self.0.set_modified(SystemTime::now());
    }
}

/// A child that was forked in the meantime has the file open, too, so closing it here would not unlock it.
impl Drop for Locked {
    fn drop(&mut self) {
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Creates the directory, for this user only, unless it is there.
fn create(path: &Path) -> Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if path.exists() && !path.is_dir() => {
            Err(failed("keep files", path, Errno::NOTDIR).with_source(error))
        }
        Err(error) => Err(failed("keep files", path, errno(&error))),
    }
}

fn floor_of(name: &str) -> Option<u64> {
    name.strip_prefix("floor.")?.parse().ok()
}

/// Microseconds since the boot, including the time that the machine was suspended.
fn since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

pub(super) fn random() -> u64 {
    getrandom::u64().expect("the operating system has no random numbers")
}
