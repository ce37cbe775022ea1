-- Decides any batch: one step after the other on states that were loaded at once and are written at once.
--
-- keys   three groups, each in the order of its bytes: those that may be written, those of logs that are only asked for, and
--        others that are only asked for. No key is there twice.
-- arg    the instant (-1: this server's), how many limits, how many steps, how many keys in the first group, and in the first two;
--        each limit: shape, amount, period, horizon (whole us, rest in 1/amount us);
--        each step: op (0 take, 1 peek, 2 refund, 3 reset), how many equal requests it stands for, how many checks, for a refund
--        when it was taken; each of its checks: key, limit, cost, the time that the cost takes (whole us, rest)
-- result the instant; each step: how many of its requests, the first ones, are allowed; each of its checks: three numbers of the
--        state before a take or a peek and after a refund or a reset, and the version after the step
--        (of a log: units that still count, the newest instant, and that of the entry which has to expire, or -1)
CREATE OR REPLACE FUNCTION {step}(keys text[], arg bigint[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE
-- Planned once: to plan takes longer than to run. And for a table that has grown since, whatever its statistics say.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $limiter$
#variable_conflict use_variable
DECLARE
  now bigint := arg[1];
  clock bigint;
  cells {table}[];
  cell {table};
  -- Of each key: 1 if it has to be written.
  dirty int[] := array_fill(0, ARRAY[cardinality(keys)]);
  result bigint[] := ARRAY[0];
  -- Where the step begins, its check, the check's limit, and the end of the result.
  pos int := 6 + 5 * arg[2];
  at int;
  lim int;
  fin int := 1;
  op int; n bigint; checks int; taken bigint; k bigint;
  i int; cost bigint; long bigint; part bigint;
  shape bigint; amount bigint; period bigint; horizon bigint; rest bigint;
  -- The state as it counts now.
  p bigint; q bigint; r bigint; u bigint;
  x bigint; y bigint; z bigint;
  changed {table}[] := '{}';
  gone text[] := '{}';
BEGIN
  -- As {take}.
  IF arg[5] > 0 THEN
    INSERT INTO {table} AS t (key, shape, version, a, b, c, expires)
    SELECT w.key, 0, 0, 0, 0, 0, 0 FROM unnest(keys[1 : arg[5]]) WITH ORDINALITY AS w(key, n)
    -- A log that is only asked for is held still, since it is read in parts; there is nothing to hold of one that is not there.
    WHERE w.n <= arg[4] OR EXISTS (SELECT FROM {table} AS s WHERE s.key = w.key OFFSET 0)
    ORDER BY w.key COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET shape = t.shape WHERE false;
  END IF;
  SELECT array_agg(s.cell) INTO cells FROM (
    SELECT CASE WHEN (t.cell).key IS NULL THEN ROW(0, 0, 0, 0, 0, 0, 0, w.key, NULL, NULL)::{table} ELSE t.cell END AS cell
    -- By the key, one by one, as {take}.
    FROM unnest(keys) WITH ORDINALITY AS w(key, n)
      LEFT JOIN LATERAL (SELECT held AS cell FROM {table} AS held WHERE held.key = w.key OFFSET 0) AS t ON true ORDER BY w.n
  ) AS s;

  -- Only now: what is asked for holds no lock, and must not be told at an instant before a write that it saw.
  clock := extract(epoch FROM clock_timestamp()) * 1000000;
  IF now < 0 THEN
    now := clock;
  END IF;
  result[1] := now;

  FOR step IN 1 .. arg[3] LOOP
    op := arg[pos]; n := arg[pos + 1]; checks := arg[pos + 2]; taken := arg[pos + 3];
    pos := pos + 4;
    -- All of a peek's requests get one answer.
    k := CASE op WHEN 1 THEN 1 ELSE n END;

    -- How many pass: as many as the strictest limit lets.
    IF op <= 1 THEN
      FOR j IN 0 .. checks - 1 LOOP
        at := pos + 5 * j;
        cost := arg[at + 2];
        CONTINUE WHEN cost = 0;
        cell := cells[arg[at]];
        lim := 1 + 5 * arg[at + 1];
        shape := arg[lim]; amount := arg[lim + 1]; period := arg[lim + 2];
        IF cell.shape = shape THEN
          x := cell.a; y := cell.b; z := cell.c;
        ELSE
          x := 0; y := 0; z := 0;
        END IF;
        IF shape = 4 THEN
          long := arg[at + 3]; part := arg[at + 4]; horizon := arg[lim + 3]; rest := arg[lim + 4];
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
            k := least(k, ((horizon - x) * amount + rest - y) / (long * amount + part));
          ELSE
            k := least(k, div((horizon - x)::numeric * amount + rest - y, long::numeric * amount + part));
          END IF;
        ELSIF shape = 1 THEN
          p := now - now % period;
          IF x - x % period < p THEN
            y := 0;
          END IF;
          k := least(k, greatest(0, (amount - y) / cost));
        ELSIF shape = 3 THEN
          p := now - now % period;
          q := x - x % period;
          IF q < p THEN
            z := CASE WHEN p - q = period THEN y ELSE 0 END;
            y := 0;
          ELSE
            p := q;
          END IF;
          -- The previous window's share, rounded up: units are whole.
          u := period - greatest(now - p, 0);
          IF z > (9223372036854775807 - period) / u THEN
            z := div(z::numeric * u + period - 1, period);
          ELSE
            z := (z * u + period - 1) / period;
          END IF;
          k := least(k, greatest(0, (amount - y - z) / cost));
        ELSE
          k := least(k, greatest(0, (amount - y + {sunk}(cell, x, y, z, now - period)) / cost));
        END IF;
        EXIT WHEN k = 0;
      END LOOP;
    END IF;
    IF op = 1 THEN
      k := k * n;
    END IF;
    fin := fin + 1;
    result[fin] := k;

    -- What the step does to each cell, and what it was decided on.
    FOR j IN 0 .. checks - 1 LOOP
      at := pos + 5 * j;
      i := arg[at]; cost := arg[at + 2];
      lim := 1 + 5 * arg[at + 1];
      shape := arg[lim]; amount := arg[lim + 1]; period := arg[lim + 2]; horizon := arg[lim + 3]; rest := arg[lim + 4];
      cell := cells[i];

      IF op = 3 THEN
        -- The version stays as a floor for the next.
        IF cell.chunks > 0 THEN
          DELETE FROM {log} AS l WHERE l.key = cell.key;
        END IF;
        cell.shape := 0; cell.chunks := 0; cell.ats := NULL; cell.uptos := NULL;
        cells[i] := cell;
        dirty[i] := 1;
      ELSIF op = 2 AND cost > 0 AND cell.shape > 0 THEN
        cell.version := cell.version + 1;
        dirty[i] := 1;
        IF cell.shape <> shape THEN
          NULL;
        ELSIF shape = 2 THEN
          IF taken > now - period THEN
            cell := {refund}(cell, cost, taken);
          END IF;
        ELSIF shape = 4 THEN
          long := arg[at + 3]; part := arg[at + 4];
          x := cell.a; y := cell.b; z := cell.c;
          IF y >= amount THEN
            x := x + 1; y := 0;
          END IF;
          IF x > z + horizon OR x = z + horizon AND y > rest THEN
            x := z + horizon; y := rest;
          END IF;
          -- A bucket that is full has nothing to get back; a write would move its TAT on to now.
          IF x > now OR x = now AND y > 0 THEN
            x := x - now - long; y := y - part;
            IF y < 0 THEN
              x := x - 1; y := y + amount;
            END IF;
            IF x < 0 THEN
              x := 0; y := 0;
            END IF;
            cell.a := now + x; cell.b := y; cell.c := greatest(z, now);
          END IF;
        ELSE
          p := now - now % period;
          q := cell.a - cell.a % period;
          -- Unless that window has rolled on.
          IF taken - taken % period = greatest(p, q) THEN
            IF q < p THEN
              IF shape = 3 THEN
                cell.c := CASE WHEN p - q = period THEN cell.b ELSE 0 END;
              END IF;
              cell.b := 0;
            END IF;
            cell.a := greatest(p, q); cell.b := greatest(0, cell.b - cost);
          END IF;
        END IF;
      END IF;

      IF cell.shape = shape THEN
        x := cell.a; y := cell.b; z := cell.c;
      ELSE
        x := 0; y := 0; z := 0;
      END IF;
      IF shape = 2 THEN
        u := CASE WHEN cell.shape = 2 THEN {sunk}(cell, x, y, z, now - period) ELSE 0 END;
        z := y - u; y := x; x := z; z := -1;
      END IF;
      result[fin + 1] := x; result[fin + 2] := y; result[fin + 3] := z;

      IF op = 0 AND k > 0 AND cost > 0 THEN
        -- Each admission is a write of its own: so a fold of many gives the versions that they would have had one by one.
        cell.version := k + CASE cell.shape WHEN 0 THEN greatest(now - 1, cell.version) ELSE cell.version END;
        IF cell.shape <> shape THEN
          IF cell.chunks > 0 THEN
            DELETE FROM {log} AS l WHERE l.key = cell.key;
          END IF;
          cell.shape := shape; cell.a := 0; cell.b := 0; cell.c := 0; cell.chunks := 0;
          cell.ats := CASE shape WHEN 2 THEN '{}'::bigint[] END;
          cell.uptos := cell.ats;
        END IF;
        IF shape = 4 THEN
          long := arg[at + 3]; part := arg[at + 4];
          x := cell.a; y := cell.b; z := cell.c;
          IF y >= amount THEN
            x := x + 1; y := 0;
          END IF;
          IF x > z + horizon OR x = z + horizon AND y > rest THEN
            x := z + horizon; y := rest;
          END IF;
          IF x < now THEN
            x := now; y := 0;
          END IF;
          y := y + k * part;
          cell.a := x + k * long + y / amount; cell.b := y % amount; cell.c := greatest(z, now);
        ELSIF shape = 2 THEN
          -- The entry itself is put down when the row is written: all of a call's are of one instant.
          cell.c := u;
          cell.a := greatest(now, cell.a); cell.b := cell.b + k * cost;
        ELSE
          p := now - now % period;
          q := cell.a - cell.a % period;
          IF q < p THEN
            IF shape = 3 THEN
              cell.c := CASE WHEN p - q = period THEN cell.b ELSE 0 END;
            END IF;
            cell.b := 0;
          END IF;
          cell.a := greatest(p, q); cell.b := cell.b + k * cost;
        END IF;
        dirty[i] := 1;
      END IF;
      IF cost > 0 AND (op = 0 AND k > 0 OR op = 2) AND cell.shape > 0 THEN
        IF cell.shape = shape THEN
          -- A second more than it counts, so that a clock which steps back by less finds it; at a given instant, whose time is
          -- not this server's, an hour at least.
          x := CASE
            WHEN shape = 4 THEN cell.a + (cell.b > 0)::int
            WHEN shape = 2 AND cell.b > cell.c THEN cell.a + period
            WHEN shape = 2 OR cell.b = 0 AND (shape = 1 OR cell.c = 0) THEN now
            WHEN shape = 3 AND cell.b > 0 THEN cell.a + 2 * period
            ELSE cell.a + period
          END;
          cell.expires := greatest(clock + 1000000 + greatest(0, x - now),
            CASE WHEN arg[1] < 0 THEN 0 ELSE clock + 3600000000 END);
        END IF;
        cells[i] := cell;
      END IF;

      IF shape = 2 AND cost > 0 AND (op <> 0 OR k < n) AND cell.shape = 2 THEN
        -- What has to expire for a cost that is refused.
        u := {sunk}(cell, cell.a, cell.b, cell.c, now - period);
        IF cell.b - u + cost > amount THEN
          result[fin + 3] := {opens}(cell, cell.b + cost - amount);
        END IF;
      END IF;
      fin := fin + 4;
      result[fin] := cell.version;
    END LOOP;
    pos := pos + 5 * checks;
  END LOOP;

  FOR i IN 1 .. arg[4] LOOP
    cell := cells[i];
    IF cell.shape = 0 THEN
      gone := gone || cell.key;
    ELSIF dirty[i] > 0 THEN
      IF cell.shape = 2 THEN
        cell := {save}(cell);
      END IF;
      changed := changed || cell;
    END IF;
  END LOOP;
  IF cardinality(changed) > 0 THEN
    UPDATE {table} AS t SET version = w.version, a = w.a, b = w.b, c = w.c, expires = w.expires, chunks = w.chunks,
      shape = w.shape, ats = w.ats, uptos = w.uptos
    -- The second condition is for a plan that begins with the table: by it these keys are read, and not all.
    FROM unnest(changed) AS w WHERE t.key = w.key AND t.key = ANY (keys);
  END IF;
  IF cardinality(gone) > 0 THEN
    DELETE FROM {table} AS t WHERE t.key = ANY (gone);
  END IF;
  IF arg[5] > 0 AND NOT 1 = ANY (dirty) THEN
    -- Nothing has to last, so nobody has to wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  RETURN result;
END
$limiter$;
