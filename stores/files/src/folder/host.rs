//! What distinguishes a host and its boot, and which file systems are of one host.

use crate::errors::failed;
use locker_core::error::{Error, ErrorKind, Result};
use rustix::{fd::OwnedFd, fs};
use std::{
    fs::{read_link, read_to_string},
    path::Path,
    time::SystemTime,
};

/// File systems whose locks, sockets or appended writes are not those of one kernel, by `statfs(2)`.
const REFUSED: [(u32, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "a folder shared by VirtualBox"),
];

/// What distinguishes this host and boot. Tests invent others.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) boot: String,
    /// The time since the boot has an offset in each time namespace.
    pub(crate) time_namespace: String,
    /// Microseconds since 1970.
    pub(crate) wall: u64,
}

impl Host {
    pub(crate) fn this() -> Result<Self> {
        let boot = read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            let message = format!("cannot read the boot id of the host, mount /proc: {error}");
            Error::new(ErrorKind::Misused, message).with_source(error)
        })?;
        // Kernels without time namespaces have no such file.
        let namespace = read_link("/proc/self/ns/time").unwrap_or_default();
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
        Ok(Self {
            boot: boot.trim().to_owned(),
            time_namespace: namespace.display().to_string(),
            wall: u64::try_from(wall).unwrap_or(u64::MAX),
        })
    }
}

/// Refuses a file system that other hosts may share.
pub(super) fn refuse_network(root: &OwnedFd, path: &Path) -> Result<()> {
    let stat = fs::fstatfs(root).map_err(|errno| failed("look at the file system", path, errno))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "32 bits, of a type per platform"
    )]
    let found = stat.f_type as u32;
    match refused(found) {
        Some(name) => Err(Error::new(
            ErrorKind::Misused,
            format!(
                "the directory {} is on {name}, which other hosts may share: choose one of a local file system, such \
                 as /dev/shm or /run",
                path.display()
            ),
        )),
        None => Ok(()),
    }
}

/// Returns the name of a file system that is refused.
fn refused(number: u32) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the numbers of `linux/magic.h`.
    #[test]
    fn network_file_systems_are_refused() {
        let (nfs, cifs, fuse) = (0x6969, 0xff53_4d42, 0x6573_5546);
        assert_eq!([nfs, cifs, fuse].map(refused), [Some("NFS"), Some("CIFS"), Some("FUSE")]);
        let (tmpfs, ext4, xfs, btrfs, overlay) = (0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630);
        assert_eq!([tmpfs, ext4, xfs, btrfs, overlay].map(refused), [None; 5]);
    }
}
