//! Roles that may connect to the database, or make functions in it, and have no right on the tables.

use super::*;

/// Makes a schema of operators over all pairs of types, and one of functions for up to three arguments, which fail.
/// The search path of `app` has the functions before the built-in ones. It has the operators behind them, where
/// PostgreSQL takes one whose types match better.
const TRAPS: &str = "
    CREATE ROLE app LOGIN;
    CREATE SCHEMA locks AUTHORIZATION app;
    CREATE SCHEMA functions;
    CREATE SCHEMA operators;
    GRANT USAGE ON SCHEMA functions, operators TO app;
    ALTER ROLE app SET search_path = functions, pg_catalog, operators;
    DO $$
    DECLARE
        types text[] := '{text,name,bytea,boolean,int4,int8,numeric,float8,timestamptz,anyelement}';
        name text;
        l text;
        r text;
    BEGIN
        FOREACH l IN ARRAY types LOOP FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION operators.trap(%s, %s) RETURNS %s LANGUAGE plpgsql AS
                ''BEGIN RAISE EXCEPTION ''''trapped by an operator''''; END''', l, r, l);
            EXECUTE format('CREATE FUNCTION operators.compare(%s, %s) RETURNS boolean LANGUAGE plpgsql AS
                ''BEGIN RAISE EXCEPTION ''''trapped by a comparison''''; END''', l, r);
            FOREACH name IN ARRAY '{||,+,-,*,/,%}'::text[] LOOP
                EXECUTE format('CREATE OPERATOR operators.%s (LEFTARG = %s, RIGHTARG = %s,
                    FUNCTION = operators.trap)', name, l, r);
            END LOOP;
            FOREACH name IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
                EXECUTE format('CREATE OPERATOR operators.%s (LEFTARG = %s, RIGHTARG = %s,
                    FUNCTION = operators.compare)', name, l, r);
            END LOOP;
        END LOOP; END LOOP;
        FOREACH name IN ARRAY '{array_agg,clock_timestamp,convert_to,count,current_database,current_setting,date_part,
            encode,format,gen_random_uuid,getdatabaseencoding,has_function_privilege,has_table_privilege,left,max,
            pg_advisory_xact_lock,pg_control_system,pg_current_wal_lsn,pg_notify,pg_try_advisory_lock,
            pg_try_advisory_xact_lock,pg_try_advisory_xact_lock_shared,pg_walfile_name,set_config,sha256,substr,
            to_regnamespace,unnest}'::text[] LOOP
            FOREACH l IN ARRAY types || '{NULL,anyarray}' LOOP FOREACH r IN ARRAY types || '{NULL}' LOOP
                CONTINUE WHEN l IS NULL AND r IS NOT NULL;
                EXECUTE format('CREATE FUNCTION functions.%I(%s) RETURNS text LANGUAGE plpgsql AS
                    ''BEGIN RAISE EXCEPTION ''''trapped by a function''''; END''', name, concat_ws(', ', l, r));
            END LOOP; END LOOP;
            EXECUTE format('CREATE FUNCTION functions.%I(text, text, boolean) RETURNS text LANGUAGE plpgsql AS
                ''BEGIN RAISE EXCEPTION ''''trapped by a function''''; END''', name);
            EXECUTE format('CREATE FUNCTION functions.%I(text, int, int) RETURNS text LANGUAGE plpgsql AS
                ''BEGIN RAISE EXCEPTION ''''trapped by a function''''; END''', name);
        END LOOP;
    END $$";

/// A function or an operator of another role in the search path was run as the role of the store.
#[tokio::test(flavor = "multi_thread")]
async fn functions_of_strangers_are_not_called() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    server.psql(TRAPS);
    let url = server.url().replace("locker@", "app@") + "?schema=locks";
    for options in ["", "&durable=false&lanes=1"] {
        let (one, other) = pair(&format!("{url}{options}")).await;
        contract::all(&one, &other).await;
        many_writes_with_messages(&one, &other).await;
        sweep::remove(one.backend.driver()).await.unwrap();
        let turn = &one.backend.driver().statements.turn;
        let target = &one.backend.driver().target;
        let session = session::Session::open(target, &target.config, &Arc::default(), session::Use::Lane)
            .await
            .unwrap();
        session.query(turn, &[]).await.unwrap();
        contract::gone_inboxes_are_reported(&one, other).await;
        server.psql("DELETE FROM locks.locker_boot");
        until("another epoch", async || {
            one.backend
                .exchange(write(&fresh("after"), 0, b"x"))
                .await
                .is_ok_and(|outcome| matches!(outcome, Outcome::Matched { .. }))
        })
        .await;
    }
    let held = "SELECT locks.locker_held('none', 1)";
    let held =
        server.try_psql(&format!("SET ROLE app; SET search_path = functions, pg_catalog, operators; {held}"));
    assert!(held.clone().is_err_and(|text| text.contains("LK002")), "{held:?}");
    let fence = |fence| format!("SET ROLE app; SELECT locks.locker_fence('name', {fence})");
    server.psql(&fence(2));
    let late = server.try_psql(&fence(1));
    assert!(late.clone().is_err_and(|text| text.contains("LK001")), "{late:?}");
    assert!(server.psql("SELECT timeline FROM locks.locker_meta").contains('/'));
}

/// Writes that share statements, with their messages.
async fn many_writes_with_messages(one: &Party<Postgres>, other: &Party<Postgres>) {
    let keys: Vec<_> = (0..40).map(|at| fresh(&at.to_string())).collect();
    let mut versions = vec![0; keys.len()];
    for _ in 0..3 {
        let writes = keys.iter().zip(&versions).enumerate().map(|(at, (key, version))| {
            let messages = vec![Message { to: other.backend.inbox(), text: at.to_string() }];
            one.write(Write { durable: at % 2 == 0, messages, ..write(key, *version, b"x") })
        });
        versions = futures_util::future::join_all(writes).await;
    }
    until("all messages", async || (0..keys.len()).all(|at| other.texts().contains(&at.to_string()))).await;
}

const LOCKS_OF_STRANGERS: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND a.application_name = 'psql'";

/// An advisory lock needs no right. Every write failed after a crash as long as a stranger had that of `locker_boot`.
#[tokio::test(flavor = "multi_thread")]
async fn stranger_stops_no_write_after_a_crash() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    server.psql("CREATE ROLE stranger LOGIN");
    let store = party(&server.url()).await;
    store.write(write(&fresh("before"), 0, b"x")).await;
    let lock = "SELECT pg_advisory_lock(119225665152370)";
    let stranger = Sleeper::start(&server, &format!("SET ROLE stranger; {lock}")).await;
    // As a crash does.
    server.psql("DELETE FROM locker_boot");
    until("a write", async || {
        let written = store.backend.exchange(write(&fresh("after"), 0, b"y")).await;
        matches!(written, Ok(Outcome::Matched { .. }))
    })
    .await;
    // Only the tables are made under that lock.
    let (url, _) = in_new_schema(&server);
    let opened = in_time("an error", open(&url, &Opening::default())).await;
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("lock timeout"), "{error}");
    stranger.end(&server);
    party(&url).await;
}

/// A shared lock of a stranger let others have one, too, so that they took the process for gone.
#[tokio::test(flavor = "multi_thread")]
async fn stranger_makes_no_process_gone() {
    let Some(server) = PostgresServer::with(&["fsync=off"]) else { return };
    server.psql("CREATE ROLE stranger LOGIN");
    let (one, other) = pair(&server.url()).await;
    let inbox = one.backend.inbox();
    let lock = format!("SELECT pg_advisory_lock_shared(7465, ({inbox}::bigint - 2147483648)::int)");
    let waits = "SELECT count(*) FROM pg_locks WHERE classid = 7465 AND NOT granted";
    let stranger = Sleeper::start_until(&server, &format!("SET ROLE stranger; {lock}"), waits).await;
    super::inboxes::end_listening(&server, &one);
    until("the lock of the stranger", async || {
        block_in_place(|| server.psql(LOCKS_OF_STRANGERS)) == "1"
            && block_in_place(|| server.psql(waits)) == "0"
    })
    .await;
    for at in 0..20 {
        let text = format!("m{at}");
        let message = vec![Message { to: inbox, text: text.clone() }];
        assert_eq!(other.backend.send(message).await.unwrap(), [0_u32; 0], "{text}");
    }
    contract::faults::hear_again(&other, &one).await;
    stranger.end(&server);
}
