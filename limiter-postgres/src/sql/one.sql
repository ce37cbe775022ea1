-- Decides takes of one check each, all of one key and equal, by a limit that is no log: a call of one check, or of a busy key.
-- As {take}, in whose plan there is more to set up for a call than to do for a key.
CREATE OR REPLACE FUNCTION {one}(keys text[], arg bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $limiter$
DECLARE
  now bigint := arg[1];
  clock bigint;
  machine bigint := arg[3]; amount bigint := arg[4]; period bigint := arg[5];
  cost bigint := arg[9]; n bigint := arg[12];
  -- The row, and its numbers if they are of this limit's machine.
  was bigint; before bigint; pieces bigint;
  a0 bigint; b0 bigint; c0 bigint;
  -- How many pass, and the numbers after them.
  k bigint; x bigint; y bigint; z bigint;
  -- Of a bucket.
  horizon bigint; rest bigint; long bigint; part bigint;
  -- Of a window: where it began, how much of the one before still counts, and how much that weighs.
  grid bigint; weight bigint; weighted bigint;
BEGIN
  SELECT t.shape, t.version, t.chunks, t.a, t.b, t.c INTO was, before, pieces, a0, b0, c0
  FROM {table} AS t WHERE t.key = keys[1] FOR NO KEY UPDATE;
  IF NOT FOUND OR was = 0 THEN
    -- A fresh state: its row has to be made.
    RETURN {take}(keys, arg);
  END IF;
  -- Only now: what was read before the wait would be stale.
  clock := extract(epoch FROM clock_timestamp()) * 1000000;
  IF now < 0 THEN
    now := clock;
  END IF;
  IF was <> machine THEN
    a0 := 0; b0 := 0; c0 := 0;
  END IF;

  x := a0; y := b0; z := c0;
  IF machine = 4 THEN
    horizon := arg[6]; rest := arg[7]; long := arg[10]; part := arg[11];
    -- The TAT as this limit counts it, and the debt.
    IF y >= amount THEN
      x := x + 1; y := 0;
    END IF;
    IF x > z + horizon OR x = z + horizon AND y > rest THEN
      x := z + horizon; y := rest;
    END IF;
    IF x < now THEN
      x := now; y := 0;
    END IF;
    x := x - now;
    IF x > horizon OR x = horizon AND y > rest THEN
      k := 0;
    ELSIF horizon < 4611686018427387904 / amount THEN
      k := least(n, ((horizon - x) * amount + rest - y) / (long * amount + part));
    ELSE
      k := least(n, div((horizon - x)::numeric * amount + rest - y, long::numeric * amount + part));
    END IF;
    y := y + k * part;
    x := now + x + k * long + y / amount; y := y % amount; z := greatest(z, now);
  ELSE
    grid := now - now % period;
    x := x - x % period;
    IF x < grid THEN
      -- The window has rolled on.
      z := CASE WHEN machine = 3 AND grid - x = period THEN y ELSE 0 END;
      x := grid; y := 0;
    ELSIF machine = 1 THEN
      z := 0;
    END IF;
    weighted := 0;
    IF z > 0 THEN
      -- The previous window's share, rounded up: units are whole.
      weight := period - greatest(now - x, 0);
      IF z > (9223372036854775807 - period) / weight THEN
        weighted := div(z::numeric * weight + period - 1, period);
      ELSE
        weighted := (z * weight + period - 1) / period;
      END IF;
    END IF;
    k := greatest(0, least(n, (amount - y - weighted) / cost));
    y := y + k * cost;
  END IF;

  IF k = 0 THEN
    -- Nothing has to last, so nobody has to wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN ARRAY[now, 0, a0, b0, c0, before];
  END IF;
  UPDATE {table} AS t SET shape = machine, version = before + k, a = x, b = y, c = z, ats = NULL, uptos = NULL, chunks = 0,
    expires = greatest(
      clock + 1000000 + greatest(0, x - now + CASE machine WHEN 4 THEN (y > 0)::int WHEN 3 THEN 2 * period ELSE period END),
      CASE WHEN arg[1] < 0 THEN 0 ELSE clock + 3600000000 END)
  WHERE t.key = keys[1];
  IF pieces > 0 THEN
    DELETE FROM {log} AS l WHERE l.key = keys[1];
  END IF;
  RETURN ARRAY[now, k, a0, b0, c0, before + k];
END
$limiter$;
