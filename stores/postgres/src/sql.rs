//! The statements.
//!
//! Writes name the version that they replace. They set what applies to their own transaction only, because a pool gives
//! the connection to others afterwards: a wait for a row ends after 50 ms, and a commit that need not survive a crash
//! does not wait for the disk. They need the row of `locker_boot` that the process knows.
//!
//! Another role may have made functions and operators in a schema of the search path, which PostgreSQL would take if
//! their types match better. So each function has its schema, and each operator has a built-in one for exactly its
//! types. `unnest` with several arrays, `extract`, `coalesce` and `greatest` are not looked up by name.

use locker_cas::{Inbox, served::StoreState};
use tokio_postgres::{Row, types::Type};

/// A statement, with the types of its parameters.
#[derive(Debug)]
pub(super) struct Statement {
    /// Different for each statement of a store.
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) types: Vec<Type>,
}

/// The statements that write, in one of two modes.
#[derive(Debug)]
pub(super) struct Writing {
    /// Key, version, value, duration, fence, end of the hold, epoch.
    pub(super) update: Statement,
    /// As `update`, and inboxes and texts of messages.
    pub(super) update_and_send: Statement,
    /// Key, value, duration, fence, end of the hold, removals, epoch.
    pub(super) insert: Statement,
    /// As `update`, but one array each, and the removals before the epochs.
    pub(super) many: Statement,
    /// As `many`, and keys, inboxes and texts of messages.
    pub(super) many_and_send: Statement,
}

/// The statements of one store.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) durable: Writing,
    pub(super) quick: Writing,
    /// Keys and versions: returns the keys that have another version or none, and the state of the store with each. If
    /// there are no such keys, a row has the state of the store alone.
    pub(super) look: Statement,
    /// Inboxes and texts of messages: returns the inboxes that nobody listens to.
    pub(super) send: Statement,
    /// Lower bound, text before, upper bound, and limit.
    pub(super) list: Statement,
    /// Longest hold, epoch: raises the longest hold for good, and returns the present epoch if there is one. Returns no
    /// row if there is none that can be raised.
    pub(super) raise: Statement,
    /// Inbox: returns its channel, and the state of the store.
    pub(super) sample: Statement,
    /// Inbox: returns its channel.
    pub(super) channel: Statement,
    /// Returns a row if it is this process's turn to sweep.
    pub(super) turn: Statement,
    /// Limit: removes values that are over, and returns how many.
    pub(super) sweep: Statement,
}

/// The first number of the advisory locks of listeners: the second is their inbox.
pub(super) const LOCK_SPACE: i32 = 7465;

/// Returns the name of the channel of `inbox`, from the row `s` of `locker_meta`. A role that may not read that row
/// knows no channel.
fn channel(inbox: &str) -> String {
    format!(
        "'locker_'::text || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
             s.secret || ({inbox})::bigint::text, 'UTF8')), 'hex'), 32)"
    )
}

/// Returns a statement that listens to the channel of `inbox`. Unlike `LISTEN` it does not name the channel, which
/// others might see in the list of statements.
pub(super) fn listen(schema: &str, inbox: Inbox) -> String {
    let channel = channel(&inbox.to_string());
    format!(
        "DO $$ BEGIN
             EXECUTE (SELECT pg_catalog.format('LISTEN %I', {channel}) FROM \"{schema}\".locker_meta s);
         END $$"
    )
}

/// Returns a statement that tries to lock `inbox` for the session.
pub(super) fn claim(inbox: Inbox) -> String {
    format!(
        "SELECT pg_catalog.pg_try_advisory_lock({LOCK_SPACE}, ({inbox}::bigint - 2147483648::bigint)::int)"
    )
}

/// The seconds between two sweeps.
pub(super) const SWEEP_SECONDS: u64 = 60;

/// The time of the server in microseconds. `extract` returns another type before PostgreSQL 14.
pub(super) const NOW: &str = "(extract(epoch FROM pg_catalog.clock_timestamp())::double precision \
                              * 1000000::double precision)::bigint";
const SHORT_WAIT: &str = "pg_catalog.set_config('lock_timeout', '50ms', true) IS NOT NULL";
/// For a row that an administrator changes: all calls of the connection wait.
const LONG_WAIT: &str = "pg_catalog.set_config('lock_timeout', '1s', true) IS NOT NULL";
const NO_WAIT_FOR_DISK: &str = "pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL";
const WAIT_FOR_DISK: &str = "pg_catalog.set_config('synchronous_commit',
    CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off'::text THEN 'on'
    ELSE pg_catalog.current_setting('synchronous_commit') END, true) IS NOT NULL";

/// Inboxes with an odd number belong to processes that poll: whether they live is unknown. The process of an inbox has
/// an exclusive lock, and a sender that looks for it gets an exclusive one for its transaction only if nobody has any:
/// a lock of another role makes a process look alive, never gone. So do two senders that look at the same time.
const SEND: &str =
    "(SELECT pg_catalog.count(pg_catalog.pg_notify({channel}, m.text)) FROM {meta} s, {messages}),
    (SELECT pg_catalog.array_agg(DISTINCT m.inbox) FILTER (WHERE m.inbox % 2::bigint = 0::bigint AND
    pg_catalog.pg_try_advisory_xact_lock({space}, (m.inbox - 2147483648::bigint)::int)) FROM {messages})";

/// The start of `update`.
const UPDATE: &str =
    "UPDATE {keys} SET version = greatest($2 + 1::bigint, {now}), state = $3, over_at = {now} + $4,
    fence = greatest(fence, $5), held_until = $6 WHERE key = $1 AND version = $2
    AND EXISTS (SELECT FROM {boot} WHERE id = $7)";

/// The parameters of `update`, and of `many`.
const ROW: [Type; 7] = [Type::TEXT, Type::INT8, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8, Type::INT8];
const ROWS: [Type; 8] = [
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::BYTEA_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
];
const MESSAGES: [Type; 2] = [Type::INT8_ARRAY, Type::TEXT_ARRAY];

/// The columns of a [`StoreState`].
const STORE_STATE: &str = "{now}, coalesce((SELECT fence FROM {meta}), 0), \
     coalesce((SELECT removals FROM {meta}), -1), coalesce((SELECT longest FROM {meta}), 0), \
     coalesce((SELECT quick FROM {meta}), false), coalesce((SELECT quiet_until FROM {meta}), 0), \
     (SELECT id FROM {boot})";

/// Returns the state of the store from the last columns of a row.
pub(super) fn store_state(row: &Row) -> StoreState {
    let first = row.len() - 7;
    StoreState {
        now: row.get(first),
        fence: row.get(first + 1),
        removals: row.get(first + 2),
        longest: row.get(first + 3),
        quick: row.get(first + 4),
        is_written: true,
        quiet_until: row.get(first + 5),
        epoch: row.get(first + 6),
    }
}

/// Returns the text of a statement with values for the names in braces.
fn filled(text: &str, schema: &str) -> String {
    text.replace("{channel}", &channel("m.inbox"))
        .replace("{own_channel}", &channel("$1"))
        .replace("{keys}", &format!("\"{schema}\".locker_keys"))
        .replace("{store_state}", STORE_STATE)
        .replace("{boot}", &format!("\"{schema}\".locker_boot"))
        .replace("{meta}", &format!("\"{schema}\".locker_meta"))
        .replace("{now}", NOW)
        .replace("{space}", &LOCK_SPACE.to_string())
}

impl Statements {
    pub(super) fn new(schema: &str) -> Self {
        let mut numbers = 0..;
        let mut statement = |text: &str, types: &[Type]| Statement {
            number: numbers.next().expect("numbers do not end"),
            text: filled(text, schema),
            types: types.to_vec(),
        };
        Self {
            durable: Writing::new(&mut statement, WAIT_FOR_DISK),
            quick: Writing::new(&mut statement, NO_WAIT_FOR_DISK),
            look: statement(
                "SELECT other.key, other.version, other.state, {store_state}
                 FROM (VALUES (1)) AS one LEFT JOIN (SELECT a.key, k.version, k.state
                     FROM unnest($1, $2) AS a(key, version) LEFT JOIN {keys} k ON k.key = a.key
                     WHERE k.version IS DISTINCT FROM a.version) other ON true",
                &[Type::TEXT_ARRAY, Type::INT8_ARRAY],
            ),
            send: statement(
                &format!("SELECT {SEND} WHERE {NO_WAIT_FOR_DISK}")
                    .replace("{messages}", "unnest($1, $2) AS m(inbox, text)"),
                &MESSAGES,
            ),
            list: statement(
                "SELECT key, state FROM {keys} WHERE key >= $1 AND key > $2 AND key < $3 ORDER BY key LIMIT $4",
                &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            ),
            channel: statement("SELECT {own_channel} FROM {meta} s", &[Type::INT8]),
            sample: statement("SELECT (SELECT {own_channel} FROM {meta} s), {store_state}", &[Type::INT8]),
            raise: statement(
                &format!(
                    "WITH raised AS (UPDATE {{meta}} SET longest = $1 WHERE longest < $1
                         AND EXISTS (SELECT FROM {{boot}} WHERE id = $2) AND {LONG_WAIT} AND {WAIT_FOR_DISK})
                     SELECT (SELECT id FROM {{boot}}) FROM {{meta}}"
                ),
                &[Type::INT8, Type::INT8],
            ),
            turn: statement(
                &format!(
                    "UPDATE {{meta}} SET swept = {{now}} WHERE swept <= {{now}} - {SWEEP_SECONDS}000000::bigint
                     AND {NO_WAIT_FOR_DISK} AND {SHORT_WAIT} RETURNING swept"
                ),
                &[],
            ),
            sweep: statement(
                // The fences and the removals change in the same commit in which the rows go.
                &format!(
                    "WITH over AS MATERIALIZED (SELECT key, fence FROM {{keys}} WHERE over_at < {{now}} LIMIT $1
                         FOR UPDATE SKIP LOCKED),
                     gone AS (DELETE FROM {{keys}} k USING over WHERE k.key = over.key RETURNING k.key),
                     raised AS (UPDATE {{meta}} SET removals = greatest(removals + 1::bigint, {{now}}),
                         fence = greatest(fence, {{now}}, (SELECT pg_catalog.max(fence) FROM over))
                         WHERE EXISTS (SELECT FROM over) AND {SHORT_WAIT} AND {NO_WAIT_FOR_DISK})
                     SELECT pg_catalog.count(*) FROM gone"
                ),
                &[Type::INT8],
            ),
        }
    }

    /// Returns the statements for writes that must survive a crash, or for others.
    pub(super) fn writing(&self, durable: bool) -> &Writing {
        if durable { &self.durable } else { &self.quick }
    }
}

impl Writing {
    fn new(statement: &mut impl FnMut(&str, &[Type]) -> Statement, mode: &str) -> Self {
        // Rows are locked without waiting, so that two statements never wait for each other.
        let many = format!(
            "WITH asked AS MATERIALIZED (SELECT a.* FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
                 AS a(key, version, state, lasts, fence, held_until, removals, boot),
                 (SELECT {SHORT_WAIT} AND {mode} AS is_set) s WHERE s.is_set
                 AND EXISTS (SELECT FROM {{boot}} b WHERE b.id = a.boot)),
             there AS MATERIALIZED (SELECT k.key FROM {{keys}} k JOIN asked a
                 ON k.key = a.key AND k.version = a.version FOR UPDATE OF k SKIP LOCKED),
             changed AS (UPDATE {{keys}} k SET version = greatest(a.version + 1::bigint, {{now}}), state = a.state,
                 over_at = {{now}} + a.lasts, fence = greatest(k.fence, a.fence), held_until = a.held_until
                 FROM asked a JOIN there t ON t.key = a.key WHERE k.key = a.key RETURNING k.key, k.version),
             made AS (INSERT INTO {{keys}} AS k (key, version, state, over_at, fence, held_until)
                 SELECT a.key, {{now}}, a.state, {{now}} + a.lasts, a.fence, a.held_until
                 FROM asked a, {{meta}} m WHERE a.version = 0::bigint AND m.removals = a.removals
                 AND NOT EXISTS (SELECT FROM {{keys}} k WHERE k.key = a.key) ORDER BY a.key COLLATE \"C\"
                 ON CONFLICT DO NOTHING RETURNING k.key, k.version),
             done AS (SELECT key, version FROM changed UNION ALL SELECT key, version FROM made)"
        );
        Self {
            update: statement(&format!("{UPDATE} AND {SHORT_WAIT} AND {mode} RETURNING key, version"), &ROW),
            update_and_send: statement(
                &format!(
                    "WITH u AS ({UPDATE} AND {SHORT_WAIT} AND {mode} RETURNING key, version)
                     SELECT key, version, {SEND} FROM u"
                )
                .replace("{messages}", "unnest($8, $9) AS m(inbox, text)"),
                &[&ROW[..], &MESSAGES].concat(),
            ),
            // The row is looked for in the snapshot that has the removals: a removal that commits later refuses.
            insert: statement(
                &format!(
                    "INSERT INTO {{keys}} (key, version, state, over_at, fence, held_until)
                     SELECT $1, {{now}}, $2, {{now}} + $3, $4, $5 FROM {{meta}} WHERE removals = $6
                     AND EXISTS (SELECT FROM {{boot}} WHERE id = $7)
                     AND NOT EXISTS (SELECT FROM {{keys}} WHERE key = $1) AND {SHORT_WAIT} AND {mode}
                     ON CONFLICT DO NOTHING RETURNING key, version"
                ),
                &[Type::TEXT, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
            ),
            many: statement(&format!("{many} SELECT key, version FROM done"), &ROWS),
            many_and_send: statement(
                &format!("{many} SELECT key, version, {SEND} FROM done").replace(
                    "{messages}",
                    "unnest($9, $10, $11) AS m(key, inbox, text) WHERE m.key = done.key",
                ),
                &[&ROWS[..], &[Type::TEXT_ARRAY], &MESSAGES].concat(),
            ),
        }
    }
}
