-- The sliding log's parts. A cell's newest entries are in its row; older ones are in chunks, if there are any. Entries that were
-- dropped may still be there: their sums are at most `c`. The last entry may be `a` and `b` only, until {save} puts it down.

-- The sum of units up to the last entry that is not after `edge`, or that was dropped.
CREATE OR REPLACE FUNCTION {sunk}(cell {table}, newest bigint, total bigint, dropped bigint, edge bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $limiter$
DECLARE
  index int;
BEGIN
  IF newest <= edge THEN
    RETURN total;
  END IF;
  index := width_bucket(edge, cell.ats);
  IF index > 0 THEN
    RETURN greatest(dropped, cell.uptos[index]);
  END IF;
  IF cell.chunks > 0 THEN
    RETURN greatest(dropped, (
      SELECT l.uptos[width_bucket(edge, l.ats)] FROM {log} AS l
      WHERE l.key = cell.key AND l.first_at <= edge ORDER BY l.first_at DESC LIMIT 1));
  END IF;
  RETURN dropped;
END
$limiter$;

-- The instant of the first entry with which the sum reaches `bound`.
CREATE OR REPLACE FUNCTION {opens}(cell {table}, bound bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $limiter$
DECLARE
  found_at bigint;
BEGIN
  IF cell.chunks > 0 THEN
    SELECT l.ats[width_bucket(bound - 1, l.uptos) + 1] INTO found_at FROM {log} AS l
    WHERE l.key = cell.key AND l.last_upto >= bound ORDER BY l.first_at LIMIT 1;
  END IF;
  RETURN coalesce(found_at, cell.ats[width_bucket(bound - 1, cell.uptos) + 1], cell.a);
END
$limiter$;

-- The cell with its last entry put down.
CREATE OR REPLACE FUNCTION {put}(cell {table}) RETURNS {table} LANGUAGE plpgsql STABLE AS $limiter$
DECLARE
  size int := cardinality(cell.ats);
BEGIN
  IF size > 0 AND cell.ats[size] = cell.a THEN
    cell.uptos[size] := cell.b;
  ELSIF cell.b > cell.c THEN
    cell.ats := cell.ats || cell.a;
    cell.uptos := cell.uptos || cell.b;
  END IF;
  RETURN cell;
END
$limiter$;

-- Gives back what was taken at `taken`: the oldest entries that are not before it give first.
CREATE OR REPLACE FUNCTION {refund}(cell {table}, cost bigint, taken bigint) RETURNS {table}
LANGUAGE plpgsql VOLATILE AS $limiter$
#variable_conflict use_variable
DECLARE
  before bigint;
  pulled int;
  ats bigint[];
  uptos bigint[];
BEGIN
  cell := {put}(cell);
  IF cell.a < taken OR cell.b <= cell.c THEN
    RETURN cell;
  END IF;
  before := {sunk}(cell, cell.a, cell.b, cell.c, taken - 1);
  IF cell.chunks > 0 THEN
    -- A refund is rare: all chunks that it may reach come back into the row.
    SELECT array_agg(e.at ORDER BY e.at), array_agg(e.upto ORDER BY e.at), count(DISTINCT l.first_at)
    INTO ats, uptos, pulled FROM {log} AS l, unnest(l.ats, l.uptos) AS e(at, upto)
    WHERE l.key = cell.key AND l.last_at >= coalesce((
      -- And the one before, whose last entry may be the newest then.
      SELECT max(m.last_at) FROM {log} AS m WHERE m.key = cell.key AND m.last_at < taken), taken);
    DELETE FROM {log} AS l WHERE l.key = cell.key AND l.last_at >= ats[1];
    cell.chunks := cell.chunks - pulled;
    cell.ats := ats || cell.ats;
    cell.uptos := uptos || cell.uptos;
  END IF;
  SELECT coalesce(array_agg(e.at ORDER BY e.at), '{}'),
    coalesce(array_agg(CASE WHEN e.at < taken THEN e.upto ELSE e.upto - cost END ORDER BY e.at), '{}')
  INTO ats, uptos FROM unnest(cell.ats, cell.uptos) AS e(at, upto) WHERE e.at < taken OR e.upto - cost > before;
  pulled := cardinality(ats);
  cell.ats := ats;
  cell.uptos := uptos;
  IF pulled > 0 AND uptos[pulled] > cell.c THEN
    cell.a := ats[pulled];
    cell.b := uptos[pulled];
  ELSE
    cell.a := 0;
    cell.b := cell.c;
  END IF;
  RETURN cell;
END
$limiter$;

-- The cell as it is written: without what was dropped, and with the entries of a row that has grown long in a chunk.
CREATE OR REPLACE FUNCTION {save}(cell {table}) RETURNS {table} LANGUAGE plpgsql VOLATILE AS $limiter$
#variable_conflict use_variable
DECLARE
  size int;
  count int;
BEGIN
  cell := {put}(cell);
  size := width_bucket(cell.c, cell.uptos);
  IF size > 0 THEN
    cell.ats := cell.ats[size + 1 :];
    cell.uptos := cell.uptos[size + 1 :];
  END IF;
  IF cell.chunks > 0 THEN
    DELETE FROM {log} AS l WHERE l.key = cell.key AND l.last_upto <= cell.c;
    GET DIAGNOSTICS count = ROW_COUNT;
    cell.chunks := cell.chunks - count;
  END IF;
  -- One entry always stays: the newest.
  WHILE cardinality(cell.ats) > 64 LOOP
    INSERT INTO {log} (first_at, last_at, last_upto, key, ats, uptos)
    VALUES (cell.ats[1], cell.ats[64], cell.uptos[64], cell.key, cell.ats[: 64], cell.uptos[: 64]);
    cell.ats := cell.ats[65 :];
    cell.uptos := cell.uptos[65 :];
    cell.chunks := cell.chunks + 1;
  END LOOP;
  RETURN cell;
END
$limiter$;
