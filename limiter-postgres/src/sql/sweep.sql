-- Removes the expired rows of `size` pages from page `start` on; a row that is in use just now is left for the next time. Several may
-- do so at once. Gives how many rows went, and how many pages there are.
CREATE OR REPLACE FUNCTION {sweep}(start bigint, size bigint) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $limiter$
DECLARE
  clock bigint := extract(epoch FROM clock_timestamp()) * 1000000;
  removed bigint;
BEGIN
  -- Rubbish that comes back after a crash is removed again.
  PERFORM set_config('synchronous_commit', 'off', true);
  WITH dead AS MATERIALIZED (
    SELECT t.ctid AS place FROM {table} AS t
    WHERE t.ctid >= format('(%s,0)', start)::tid AND t.ctid < format('(%s,0)', start + size)::tid AND t.expires <= clock
    FOR UPDATE SKIP LOCKED
  ), rows AS (
    DELETE FROM {table} AS t USING dead WHERE t.ctid = dead.place RETURNING t.key, t.chunks
  ), logs AS (
    DELETE FROM {log} AS l WHERE l.key = ANY (ARRAY(SELECT rows.key FROM rows WHERE rows.chunks > 0))
  )
  SELECT count(*) INTO removed FROM rows;
  RETURN ARRAY[removed, pg_relation_size('{table}') / current_setting('block_size')::bigint];
END
$limiter$;
