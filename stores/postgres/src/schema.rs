//! The tables and functions of the store, made at its first use.

use super::{errors, session::Session};
use locker_core::error::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;

/// The format of the tables.
const FORMAT: i32 = 2;

/// Returns the statements that make the tables and functions in `schema`, unless they are there.
#[must_use]
pub fn schema_sql(schema: &str) -> String {
    // Tables with a key are not new, nor those with an epoch.
    let row = row("NOT EXISTS (SELECT FROM {schema}.locker_keys) AND NOT EXISTS (SELECT FROM ended)");
    include_str!("schema.sql").replace("{row}", &row).replace("{schema}", &format!("\"{schema}\""))
}

/// Returns the statement that makes the row of `locker_meta`, unless it is there.
fn row(is_new: &str) -> String {
    include_str!("row.sql").replace("{is_new}", is_new)
}

/// Returns the statements that let `role` use the tables and functions in `schema`.
#[must_use]
pub fn grants_sql(schema: &str, role: &str) -> String {
    let role = role.replace('"', "\"\"");
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON \"{schema}\".locker_keys, \"{schema}\".locker_meta, \
         \"{schema}\".locker_fences TO \"{role}\";\n\
         GRANT SELECT, INSERT, DELETE ON \"{schema}\".locker_boot TO \"{role}\";\n\
         GRANT EXECUTE ON FUNCTION \"{schema}\".locker_timeline() TO \"{role}\";\n"
    )
}

/// Makes the tables and functions unless they are there. Several processes may try at once.
pub(super) async fn ensure(session: &Session, schema: &str, user: &str) -> Result<()> {
    let refused = |error: &tokio_postgres::Error| match error.as_db_error() {
        Some(refusal) if errors::is_not_permitted(error) => denied(refusal.message(), schema, user),
        _ => errors::of_statement(error).error,
    };
    refuse_encoding(session).await?;
    let made = match format(session, schema).await {
        Err(error) if errors::is_missing_table(&error) => create(session, schema).await,
        Ok(None) => make_row(session, schema).await,
        found => found.map(drop),
    };
    made.map_err(|error| refused(&error))?;
    // Nothing is made in tables of another format.
    match format(session, schema).await.map_err(|error| refused(&error))? {
        Some(FORMAT) => {}
        Some(other) => return Err(unknown_format(schema, other)),
        None => return Err(errors::lost("the table locker_meta is empty")),
    }
    match missing(session, schema).await.map_err(|error| refused(&error))?.as_deref() {
        None => Ok(()),
        Some("") => create(session, schema).await.map_err(|error| refused(&error)),
        Some(right) => Err(denied(right, schema, user)),
    }
}

/// Refuses a database that cannot store every name: one such name would fail all calls that share its statement.
async fn refuse_encoding(session: &Session) -> Result<()> {
    let rows = session
        .query_once("SELECT pg_catalog.current_database()::text, pg_catalog.getdatabaseencoding()::text", &[])
        .await;
    let rows = rows.map_err(|error| errors::of_statement(&error).error)?;
    match rows.first().map(|row| (row.get(0), row.get(1))) {
        None | Some((_, "UTF8")) => Ok(()),
        Some::<(&str, &str)>((database, encoding)) => Err(Error::new(
            ErrorKind::Misused,
            format!(
                "the database {database} has the encoding {encoding}, and a name may have any character: use a \
                 database with UTF8 (`CREATE DATABASE locks TEMPLATE template0 ENCODING 'UTF8'`)"
            ),
        )),
    }
}

/// Returns the format of the tables. `None` without the row that says it.
async fn format(session: &Session, schema: &str) -> Result<Option<i32>, tokio_postgres::Error> {
    let rows = session.query_once(&format!("SELECT format FROM \"{schema}\".locker_meta"), &[]).await?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// Returns which right is missing that only a crash of the server needs, or nothing if another table or a function is.
/// Another session may have locked the tables: they are not read.
async fn missing(session: &Session, schema: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let asked = format!(
        "SELECT CASE
             WHEN pg_catalog.to_regclass('\"{schema}\".locker_keys') IS NULL
                 OR pg_catalog.to_regclass('\"{schema}\".locker_boot') IS NULL
                 OR pg_catalog.to_regprocedure('\"{schema}\".locker_timeline()') IS NULL THEN ''
             WHEN NOT pg_catalog.has_table_privilege('\"{schema}\".locker_boot', 'INSERT')
                 THEN 'permission denied to insert into table locker_boot'
             WHEN NOT pg_catalog.has_table_privilege('\"{schema}\".locker_boot', 'DELETE')
                 THEN 'permission denied to delete from table locker_boot'
             WHEN NOT pg_catalog.has_function_privilege('\"{schema}\".locker_timeline()', 'EXECUTE')
                 THEN 'permission denied for function locker_timeline'
         END"
    );
    let rows = session.query_once(&asked, &[]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

/// Makes the row again: a table without it is not new. The schema is not made: a role with the rights that are granted
/// may not do that, and it would wait for all that use the tables. The lock orders this and others that make or delete
/// the row.
async fn make_row(session: &Session, schema: &str) -> Result<(), tokio_postgres::Error> {
    let row = row("false").replace("{schema}", &format!("\"{schema}\""));
    let sql = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO local; \
         SET LOCAL lock_timeout TO '{LOCK_LIMIT}'; \
         LOCK TABLE \"{schema}\".locker_meta IN SHARE ROW EXCLUSIVE MODE;\n{row}; COMMIT"
    );
    session.transact(&sql).await
}

async fn create(session: &Session, schema: &str) -> Result<(), tokio_postgres::Error> {
    let name = format!("\"{schema}\"");
    let found =
        session.query_once("SELECT pg_catalog.to_regnamespace($1) IS NULL", &[(&name, Type::TEXT)]).await?;
    // `CREATE SCHEMA IF NOT EXISTS` needs a permission also if the schema exists.
    let is_new: bool = found.first().is_some_and(|row| row.get(0));
    let schema_line =
        if is_new { format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";") } else { String::new() };
    // Two processes that run `CREATE .. IF NOT EXISTS` at once fail without the lock.
    let sql = format!(
        "BEGIN; SET LOCAL lock_timeout TO '{LOCK_LIMIT}'; SELECT pg_catalog.pg_advisory_xact_lock({LOCK}); \
         {schema_line} {}; COMMIT",
        schema_sql(schema).trim_end().trim_end_matches(';')
    );
    session.transact(&sql).await
}

/// The advisory lock of processes that make the tables: `locker` in ASCII.
const LOCK: u64 = 0x6c6f_636b_6572;

/// How long a process waits for that lock, which any role may have taken: opening fails before its own limit.
const LOCK_LIMIT: &str = "3s";

fn unknown_format(schema: &str, format: i32) -> Error {
    let what_to_do = if format > FORMAT {
        "update it".to_owned()
    } else {
        // The fences that were let through stay.
        let tables = ["keys", "meta", "boot"].map(|name| format!("\"{schema}\".locker_{name}"));
        let tables = tables.join(", ");
        format!("end all processes that use them, and drop them with what they hold: `DROP TABLE {tables}`")
    };
    let message = format!(
        "the tables of the schema {schema} have format {format}, this build needs {FORMAT}: {what_to_do}"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn denied(refusal: &str, schema: &str, user: &str) -> Error {
    let grants = grants_sql(schema, user);
    Error::new(
        ErrorKind::Misused,
        format!(
            "PostgreSQL refused: {refusal}; for a store that makes its tables itself, an administrator runs \
             `CREATE SCHEMA locker AUTHORIZATION \"{user}\"` once, and the URL gets the parameter schema=locker; for \
             tables that an administrator has made, `{}`",
            grants.trim_end().trim_end_matches(';').replace('\n', " ")
        ),
    )
}
