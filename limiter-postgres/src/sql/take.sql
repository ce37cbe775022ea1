-- Decides takes of one check each, of keys that differ, by limits that are no logs: most batches. All keys at once.
--
-- keys   in the order of their bytes, each once
-- arg    the instant (-1: this server's), how many limits;
--        each limit: shape, amount, period, horizon (whole us, rest in 1/amount us);
--        then for all keys each: the number of the limit, the cost, its time (whole us), its time (rest), how many equal checks
-- result the instant; then for all keys each: how many of the checks are allowed, three numbers of the state before, and the
--        version after
CREATE OR REPLACE FUNCTION {take}(keys text[], arg bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE
-- Planned once: to plan takes longer than to run. And for a table that has grown since, whatever its statistics say.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $limiter$
DECLARE
  now bigint := arg[1];
  clock bigint;
  size int := cardinality(keys);
  base int := 2 + 5 * arg[2];
  result bigint[];
  wrote boolean;
  logs text[];
BEGIN
  -- Locks the rows, and makes those that are not there, in one pass in the order of the keys: who comes by another way waits
  -- at the first key that both want. The condition is asked with the lock held, and spares the write.
  INSERT INTO {table} AS t (key, shape, version, a, b, c, expires)
  SELECT k.key, 0, 0, 0, 0, 0, 0 FROM unnest(keys) AS k(key) ORDER BY k.key COLLATE "C"
  ON CONFLICT (key) DO UPDATE SET shape = t.shape WHERE false;

  -- Only now: what was read before the wait would be stale.
  clock := extract(epoch FROM clock_timestamp()) * 1000000;
  IF now < 0 THEN
    now := clock;
  END IF;

  -- Each level names what the next ones use. OFFSET 0 keeps the planner from writing a name's expression wherever it is used.
  WITH step AS MATERIALIZED (
    SELECT five.*,
      CASE WHEN k = 0 THEN version
           ELSE CASE WHEN was = 0 THEN greatest(now - 1, version) ELSE version END + k END AS after,
      CASE shape WHEN 4 THEN now + owed + k * long + (spare + k * part) / amount ELSE start END AS new_a,
      CASE shape WHEN 4 THEN (spare + k * part) % amount ELSE units + k * cost END AS new_b,
      CASE shape WHEN 4 THEN greatest(c, now) WHEN 3 THEN before ELSE 0 END AS new_c
    FROM (
      -- How many of the equal checks pass, one after the other.
      SELECT four.*,
        CASE
          WHEN shape < 4 THEN greatest(0, least(count, (amount - units - weighted) / cost))
          WHEN (owed, spare) > (horizon, rest) THEN 0
          WHEN count = 1 THEN (
            (owed + long + (spare + part) / amount, (spare + part) % amount) <= (horizon, rest))::int
          WHEN horizon < 4611686018427387904 / amount THEN
            least(count, ((horizon - owed) * amount + rest - spare) / (long * amount + part))
          ELSE least(count, div((horizon - owed)::numeric * amount + rest - spare, long::numeric * amount + part))::bigint
        END AS k
      FROM (
        -- The previous window's share, rounded up: units are whole. A bucket's debt.
        SELECT three.*,
          CASE
            WHEN before = 0 THEN 0
            WHEN before <= (9223372036854775807 - period) / weight THEN (before * weight + period - 1) / period
            ELSE div(before::numeric * weight + period - 1, period)::bigint
          END AS weighted,
          greatest(tat - now, 0) AS owed,
          CASE WHEN tat < now THEN 0 ELSE tat_rest END AS spare
        FROM (
          SELECT two.*,
            period - greatest(now - start, 0) AS weight,
            -- The horizon is counted from the last write: only a limit that was changed since makes a difference.
            CASE WHEN (whole, whole_rest) > (c + horizon, rest) THEN c + horizon ELSE whole END AS tat,
            CASE WHEN (whole, whole_rest) > (c + horizon, rest) THEN rest ELSE whole_rest END AS tat_rest
          FROM (
            -- The windows as they count now: an older one counts 0, one in the future stays. A TAT whose rest the amount can
            -- have.
            SELECT one.*,
              greatest(own, grid) AS start,
              CASE WHEN shape = 4 OR own < grid THEN 0 ELSE b END AS units,
              CASE WHEN shape <> 3 THEN 0 WHEN own >= grid THEN c WHEN grid - own = period THEN b ELSE 0 END AS before,
              CASE WHEN b < amount THEN a ELSE a + 1 END AS whole,
              CASE WHEN b < amount THEN b ELSE 0 END AS whole_rest
            FROM (
              SELECT zero.*, a - a % period AS own, now - now % period AS grid
              FROM (
                SELECT u.*, t.ctid AS place, t.shape AS was, t.version, t.chunks, t.key,
                  -- A state of another machine counts as fresh.
                  CASE WHEN t.shape = u.shape THEN t.a ELSE 0 END AS a,
                  CASE WHEN t.shape = u.shape THEN t.b ELSE 0 END AS b,
                  CASE WHEN t.shape = u.shape THEN t.c ELSE 0 END AS c
                FROM (
                  SELECT v.*, arg[at + 1] AS shape, arg[at + 2] AS amount, arg[at + 3] AS period, arg[at + 4] AS horizon,
                    arg[at + 5] AS rest
                  FROM (
                    SELECT w.*, (5 * w.lim - 3)::int AS at
                    FROM unnest(keys, arg[base + 1 : base + size], arg[base + size + 1 : base + 2 * size],
                      arg[base + 2 * size + 1 : base + 3 * size], arg[base + 3 * size + 1 : base + 4 * size],
                      arg[base + 4 * size + 1 : base + 5 * size])
                      WITH ORDINALITY AS w(name, lim, cost, long, part, count, n)
                  ) AS v OFFSET 0
                ) AS u
                -- By the key, one by one: statistics of a time when the table was empty make a pass over all of it look cheap.
                CROSS JOIN LATERAL (SELECT s.ctid, s.* FROM {table} AS s WHERE s.key = u.name OFFSET 0) AS t
                ORDER BY u.n OFFSET 0
              ) AS zero OFFSET 0
            ) AS one OFFSET 0
          ) AS two OFFSET 0
        ) AS three OFFSET 0
      ) AS four OFFSET 0
    ) AS five OFFSET 0
  ), written AS (
    -- The rows are ours, so they are where they were. `ats` is what a log has left there.
    UPDATE {table} AS t SET shape = step.shape, version = step.after, a = step.new_a, b = step.new_b, c = step.new_c,
      ats = NULL, uptos = NULL, chunks = 0,
      -- A second more than it counts, so that a clock which steps back by less finds it; at a given instant, whose time is not
      -- this server's, an hour at least.
      expires = greatest(
        clock + 1000000 + greatest(0, step.new_a - now + CASE step.shape
          WHEN 4 THEN (step.new_b > 0)::int WHEN 3 THEN 2 * step.period ELSE step.period END),
        CASE WHEN arg[1] < 0 THEN 0 ELSE clock + 3600000000 END)
    FROM step WHERE t.ctid = step.place AND step.k > 0
  )
  SELECT now || array_agg(k) || array_agg(a) || array_agg(b) || array_agg(c) || array_agg(after),
    bool_or(k > 0), array_agg(key) FILTER (WHERE k > 0 AND chunks > 0)
  INTO result, wrote, logs FROM step;

  IF logs IS NOT NULL THEN
    DELETE FROM {log} AS l WHERE l.key = ANY (logs);
  END IF;
  IF NOT wrote THEN
    -- Nothing has to last, so nobody has to wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN result;
END
$limiter$;
