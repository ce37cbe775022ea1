-- Decides a batch of checks: all reads and all decisions first, then the writes, so that an error leaves nothing half-done.
-- The machines follow, one function each that returns its parts; only `main.lua`, below them, calls Redis.
--
-- KEYS     the batch's keys, each once
-- ARGV[1]  packed, little-endian, without padding; d is a double, B and I4 are whole numbers of 1 and 4 bytes
--   8 bytes        come back as the first of the reply, so that a reply is known to be of this call
--   d I4 I4        the instant (-1: this server's), how many limits, how many steps
--   B d d d d      each limit: shape, amount, period, horizon (whole us, rest in 1/amount us)
--   B I4 B d       each step: op, how many equal requests it stands for, how many checks, for a refund when it was taken
--   I4 I4 d d d      each of its checks: key, limit, cost, the time that the cost takes (whole us, rest)
-- reply    packed likewise
--   8 bytes, d     those of the argument, the instant
--   I4             each step: how many of its requests, the first ones, are allowed
--   d d d d          each of its checks: three numbers of the state before a take or a peek and after a refund or a reset,
--                  and the version after the step
--
-- A stored state: B B d …   format (1), shape, version, and the machine's numbers; a log's entries follow.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local byte, sub, format, concat = string.byte, string.sub, string.format, table.concat
local ceil, max, min = math.ceil, math.max, math.min
local TAKE, PEEK, REFUND, RESET = 0, 1, 2, 3
local NONE, LOG = 0, 2
local machines = {}
