//! What the tests share that read the repository, and the programs of the pages under `docs/`, compiled and run as
//! documentation tests.

use std::path::Path;

/// The folders of the packages that are published, other than the root.
pub const PACKAGES: [&str; 12] = [
    "clients/python",
    "locker-core",
    "locker-macros",
    "locker-runtime",
    "locker-server",
    "stores/cas",
    "stores/etcd",
    "stores/files",
    "stores/mysql",
    "stores/postgres",
    "stores/zookeeper",
    "stores/redis",
];

/// Returns the root of the repository.
///
/// # Panics
/// If this package is not in it.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

/// The guide to the attributes, whose programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/reference/attributes.md")]
pub struct GuideToTheAttributes;

/// The page on leaders, whose programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/elect-a-leader.md")]
pub struct GuideToLeaders;

/// The page on runs once per slot, whose programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/run-once.md")]
pub struct GuideToRunsOncePerSlot;

/// The page on repeated calls, whose programs are compiled and run.
#[cfg(all(doctest, feature = "idempotent"))]
#[doc = include_str!("../docs/how-to/repeat-calls.md")]
pub struct GuideToRepeatedCalls;

/// The page on errors, whose programs are compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/handle-errors.md")]
pub struct GuideToErrors;

/// The page on the primitives, whose examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/reference/primitives.md")]
pub struct GuideToThePrimitives;

/// The page on files, whose example is compiled and run.
#[cfg(all(doctest, feature = "files"))]
#[doc = include_str!("../docs/reference/files.md")]
pub struct GuideToFiles;

/// The page on waits, whose program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/explain-a-wait.md")]
pub struct GuideToWaits;

#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/go-to-production.md")]
pub struct GuideToOperations;

#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/test.md")]
pub struct GuideToTesting;

#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/migrate/python-decorator.md")]
pub struct GuideToMigrating;
