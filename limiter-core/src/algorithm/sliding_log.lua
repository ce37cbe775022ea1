-- Sliding log, as sliding_log.rs has it. Its state is a table, since what is stored of it is read as it is needed:
--
--   first, count     the entries are those from `first` up to and without `count`
--   newest, sum      the last entry: its instant, and the sum of units up to and with itself; 0, 0 if there is none
--   dropped          the sum up to and without the entry `first`
--   from, ats, uptos the entries from `from` on are no longer as they are stored, but these
--   read(i, j)       the stored entries from i up to and without j, 16 bytes each: the instant and the sum, as doubles
--   base, bytes      the last that was read so, and the entry it begins with
--   fresh            nothing of what is stored is of use: all has to be written
--   edge, gone, sunk what `expired` answered last

local floor, max, min, concat = math.floor, math.max, math.min, table.concat
local pack, unpack, sub = struct.pack, struct.unpack, string.sub
local SIZE, CHUNK, AT, UPTO = 16, 16, 1, 2

-- The instant of entry i, and the sum up to and with it.
local function entry(log, i)
  if i == log.count - 1 then
    return log.newest, log.sum
  end
  if i >= log.from then
    i = i - log.from + 1
    return log.ats[i], log.uptos[i]
  end
  local at = (i - log.base) * SIZE
  if at < 0 or at + SIZE > #log.bytes then
    log.base = i - i % CHUNK
    log.bytes = log.read(log.base, log.base + CHUNK)
    at = (i - log.base) * SIZE
  end
  return unpack('<dd', log.bytes, at + 1)
end

-- The first entry from `low` on whose instant or sum is at least `bound`. Forward by doubling steps, and then halving
-- them: what is looked for mostly lies near `low`.
local function search(log, low, which, bound)
  local high, step = log.count, 1
  while low + step <= high do
    local probe = low + step - 1
    local at, upto = entry(log, probe)
    if (which == AT and at or upto) >= bound then
      high = probe
      break
    end
    low, step = probe + 1, step * 2
  end
  while low < high do
    local middle = floor((low + high) / 2)
    local at, upto = entry(log, middle)
    if (which == AT and at or upto) >= bound then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The first entry that still counts, and the sum of units before it. Entries up to and with the instant `edge` have expired.
local function expired(log, edge)
  if log.edge ~= edge then
    local index, sunk
    if log.newest <= edge then
      index, sunk = log.count, log.sum
    else
      index = search(log, log.first, AT, edge + 1)
    end
    if index == log.first then
      sunk = log.dropped
    elseif not sunk then
      local _
      _, sunk = entry(log, index - 1)
    end
    log.edge, log.gone, log.sunk = edge, index, sunk
  end
  return log.gone, log.sunk
end

-- Takes the entries from `index` on out of the store, to be changed.
local function pull(log, index)
  if index >= log.from then
    return
  end
  local ats, uptos, length = {}, {}, log.from - index
  if length == 1 and log.from == log.count then
    ats[1], uptos[1] = log.newest, log.sum
  else
    local bytes, position = log.read(index, log.from), 1
    for i = 1, length do
      ats[i], uptos[i], position = unpack('<dd', bytes, position)
    end
    for i = 1, log.count - log.from do
      ats[length + i], uptos[length + i] = log.ats[i], log.uptos[i]
    end
  end
  log.from, log.ats, log.uptos = index, ats, uptos
end

-- Empties it: the sums and the places start anew.
local function clear(log)
  log.first, log.count, log.newest, log.sum, log.dropped = 0, 0, 0, 0, 0
  log.from, log.ats, log.uptos, log.fresh, log.edge = 0, {}, {}, true, nil
  log.base, log.bytes = 0, ''
end

local function new()
  local log = {}
  clear(log)
  return log
end

-- How many of `n` checks of this cost pass, one after the other.
local function fits(log, _, _, limit, now, cost, _, _, n)
  if cost == 0 then
    return n
  end
  local _, sunk = expired(log, now - limit.period)
  return max(0, min(n, floor((limit.amount - (log.sum - sunk)) / cost)))
end

local function take(log, _, _, limit, now, cost, _, _, n)
  log.first, log.dropped = expired(log, now - limit.period)
  log.edge = nil
  if log.first == log.count then
    clear(log)
  end
  if log.sum >= 2 ^ 52 then
    -- Sums grow as long as a log is never empty: they are brought back long before a double would round them.
    pull(log, log.first)
    for i = 1, #log.uptos do
      log.uptos[i] = log.uptos[i] - log.dropped
    end
    log.sum, log.dropped = log.sum - log.dropped, 0
  end
  local at, upto = max(now, log.newest), log.sum + n * cost
  if log.count > log.first and at == log.newest then
    pull(log, log.count - 1)
  else
    log.count = log.count + 1
  end
  log.ats[log.count - log.from], log.uptos[log.count - log.from] = at, upto
  log.newest, log.sum = at, upto
  return log
end

-- Gives back what was taken at `taken`: the oldest entries that are not before it give first.
local function refund(log, _, _, limit, now, cost, _, _, taken)
  local edge = now - limit.period
  if taken <= edge then
    return log
  end
  local index = search(log, expired(log, edge), AT, taken)
  if index == log.count then
    return log
  end
  local before, _ = log.dropped
  if index > log.first then
    _, before = entry(log, index - 1)
  end
  pull(log, index)
  local ats, uptos, kept, given = log.ats, log.uptos, index - log.from, 0
  for i = kept + 1, log.count - log.from do
    local units = uptos[i] - before
    before = uptos[i]
    local gives = min(units, cost - given)
    given = given + gives
    if units > gives then
      kept = kept + 1
      ats[kept], uptos[kept] = ats[i], before - given
    end
  end
  for i = #ats, kept + 1, -1 do
    ats[i], uptos[i] = nil, nil
  end
  local count = log.from + kept
  log.edge = nil
  if count == log.first then
    clear(log)
  elseif kept > 0 then
    log.count, log.newest, log.sum = count, ats[kept], uptos[kept]
  else
    log.newest, log.sum = entry(log, count - 1)
    log.count = count
  end
  return log
end

-- How long until the state is as good as never used, in us.
local function left(log, _, _, limit, now)
  if log.count == log.first then
    return 0
  end
  return log.newest - now + limit.period
end

-- Units that still count, and the newest entry's instant.
local function view(log, limit, now)
  local _, sunk = expired(log, now - limit.period)
  return log.sum - sunk, log.newest
end

-- The instant of the entry that has to expire for the cost to pass, or -1 if it passes at once.
local function opens(log, limit, now, cost)
  local index, sunk = expired(log, now - limit.period)
  local excess = log.sum - sunk + cost - limit.amount
  if cost == 0 or excess <= 0 then
    return -1
  end
  index = search(log, index, UPTO, sunk + excess)
  if index >= log.count then
    return log.newest
  end
  return (entry(log, index))
end

-- What has to be written: the entries as bytes, and the entry that they begin with, or nil if they are all there is.
-- In place as long as what is stored is mostly live, so that an admission costs the same whatever the log's length; and
-- whole, with what was dropped before it left out, for a log so short that this is one command.
local function save(log)
  local bytes, from = {}, max(log.from, log.first)
  local whole = log.fresh or log.count <= CHUNK or log.first * 2 > log.count
  for i = from, log.count - 1 do
    bytes[i - from + 1] = pack('<dd', log.ats[i - log.from + 1], log.uptos[i - log.from + 1])
  end
  bytes = concat(bytes)
  if not whole then
    return bytes, from
  end
  if log.first < from then
    local start, stop = (log.first - log.base) * SIZE, (from - log.base) * SIZE
    if start >= 0 and stop <= #log.bytes then
      bytes = sub(log.bytes, start + 1, stop) .. bytes
    else
      bytes = log.read(log.first, from) .. bytes
    end
  end
  log.first, log.count = 0, log.count - log.first
  return bytes
end

return fits, take, left, nil, refund, new, view, opens, save
