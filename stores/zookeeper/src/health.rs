//! Warns of releases of ZooKeeper that lose acknowledged writes.

use super::{errors::Failure, hosts::Servers};
use locker_core::{background, diagnostics};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The longest answer that is read.
const MAX_ANSWER: u64 = 64 << 10;

/// Asks the server that was connected to last, on a connection of its own, and warns if need be.
pub(super) async fn check(servers: Servers, limit: Duration) {
    tokio::select! {
        answer = ask(&servers) => {
            if let Some(warning) = answer.ok().and_then(|answer| warning(&answer)) {
                diagnostics::warn_aloud(&warning);
            }
        }
        () = background::sleep(limit) => {}
    }
}

/// Returns the answer to `srvr`, which each server gives unless its settings forbid that.
pub(super) async fn ask(servers: &Servers) -> Result<String, Failure> {
    let (mut stream, address) = servers.dial().await?;
    let failed = |error: std::io::Error| Failure::unsent(format!("ZooKeeper at {address}: {error}"));
    stream.write_all(b"srvr").await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).await.map_err(failed)?;
    Ok(answer)
}

pub(super) fn warning(answer: &str) -> Option<String> {
    let [major, minor, patch] = release(answer).filter(|_| loses_writes(answer))?;
    Some(format!(
        "ZooKeeper {major}.{minor}.{patch} can lose acknowledged writes, and locks with them, when servers are killed \
         one after the other (ZOOKEEPER-4643, ZOOKEEPER-4785): use 3.9.4 or later, or 3.8.5 or later of 3.8"
    ))
}

/// Returns whether an ensemble can lose acknowledged writes, by the answer of one server to `srvr`: its release takes
/// the epoch of a leader before the leader's transactions are on its disk (ZOOKEEPER-4643, mended by ZOOKEEPER-4785),
/// or has ZOOKEEPER-4925. See `scripts/zookeeper-loss.py`.
#[must_use]
pub fn loses_writes(answer: &str) -> bool {
    let keeps =
        |release| release >= [3, 9, 4] || release == [3, 9, 2] || ([3, 8, 5]..[3, 9, 0]).contains(&release);
    !answer.contains("Mode: standalone") && release(answer).is_some_and(|release| !keeps(release))
}

/// Returns the release that a server names.
pub(super) fn release(answer: &str) -> Option<[u32; 3]> {
    let (_, release) = answer.lines().next()?.split_once("version: ")?;
    let mut parts = release.split(|at: char| !at.is_ascii_digit()).map_while(|part| part.parse().ok());
    Some([parts.next()?, parts.next()?, parts.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_releases_that_lose_writes() {
        let warns = |release: &str, mode: &str| {
            let answer = format!("Zookeeper version: {release}-abc, built on 2022-02-25\nMode: {mode}\n");
            warning(&answer).is_some_and(|warning| warning.contains(release))
        };
        for release in ["3.6.0", "3.8.0", "3.8.4", "3.9.0", "3.9.1", "3.9.3"] {
            assert!(warns(release, "leader") && warns(release, "follower"), "{release}");
            assert!(!warns(release, "standalone"), "{release}: one server has only its own log");
        }
        for release in ["3.8.5", "3.8.10", "3.9.2", "3.9.4", "3.10.0", "4.0.0"] {
            assert!(!warns(release, "follower"), "{release}");
        }
        for answer in
            ["", "srvr is not executed because it is not in the whitelist.\n", "Zookeeper version: 3.x"]
        {
            assert_eq!(warning(answer), None);
        }
    }
}
