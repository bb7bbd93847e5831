//! The statements.
//!
//! Writes name the version that they replace, and need the row of `locker_boot` that the process knows. Values are in
//! them as hexadecimal literals, so that several statements go in one packet. A write waits for no row: one that
//! another transaction has locked counts as lost.

use super::{
    answers::literal,
    errors::code::{EXECUTION_TIME, INTERRUPTED},
    facts::{FLUSH, Facts, IS_LOSSY},
};
use locker_cas::{
    ABSENT, Inbox, Message, Version,
    served::{Exchange, List, Numbers, SLACK},
};
use locker_core::id::Id;

/// The time of the server in microseconds.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// The columns of a `StoreState`, of `locker_meta` as `m` and `locker_boot` as `b`.
const STORE_STATE: &str = "m.fence,m.removals,m.longest,m.quick,m.quiet_until,b.id";

/// The seconds between two sweeps.
pub(super) const SWEEP_SECONDS: u64 = 60;

/// How long a process waits in one statement for messages, in seconds. Others notice its end a little later than that.
pub(super) const LONGEST_WAIT: u64 = 1;

impl Facts {
    /// Returns the condition that the epoch is the one with this id.
    fn in_epoch(&self, id: i64) -> String {
        format!("EXISTS (SELECT 1 FROM locker_boot WHERE id={id} AND server={})", self.server)
    }

    /// Returns the tables of a `StoreState`. A replica that was promoted may still get the row of its primary, and what
    /// that says of quiet times: it has no epoch then.
    fn tables(&self) -> String {
        let server = self.server;
        format!("locker_meta m LEFT JOIN locker_boot b ON b.server={server} AND m.server={server}")
    }

    /// Writes a value: the id that is inserted is the new version.
    pub(super) fn write(&self, exchange: &Exchange) -> String {
        let key = literal(exchange.key().as_bytes());
        let value = literal(exchange.write.value.as_deref().unwrap_or_default());
        let Numbers { lasts, fence, held_until } = exchange.numbers();
        let (epoch, version) = (self.in_epoch(exchange.epoch), exchange.write.expected);
        if version == ABSENT {
            // The row is looked for in the snapshot that has the removals: a removal that commits later refuses.
            let removals = exchange.removals;
            return format!(
                "INSERT IGNORE INTO locker_keys (`key`,version,state,over_at,fence,held_until) \
                 SELECT {key},LAST_INSERT_ID({NOW}),{value},{NOW}+{lasts},{fence},{held_until} FROM locker_meta \
                 WHERE removals={removals} AND {epoch} \
                 AND NOT EXISTS (SELECT 1 FROM locker_keys WHERE `key`={key})"
            );
        }
        // Without the limit, MySQL waits for a row that is locked.
        format!(
            "UPDATE locker_keys k JOIN (SELECT `key` FROM locker_keys WHERE `key`={key} AND version={version} \
             AND {epoch} LIMIT 1 FOR UPDATE SKIP LOCKED) x ON x.`key`=k.`key` \
             SET k.version=LAST_INSERT_ID(GREATEST(k.version+1,{NOW})),k.state={value},k.over_at={NOW}+{lasts},\
             k.fence=GREATEST(k.fence,{fence}),k.held_until={held_until}"
        )
    }

    /// Reads a key and the state of the store: version, value unless the version is the expected one, and the state.
    pub(super) fn look(&self, key: &str, expected: Version) -> String {
        let key = literal(key.as_bytes());
        format!(
            "SELECT k.version,IF(k.version={expected},NULL,k.state),{NOW},{STORE_STATE} \
             FROM {} LEFT JOIN locker_keys k ON k.`key`={key}",
            self.tables()
        )
    }

    /// Returns the state of the store, whether a crash may lose writes, and whether the server takes writes.
    pub(super) fn sample(&self) -> String {
        format!("SELECT {NOW},{STORE_STATE},{IS_LOSSY},@@GLOBAL.read_only FROM {}", self.tables())
    }

    /// Raises the longest hold, in an epoch. Others do not rely on it before it is on the disk.
    pub(super) fn raise(&self, longest: i64, epoch: i64) -> String {
        let (condition, quick) = (self.in_epoch(epoch), if self.is_lossy { ",quick=2" } else { "" });
        format!("UPDATE locker_meta SET longest={longest}{quick} WHERE longest<{longest} AND {condition}")
    }

    /// Returns whether this is the epoch, and how often the server writes its log. Returns no row if there is none that
    /// can be raised.
    pub(super) fn is_raised(&self, epoch: i64) -> String {
        format!("SELECT {},{FLUSH} FROM locker_meta WHERE server={}", self.in_epoch(epoch), self.server)
    }

    /// Records that this server begins an epoch, unless it has one. If writes may have been lost, a quiet time begins:
    /// until the longest hold that was ever granted is over.
    pub(super) fn begin_epoch(&self) -> String {
        let Self { server, this_server, is_lossy, .. } = self;
        // The clock may have been ahead when an earlier quiet time began.
        let over = format!("{NOW}+longest+{SLACK}");
        format!(
            "UPDATE locker_meta SET quiet_until=IF(server IN ({server},'new') AND quick=0 AND NOT {is_lossy},\
             LEAST(quiet_until,{over}),{over}),server={this_server} \
             WHERE NOT EXISTS (SELECT 1 FROM locker_boot WHERE server={server})"
        )
    }

    /// Makes the row of the first epoch of new tables, before `locker_meta` is there.
    pub(super) fn mark_new_epoch(&self) -> String {
        format!(
            "{} AND NOT EXISTS (SELECT 1 FROM locker_keys) AND NOT EXISTS (SELECT 1 FROM information_schema.tables \
             WHERE table_schema=DATABASE() AND table_name='locker_meta')",
            self.mark_epoch()
        )
    }

    /// Makes the row of an epoch, if there is none. No replica can have one with this id: it may have rows that were
    /// lost here.
    pub(super) fn mark_epoch(&self) -> String {
        let (id, server) = (Id::random().low_half() >> 1, &self.this_server);
        format!(
            "INSERT INTO locker_boot (id,server) SELECT {id},{server} FROM DUAL \
             WHERE NOT EXISTS (SELECT 1 FROM locker_boot WHERE server={server})"
        )
    }

    /// Returns whether an epoch of this server is marked that has begun, and whether any is marked.
    pub(super) fn marks(&self) -> String {
        let tables = self.tables();
        format!(
            "SELECT EXISTS (SELECT b.id FROM {tables} WHERE b.id IS NOT NULL),EXISTS (SELECT 1 FROM locker_boot)"
        )
    }
}

/// Says that the row is on the disk, unless the longest hold was raised since it was this one.
pub(super) fn written(longest: i64) -> String {
    format!("UPDATE locker_meta SET quick=1 WHERE quick=2 AND longest={longest}")
}

/// Ends the epochs. As a statement for replicas, too: one that was started anew has no rows, and would stop at the
/// removal of one.
pub(super) const UNMARK_EPOCH: &str = "TRUNCATE TABLE locker_boot";

/// Adds messages, if the statement before has changed one row.
pub(super) fn mail_after(messages: &[Message]) -> String {
    let rows: Vec<_> = messages.iter().enumerate().map(|(at, message)| row(at, message)).collect();
    let rows = rows.join(" UNION ALL ");
    format!(
        "INSERT INTO locker_mail (inbox,at,text) SELECT m.inbox,{NOW},m.text FROM ({rows}) m WHERE ROW_COUNT()=1"
    )
}

fn row(at: usize, Message { to, text }: &Message) -> String {
    let (text, names) =
        (literal(text.as_bytes()), if at == 0 { [" AS inbox", " AS text"] } else { ["", ""] });
    format!("SELECT {to}{},{text}{}", names[0], names[1])
}

/// Adds messages.
pub(super) fn mail<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let row = |message: &Message| format!("({},{NOW},{})", message.to, literal(message.text.as_bytes()));
    let rows: Vec<_> = messages.into_iter().map(row).collect();
    format!("INSERT INTO locker_mail (inbox,at,text) VALUES {}", rows.join(","))
}

/// Returns the name of the lock that the process with this inbox holds, so that others see that it lives. Names are
/// those of the server, whatever database.
fn name_of(inbox: Inbox) -> String {
    format!("CONCAT('locker_',LEFT(SHA2(LOWER(DATABASE()),256),16),'_{inbox:08x}')")
}

/// Returns the connections that have the locks of these inboxes.
pub(super) fn owners(inboxes: &[Inbox]) -> String {
    let owners: Vec<_> = inboxes.iter().map(|inbox| format!("IS_USED_LOCK({})", name_of(*inbox))).collect();
    format!("SELECT {}", owners.join(","))
}

/// Wakes the process with this inbox: error 1094 if there is none.
pub(super) fn wake(inbox: Inbox) -> String {
    format!("KILL QUERY IS_USED_LOCK({})", name_of(inbox))
}

/// Takes the lock of this inbox for the connection, if it is free.
pub(super) fn claim(inbox: Inbox) -> String {
    format!("SELECT GET_LOCK({},0)", name_of(inbox))
}

/// Takes the bell.
pub(super) fn hang(bell: Id) -> String {
    format!("SELECT GET_LOCK('locker_bell_{bell}',0)")
}

/// Waits until there is a message that was not heard, until it is woken, or for some seconds: for the bell, which
/// another connection of this process has. Returns 1 if that connection has lost it.
///
/// Not by `SLEEP`: on MariaDB, two that wake it at once stop the whole server for a second. Who is woken there has a
/// mutex of all that sleep, and wants one that its killer has, who tries to get that of all for so long.
pub(super) fn wait(inbox: Inbox, heard: &[u64], bell: Id) -> String {
    format!(
        "SELECT IF(EXISTS(SELECT 1 FROM locker_mail WHERE inbox={inbox}{}),0,\
         GET_LOCK('locker_bell_{bell}',{LONGEST_WAIT}))",
        not_in(heard)
    )
}

/// Returns the messages that were not heard.
pub(super) fn hear(inbox: Inbox, heard: &[u64]) -> String {
    format!("SELECT id,text FROM locker_mail WHERE inbox={inbox}{} ORDER BY id LIMIT 100", not_in(heard))
}

/// Not those after the last one: one with a lower id may be committed later.
fn not_in(heard: &[u64]) -> String {
    if heard.is_empty() { String::new() } else { format!(" AND id NOT IN ({})", listed(heard)) }
}

/// Removes messages that were heard.
pub(super) fn forget(inbox: Inbox, heard: &[u64]) -> String {
    format!("DELETE FROM locker_mail WHERE inbox={inbox} AND id IN ({})", listed(heard))
}

fn listed(numbers: &[u64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns a page of keys and values.
pub(super) fn list(List { from, after, below, limit }: &List) -> String {
    let [from, after, below] = [from, after, below].map(|text| literal(text.as_bytes()));
    format!(
        "SELECT `key`,state FROM locker_keys WHERE `key`>={from} AND `key`>{after} AND `key`<{below} \
         ORDER BY `key` LIMIT {limit}"
    )
}

/// Returns whether the error of a wait means no more than that somebody has woken it.
pub(super) fn is_woken(code: u16) -> bool {
    code == INTERRUPTED || EXECUTION_TIME.contains(&code)
}
