//! What kind of server it is, and which are refused because the store could not keep its promises there.

use super::{
    answers::{literal, value},
    errors,
    session::Session,
};
use locker_core::error::{Error, ErrorKind, Result};
use std::{collections::HashMap, time::Duration};

/// What a store needs to know of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// An expression for what is different on each server.
    pub(super) server: &'static str,
    /// A literal of its value on this server: a replica may repeat the statement itself.
    pub(super) this_server: String,
    /// Whether a crash may lose writes that were answered.
    pub(super) is_lossy: bool,
    /// The maximum of bytes of one packet.
    pub(super) packet: usize,
}

/// The expression for [`Facts::is_lossy`].
pub(super) const IS_LOSSY: &str =
    "(@@GLOBAL.innodb_flush_log_at_trx_commit<>1 OR (@@GLOBAL.log_bin<>0 AND @@GLOBAL.sync_binlog<>1))";

/// The expression for how often a server writes its log that does not wait for the disk, in seconds.
pub(super) const FLUSH: &str = "@@GLOBAL.innodb_flush_log_at_timeout";

/// The maximum of that.
const MAX_FLUSH: u64 = 3;

/// Returns how long such a server may take to write its log. A crash must not lose what tells of losses, and keep what
/// is granted afterwards, or lose that alone.
pub(super) fn written_after(flush: Option<u64>) -> Result<Duration> {
    match flush {
        Some(seconds @ ..=MAX_FLUSH) => Ok(Duration::from_millis(1_000 * seconds.max(1) + 500)),
        _ => Err(Error::new(
            ErrorKind::Misused,
            format!(
                "innodb_flush_log_at_timeout is more than {MAX_FLUSH} s: set it to 1, or make the server wait for the \
                 disk (innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if there is a binary log)"
            ),
        )),
    }
}

/// A batch has at most that much.
const SMALLEST_PACKET: usize = 4 << 20;

/// The names of the variables that are asked for.
const ASKED: &str = "'binlog_format','group_replication_group_name','log_bin','max_allowed_packet',\
                     'version','version_comment','wsrep_on'";

/// Asks for the facts.
pub(super) async fn ask(session: &Session) -> Result<Facts> {
    let asked = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({ASKED})");
    let failed = |error: mysql_async::Error| errors::of_statement(&error).error;
    let variables = session.one(asked).await.map_err(failed)?.rows;
    let pair = |row| Some((value::<String>(row, 0)?.to_lowercase(), value::<String>(row, 1)?));
    let facts = of(&variables.iter().filter_map(pair).collect())?;
    let asked = format!("SELECT {},{IS_LOSSY}", facts.server);
    let rows = session.one(asked).await.map_err(failed)?.rows;
    let Some(name) = rows.first().and_then(|row| value::<Vec<u8>>(row, 0)) else {
        return Err(errors::lost("the server does not say which it is"));
    };
    let is_lossy = rows.first().and_then(|row| value::<i64>(row, 1)) != Some(0);
    Ok(Facts { this_server: literal(&name), is_lossy, ..facts })
}

fn of(variables: &HashMap<String, String>) -> Result<Facts> {
    let variable = |name: &str| variables.get(name).map_or("", String::as_str);
    let (version, comment) = (variable("version"), variable("version_comment"));
    if version.is_empty() || variable("max_allowed_packet").is_empty() {
        return Err(errors::lost("the server does not say what it is"));
    }
    let refused =
        |why: &str| Err(Error::new(ErrorKind::Misused, format!("{why} (this is {version} {comment})")));
    let all = format!("{version} {comment}").to_lowercase();
    for other in ["TiDB", "Vitess", "PlanetScale"] {
        if all.contains(&other.to_lowercase()) {
            return refused(&format!("{other} is no MySQL on which a store can keep its promises"));
        }
    }
    let is_mariadb = all.contains("mariadb");
    let least = if is_mariadb { [10, 6, 0] } else { [8, 0, 1] };
    if numbers(version) < least {
        return refused("MySQL 8.0.1 or MariaDB 10.6 is needed, for SKIP LOCKED");
    }
    if variable("wsrep_on") == "ON" {
        return refused(
            "a Galera cluster gives the same lock on several nodes: pass a server that stands alone",
        );
    }
    if !variable("group_replication_group_name").is_empty() {
        return refused(
            "the servers replicate as a group (Group Replication, InnoDB Cluster), which takes no table in memory: \
             whether a failover has lost a grant cannot be seen there",
        );
    }
    if variable("log_bin") == "ON" && variable("binlog_format") == "STATEMENT" {
        return refused(
            "binlog_format=STATEMENT cannot replicate the writes of a store: set binlog_format=ROW",
        );
    }
    let packet = variable("max_allowed_packet").parse().unwrap_or(0);
    if packet < SMALLEST_PACKET {
        return refused(&format!("max_allowed_packet is {packet}: a store needs at least {SMALLEST_PACKET}"));
    }
    let server = if is_mariadb { "CONCAT_WS('/',@@server_id,@@hostname,@@port)" } else { "@@server_uuid" };
    Ok(Facts { server, this_server: String::new(), is_lossy: true, packet })
}

/// Returns the first three numbers of a version.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    [(); 3].map(|()| numbers.next().and_then(Result::ok).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Result<Facts> {
        let known = [("version", "8.4.2"), ("max_allowed_packet", "67108864"), ("log_bin", "ON")];
        let pairs = known.iter().chain(pairs).map(|(name, value)| ((*name).into(), (*value).into()));
        of(&pairs.collect())
    }

    #[test]
    fn servers_are_refused_by_name() {
        for (pairs, expected) in [
            (&[("version", "8.0.11-TiDB-v7.5.0")][..], "TiDB"),
            (&[("version", "8.0.30-Vitess")], "Vitess"),
            (&[("version_comment", "PlanetScale")], "PlanetScale"),
            (&[("version", "5.7.44")], "8.0.1"),
            (&[("version", "10.5.9-MariaDB")], "10.6"),
            (&[("wsrep_on", "ON")], "Galera"),
            (&[("group_replication_group_name", "a")], "Group Replication"),
            (&[("binlog_format", "STATEMENT")], "STATEMENT"),
            (&[("max_allowed_packet", "1048576")], "max_allowed_packet"),
        ] {
            let error = facts(pairs).unwrap_err();
            assert!(error.kind() == ErrorKind::Misused && error.message().contains(expected), "{error}");
        }
    }

    #[test]
    fn servers_are_told_apart() {
        assert_eq!(facts(&[]).unwrap().server, "@@server_uuid");
        let maria = facts(&[("version", "10.11.19-MariaDB-0+deb12u1"), ("binlog_format", "MIXED")]).unwrap();
        assert!(maria.server.contains("@@server_id"));
        assert_eq!(maria.packet, 64 << 20);
    }
}
