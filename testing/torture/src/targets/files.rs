//! A directory that the processes of this host share.

use super::{Disk, Target};
use tempfile::TempDir;

pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn start() -> Self {
        Self(tempfile::tempdir().expect("a directory for the store"))
    }
}

impl Target for Files {
    fn disk(&self) -> Disk {
        Disk::OfWorkers
    }

    fn url(&self) -> String {
        format!("file://{}/store", self.0.path().display())
    }
}
