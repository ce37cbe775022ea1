-- Decides a batch of checks: all reads and all decisions first, then the writes, so that an error leaves nothing half-done.
-- The machines follow, one function each that returns its parts; only what is below them, `plain.lua` and `main.lua`, reads and
-- writes keys.
--
-- KEYS     the batch's keys, each once
-- ARGV[1]  packed, little-endian, without padding; d is a double, B and I4 are whole numbers of 1 and 4 bytes
--   8 bytes        come back as the first of the reply, so that a reply is known to be of this call
--   B d I4 I4      the form of what follows, the instant (-1: this server's), how many terms, how many steps
-- the plain form, 1: takes only, of no log, and no key twice: the checks' keys are KEYS, in order
--   B d d d d d d d  each term: shape, amount, period, horizon (whole us, rest in 1/amount us), a cost, the time that it takes
--                  (whole us, rest)
--   I4 B I4        each step: how many equal requests it stands for, how many checks, the term of the first
--   I4               the term of each of its other checks
-- the full form, 2
--   B d d d d      each term: shape, amount, period, horizon (whole us, rest)
--   B I4 B d       each step: op, how many equal requests it stands for, how many checks, for a refund when it was taken
--   I4 I4 d d d      each of its checks: key, term, cost, the time that the cost takes (whole us, rest)
-- reply    packed likewise
--   8 bytes, d     those of the argument, the instant
--   I4             each step: how many of its requests, the first ones, are allowed
--   d d d d          each of its checks: three numbers of the state before a take or a peek and after a refund or a reset,
--                  and the version after the step
--
-- A stored state: B B d …   format (1), shape, version, and the machine's numbers; a log's entries follow.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local sub, format, concat = string.sub, string.format, table.concat
local ceil, max, min = math.ceil, math.max, math.min
local PLAIN, FORMAT, LOG = 1, 1, 2
-- A key outlives its use by this many ms: housekeeping needs no precision, and a clock that steps back by less finds it.
local SLACK = 1000
-- At a given instant the state's time is not this server's, so a key stays this many ms at least.
local GIVEN = 3600000
local machines = {}

local argument = ARGV[1]
local low, high, form, now, term_count, step_count, position = unpack('<I4I4BdI4I4', argument)
local given = now >= 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

