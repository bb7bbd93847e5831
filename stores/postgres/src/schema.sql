CREATE TABLE IF NOT EXISTS {schema}.locker_keys (
    key text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    over_at bigint NOT NULL,
    fence bigint NOT NULL,
    held_until bigint NOT NULL,
    state bytea NOT NULL
) WITH (
    fillfactor = 50,
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
-- Values of some kilobytes stay in the row, where an update replaces them without another table's garbage. The change
-- waits for all that use the table.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = '{schema}.locker_keys'::pg_catalog.regclass::pg_catalog.oid
        AND attname = 'state'::pg_catalog.name AND attstorage <> 'm'::pg_catalog."char") THEN
        ALTER TABLE {schema}.locker_keys ALTER state SET STORAGE MAIN;
    END IF;
END $$;
-- Returns the cluster and its timeline, which changes when a standby is promoted. NULL if the server does not tell.
CREATE OR REPLACE FUNCTION {schema}.locker_timeline() RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_catalog.pg_control_system())::text || '/' ||
        pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
-- `fence`: no fence of a removed key was higher. `removals`: changes with every removal of keys. `swept`: when a
-- process last tried that. `longest`: no hold was granted for longer. `quick`: whether a process has ever used
-- `durable=false`.
-- `timeline`: that of the row in `locker_boot`. `quiet_until`: nothing is granted before. `secret`: without it nobody
-- knows the channels on which processes listen.
CREATE TABLE IF NOT EXISTS {schema}.locker_meta (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    format integer NOT NULL,
    fence bigint NOT NULL,
    removals bigint NOT NULL,
    swept bigint NOT NULL,
    longest bigint NOT NULL DEFAULT 11000000,
    quick boolean NOT NULL DEFAULT false,
    timeline text,
    quiet_until bigint NOT NULL DEFAULT 0,
    secret text NOT NULL DEFAULT pg_catalog.gen_random_uuid()::text
);
-- PostgreSQL empties this table after a crash and on a promoted standby. Every write needs its row.
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.locker_boot (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    id bigint NOT NULL
);
{row};
CREATE TABLE IF NOT EXISTS {schema}.locker_fences (
    name text PRIMARY KEY,
    fence bigint NOT NULL
);
-- Call it in a transaction that writes under a lock of any store: effects take place in the order of fences.
CREATE OR REPLACE FUNCTION {schema}.locker_fence(name text, fence bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO {schema}.locker_fences AS f (name, fence) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET fence = $2 WHERE f.fence <= $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK001',
            MESSAGE = pg_catalog.format('fence %s of %s is stale: a later holder has written', $2, $1);
    END IF;
END
$$;
-- Call it last in a transaction that writes under a lock of this store: nobody gets the lock before the commit.
CREATE OR REPLACE FUNCTION {schema}.locker_held(key text, fence bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    held {schema}.locker_keys.held_until%TYPE;
BEGIN
    SELECT k.held_until INTO held FROM {schema}.locker_keys AS k WHERE k.key = $1 AND k.fence = $2 FOR SHARE;
    -- The wait for the row may have taken time: the clock is read after it.
    IF held IS NULL OR held <= (extract(epoch FROM pg_catalog.clock_timestamp())::double precision
        * 1000000::double precision)::bigint THEN
        RAISE EXCEPTION USING ERRCODE = 'LK002',
            MESSAGE = pg_catalog.format('%s is not held with fence %s', $1, $2);
    END IF;
END
$$;
