-- In new tables nothing can have been lost. A row that is made again lacks what the former one said of losses;
-- processes that are there learn of a quiet time with the next epoch only.
WITH ended AS (DELETE FROM {schema}.locker_boot WHERE NOT EXISTS (SELECT FROM {schema}.locker_meta) RETURNING id)
INSERT INTO {schema}.locker_meta (format, fence, removals, swept, timeline, quiet_until)
    SELECT 2, 0, now, 0, CASE WHEN is_new THEN {schema}.locker_timeline() END,
        CASE WHEN is_new THEN 0 ELSE now + 12000000 END
    FROM (SELECT (extract(epoch FROM pg_catalog.clock_timestamp())::double precision
            * 1000000::double precision)::bigint AS now,
        {is_new} AS is_new) AS present
    WHERE NOT EXISTS (SELECT FROM {schema}.locker_meta) ON CONFLICT DO NOTHING