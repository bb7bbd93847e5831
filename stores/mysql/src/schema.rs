//! The tables of the store and the procedures for its users, made at its first use.

use super::{
    answers::value,
    errors::{self, code},
    facts::{Facts, IS_LOSSY},
    session::Session,
    sql::NOW,
    url::Target,
};
use locker_core::error::{Error, ErrorKind, Result};
use mysql_async::Row;

/// The format of the tables.
const FORMAT: i64 = 2;

/// The tables beside `locker_meta`. `locker_boot` is empty after the server was started. Every write needs its row.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS locker_keys (
    `key` varbinary(2000) NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    over_at bigint NOT NULL,
    fence bigint NOT NULL,
    held_until bigint NOT NULL,
    state longblob NOT NULL
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS locker_mail (
    inbox int unsigned NOT NULL,
    id bigint unsigned NOT NULL AUTO_INCREMENT,
    at bigint NOT NULL,
    text mediumblob NOT NULL,
    PRIMARY KEY (inbox, id),
    KEY (id)
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS locker_fences (
    name varbinary(2000) NOT NULL PRIMARY KEY,
    fence bigint NOT NULL
) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS locker_boot (
    id bigint NOT NULL PRIMARY KEY,
    server varchar(255) CHARACTER SET utf8mb4 NOT NULL
) ENGINE=MEMORY",
];

/// It has one row. `fence`: no fence of a removed key was higher. `removals`: changes with every removal of keys.
/// `swept`: when a process last tried that. `longest`: no hold was granted for longer. `quick`: not 0 if a process has
/// ever granted what a crash may lose, 2 while the row may not be on the disk. `server`: that of the row in
/// `locker_boot`, `new` before the first, empty if the row was made again. `quiet_until`: nothing is granted before.
const META: &str = "CREATE TABLE IF NOT EXISTS locker_meta (
    single tinyint NOT NULL PRIMARY KEY,
    format int NOT NULL,
    fence bigint NOT NULL,
    removals bigint NOT NULL,
    swept bigint NOT NULL,
    longest bigint NOT NULL,
    quick tinyint NOT NULL,
    server varchar(255) CHARACTER SET utf8mb4 NOT NULL,
    quiet_until bigint NOT NULL
) ENGINE=InnoDB";

/// The longest hold of a store that has granted none, in microseconds.
const FIRST_LONGEST: i64 = 11_000_000;

/// Returns the procedures, which have the rights of their callers.
///
/// `locker_fence` is called first in a transaction that writes under a lock of any store: effects take place in the
/// order of fences. `locker_held` is called last in one that writes under a lock of this store: nobody gets the lock
/// before the commit.
fn procedures() -> [String; 2] {
    [
        "CREATE PROCEDURE locker_fence(n VARBINARY(2000), f BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE present BIGINT;
    DECLARE refusal VARCHAR(128);
    INSERT INTO locker_fences (name, fence) VALUES (n, f) ON DUPLICATE KEY UPDATE fence = GREATEST(fence, f);
    SELECT fence INTO present FROM locker_fences WHERE name = n FOR UPDATE;
    IF present > f THEN
        SET refusal = CONCAT('LK001: fence ', f, ' is stale: a later holder has written');
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = refusal;
    END IF;
END"
        .into(),
        // The wait for the row may have taken time: the clock is read after it.
        format!(
            "CREATE PROCEDURE locker_held(k VARBINARY(2000), f BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE held BIGINT;
    DECLARE refusal VARCHAR(128);
    SELECT held_until INTO held FROM locker_keys WHERE `key` = k AND fence = f LOCK IN SHARE MODE;
    IF held IS NULL OR held <= {NOW} THEN
        SET refusal = CONCAT('LK002: it is not held with fence ', f);
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31002, MESSAGE_TEXT = refusal;
    END IF;
END"
        ),
    ]
}

/// Returns the statements that make the tables and procedures in the present database, for the command line client.
#[must_use]
pub fn schema_sql() -> String {
    let tables = TABLES.map(|table| format!("{table};\n")).concat();
    let unless_there = |procedure: String| procedure.replacen("PROCEDURE", "PROCEDURE IF NOT EXISTS", 1);
    let procedures = procedures().map(|procedure| format!("{}//\n", unless_there(procedure))).concat();
    // Nothing was lost of tables that were never used.
    format!("{tables}{};\nDELIMITER //\n{procedures}DELIMITER ;\n", meta("'new'"))
}

/// Returns the statements that let a user, `NAME` or `NAME@HOST`, use the tables and procedures of the present
/// database.
#[must_use]
pub fn grants_sql(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let user = format!("{}@{}", quoted(name), quoted(host));
    let tables = ["keys", "mail", "meta", "boot", "fences"];
    let tables =
        tables.map(|table| format!("GRANT SELECT, INSERT, UPDATE, DELETE ON locker_{table} TO {user};\n"));
    format!(
        "{}-- To empty a table needs the right to drop it.\nGRANT DROP ON locker_boot TO {user};\n\
         GRANT EXECUTE ON PROCEDURE locker_fence TO {user};\nGRANT EXECUTE ON PROCEDURE locker_held TO {user};\n",
        tables.concat()
    )
}

/// Returns the statement that makes `locker_meta` with its row: without it, a process would see a loss. Tables without
/// a key are new, and have lost nothing.
fn meta(server: &str) -> String {
    format!("{META} {}", row("NOT EXISTS (SELECT 1 FROM locker_keys)", server))
}

/// Returns the query for a row of `locker_meta`. Unless it is new, a quiet time begins with the next epoch. It may
/// outlast a crash that loses the first grants.
fn row(is_new: &str, server: &str) -> String {
    format!(
        "SELECT 1 AS single,{FORMAT} AS format,0 AS fence,{NOW} AS removals,0 AS swept,{FIRST_LONGEST} AS longest,\
         {IS_LOSSY} AS quick,IF({is_new},{server},'') AS server,0 AS quiet_until"
    )
}

/// Makes the tables unless they are there. Several processes may try at once.
pub(super) async fn ensure(session: &Session, facts: &Facts, target: &Target) -> Result<()> {
    make(session, facts, target).await?;
    let mut rows = engines(session).await?;
    if rows.len() <= TABLES.len() {
        create(session, facts).await.map_err(|error| refusal(&error, target))?;
        rows = engines(session).await?;
    }
    let is_wrong = |row: &&Row| {
        let engine =
            if value::<String>(row, 0).as_deref() == Some("locker_boot") { "MEMORY" } else { "InnoDB" };
        value::<String>(row, 1).is_some_and(|found| !found.eq_ignore_ascii_case(engine))
    };
    match rows.iter().find(is_wrong) {
        None => Ok(()),
        Some(row) => Err(Error::new(
            ErrorKind::Misused,
            format!(
                "the table {} has the engine {}: a store needs MEMORY for locker_boot, by which it sees a crash, and \
                 InnoDB for all others",
                value::<String>(row, 0).unwrap_or_default(),
                value::<String>(row, 1).unwrap_or_default()
            ),
        )),
    }
}

/// Returns the names of the tables, with their engines.
async fn engines(session: &Session) -> Result<Vec<Row>> {
    let engines = "SELECT table_name AS n,engine AS e FROM information_schema.tables \
                   WHERE table_schema=DATABASE() AND table_name IN \
                   ('locker_keys','locker_mail','locker_fences','locker_boot','locker_meta')";
    session
        .one(engines.into())
        .await
        .map(|answer| answer.rows)
        .map_err(|error| errors::of_statement(&error).error)
}

fn refusal(error: &mysql_async::Error, target: &Target) -> Error {
    if errors::is_denied(error) { denied(error, target) } else { errors::of_statement(error).error }
}

async fn make(session: &Session, facts: &Facts, target: &Target) -> Result<()> {
    match session.one("SELECT format FROM locker_meta".into()).await {
        Ok(answer) => match answer.rows.first().and_then(|row| value::<i64>(row, 0)) {
            Some(FORMAT) => return Ok(()),
            Some(format) => return Err(unknown_format(format)),
            // What it said of losses is gone with it.
            None => {
                run(session, vec![format!("INSERT IGNORE INTO locker_meta {}", row("FALSE", "''"))]).await
            }
        },
        Err(error) if errors::code_of(&error) == Some(code::NO_SUCH_TABLE) => create(session, facts).await,
        Err(error) => Err(error),
    }
    .map_err(|error| refusal(&error, target))
}

async fn create(session: &Session, facts: &Facts) -> Result<(), mysql_async::Error> {
    let mut statements: Vec<String> = TABLES.map(String::from).into();
    // A process that finds `locker_meta` must find the epoch, too.
    statements.push(facts.mark_new_epoch());
    statements.push(meta(&facts.this_server));
    run(session, statements).await?;
    for procedure in procedures() {
        match session.one(procedure).await {
            // They are for users. Without the right, an administrator makes them.
            Err(error) if errors::code_of(&error).is_some_and(is_harmless) => {}
            made => drop(made?),
        }
    }
    Ok(())
}

fn is_harmless(code: u16) -> bool {
    code == code::ROUTINE_EXISTS || code::PROCEDURES.contains(&code)
}

async fn run(session: &Session, statements: Vec<String>) -> Result<(), mysql_async::Error> {
    session.run(&statements).await.last().map(drop)
}

fn unknown_format(format: i64) -> Error {
    let what_to_do = if format > FORMAT {
        "update it"
    } else {
        "end all processes that use them, and drop them with what they hold: `DROP TABLE locker_keys, locker_meta, \
         locker_boot, locker_mail`"
    };
    let message =
        format!("the tables of the database have format {format}, this build needs {FORMAT}: {what_to_do}");
    Error::new(ErrorKind::Conflict, message)
}

fn denied(error: &mysql_async::Error, Target { user, database, .. }: &Target) -> Error {
    let refusal = errors::of_statement(error).error;
    Error::new(
        ErrorKind::Misused,
        format!(
            "{}; a store that makes its tables itself needs the database and `GRANT ALL ON `{database}`.* TO \
             {user}`; for tables that an administrator makes, run what `locker store sql --kind mysql --schema \
             {database} --grant-to {user}` prints",
            refusal.message()
        ),
    )
}
