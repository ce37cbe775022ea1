-- The full form: whatever there is.

local byte = string.byte
local TAKE, PEEK, REFUND, RESET = 0, 1, 2, 3
local NONE = 0
-- A log's head has 50 bytes, then come its entries of 16. The first read of a key brings the first 16 with it.
local HEAD, ENTRY, FIRST = 50, 16, '305'

local limits, logs = {}, false
for i = 1, term_count do
  local limit, shape = {}, nil
  shape, limit.amount, limit.period, limit.horizon, limit.part, position = unpack('<Bdddd', argument, position)
  limit.shape, logs = shape, logs or shape == LOG
  limit.fits, limit.take, limit.left, limit.step, limit.refund, limit.new, limit.view, limit.opens, limit.save =
    machines[shape]()
  limits[i] = limit
end

local cells = {}

-- What is stored of a key.
local function load(index)
  local key = KEYS[index]
  local text = call('GETRANGE', key, '0', FIRST)
  local cell = { key = key, shape = NONE, version = 0, a = 0, b = 0, c = 0 }
  cells[index] = cell
  if text == '' then
    return cell
  end
  local made, shape, _ = byte(text, 1, 2)
  if made ~= FORMAT then
    error('a state of another format, ' .. made)
  end
  cell.stored, cell.shape = true, shape
  if shape ~= LOG then
    _, _, cell.version, cell.a, cell.b, cell.c = unpack('<BBdddd', text)
    return cell
  end
  local log = { ats = {}, uptos = {}, base = 0, bytes = sub(text, HEAD + 1) }
  _, _, cell.version, log.newest, log.sum, log.dropped, log.first, log.count = unpack('<BBdddddd', text)
  log.from = log.count
  log.read = function(i, j)
    return call('GETRANGE', key, format('%.0f', HEAD + ENTRY * i), format('%.0f', HEAD + ENTRY * j - 1))
  end
  cell.a = log
  return cell
end

-- The state as a limit sees it: one of another shape counts as fresh.
local function state(cell, limit)
  if cell.shape == limit.shape then
    return cell.a, cell.b, cell.c
  end
  if limit.shape == LOG then
    return limit.new(), 0, 0
  end
  return 0, 0, 0
end

-- Reads the check at `from`, and how many of `n` such checks its limit lets pass.
local function judge(op, n, from)
  local index, number, cost, long, part, past = unpack('<I4I4ddd', argument, from)
  local cell, limit = cells[index] or load(index), limits[number]
  if op <= PEEK then
    local a, b, c = state(cell, limit)
    n = limit.fits(a, b, c, limit, now, cost, long, part, n)
  end
  return n, past, cell, limit, cost, long, part
end

-- Does to one cell what `op` says, of whose `n` requests `k` are allowed, and tells what it was decided on.
local function settle(op, n, k, taken, cell, limit, cost, long, part)
  if op == RESET then
    -- The version stays as a floor for the next.
    cell.shape, cell.limit, cell.bumped = NONE, nil, nil
  elseif op == REFUND and cost > 0 and cell.shape ~= NONE then
    cell.version = cell.version + 1
    if cell.shape == limit.shape then
      cell.a, cell.b, cell.c = limit.refund(cell.a, cell.b, cell.c, limit, now, cost, long, part, taken)
      cell.limit = limit
    else
      cell.bumped = true
    end
  end
  local a, b, c = state(cell, limit)
  local x, y, z = a, b, c
  if limit.shape == LOG then
    x, y = limit.view(a, limit, now)
  end
  if op == TAKE and k > 0 and cost > 0 then
    -- Each admission is a write of its own: so a fold of many gives the versions that they would have had one by one.
    -- (At 2^53 they stand still. An instant of the year 2255 has to be given for that.)
    cell.version = min((cell.shape == NONE and max(now - 1, cell.version) or cell.version) + k, 2 ^ 53)
    cell.a, cell.b, cell.c = limit.take(a, b, c, limit, now, cost, long, part, k)
    cell.shape, cell.limit = limit.shape, limit
  end
  if limit.shape == LOG then
    z = -1
    if op ~= TAKE or k < n then
      z = limit.opens(a, limit, now, cost)
    end
  end
  return pack('<dddd', x, y, z, cell.version)
end

local reply = { pack('<I4I4d', low, high, now) }
for _ = 1, step_count do
  local op, n, checks, taken
  op, n, checks, taken, position = unpack('<BI4Bd', argument, position)
  -- All of a peek's requests get one answer.
  local k, rows = op == PEEK and 1 or n, {}
  for i = 1, checks do
    local row = {}
    k, position, row[1], row[2], row[3], row[4], row[5] = judge(op, k, position)
    rows[i] = row
  end
  if op == PEEK then
    k = k * n
  end
  reply[#reply + 1] = pack('<I4', k)
  for i = 1, checks do
    local row = rows[i]
    reply[#reply + 1] = settle(op, n, k, taken, row[1], row[2], row[3], row[4], row[5])
  end
end

-- The last reads: those of logs that are written anew.
if logs then
  for i = 1, #KEYS do
    local cell = cells[i]
    if cell.limit and cell.shape == LOG then
      cell.bytes, cell.place = cell.limit.save(cell.a)
    end
  end
end

for i = 1, #KEYS do
  local cell = cells[i]
  local key, limit, shape, version = cell.key, cell.limit, cell.shape, cell.version
  if limit then
    local life = max(1, ceil(limit.left(cell.a, cell.b, cell.c, limit, now) / 1000)) + SLACK
    life = format('%.0f', given and max(life, GIVEN) or life)
    if shape ~= LOG then
      call('SET', key, pack('<BBdddd', FORMAT, shape, version, cell.a, cell.b, cell.c), 'PX', life)
    else
      local log, bytes, place = cell.a, cell.bytes, cell.place
      local head = pack('<BBdddddd', FORMAT, LOG, version, log.newest, log.sum, log.dropped, log.first, log.count)
      if place then
        call('SETRANGE', key, '0', head)
        if bytes ~= '' then
          call('SETRANGE', key, format('%.0f', HEAD + ENTRY * place), bytes)
        end
        call('PEXPIRE', key, life)
      else
        call('SET', key, head .. bytes, 'PX', life)
      end
    end
  elseif shape == NONE then
    if cell.stored then
      call('DEL', key)
    end
  elseif cell.bumped then
    call('SETRANGE', key, '2', pack('<d', version))
  end
end

return concat(reply)
