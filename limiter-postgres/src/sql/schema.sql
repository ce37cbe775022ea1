-- What limiter keeps in Postgres: states by key, and the older entries of long sliding logs.
-- It may be run again at any time, and by many at once.
BEGIN;
SELECT pg_advisory_xact_lock({lock});
CREATE SCHEMA IF NOT EXISTS {schema};

-- A row for each key that was charged. a, b and c are its machine's numbers:
--   shape 1, fixed window     start, count
--   shape 2, sliding log      newest instant, sum of units, sum of units that were dropped; and its newest entries:
--                             instants, and the sum of units up to and with each; older ones in chunks
--   shape 3, sliding counter  start, current, previous
--   shape 4, the buckets      TAT in whole us, the rest of it in 1/amount us, last instant at which it was written
-- Instants are us since the epoch. From `expires` on the state is as good as never used; no decision reads it.
-- No index but the key's, and room in each page: so an update touches no index (HOT).
CREATE {unlogged}TABLE IF NOT EXISTS {table} (
  version bigint NOT NULL,
  a bigint NOT NULL,
  b bigint NOT NULL,
  c bigint NOT NULL,
  expires bigint NOT NULL,
  chunks integer NOT NULL DEFAULT 0,
  shape smallint NOT NULL,
  key text COLLATE "C" PRIMARY KEY,
  ats bigint[],
  uptos bigint[]
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Entries of long logs, 64 a row: written once, and deleted once all of them have expired.
CREATE {unlogged}TABLE IF NOT EXISTS {log} (
  first_at bigint NOT NULL,
  last_at bigint NOT NULL,
  last_upto bigint NOT NULL,
  key text COLLATE "C" NOT NULL,
  ats bigint[] NOT NULL,
  uptos bigint[] NOT NULL,
  PRIMARY KEY (key, first_at)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

{functions}
COMMIT;
