-- The plain form: most of what a limiter is ever asked.

if form == PLAIN then
  local terms = {}
  for i = 1, term_count do
    local shape, amount, period, horizon, spare, cost, long, part, after =
      unpack('<Bddddddd', argument, position)
    local fits, take, left, step = machines[shape]()
    position = after
    -- All at once: a table that grows is made anew each time.
    terms[i] = {
      shape = shape,
      amount = amount,
      period = period,
      horizon = horizon,
      part = spare,
      cost = cost,
      long = long,
      rest = part,
      fits = fits,
      take = take,
      left = left,
      step = step,
    }
  end

  -- What is stored of a key as a machine of this shape sees it, and its version, if it has one: a state of another shape counts
  -- as fresh.
  local function load(key, shape)
    local text = call('GET', key)
    if not text then
      return 0, 0, 0, nil
    end
    local made, is, version, a, b, c = unpack('<BBdddd', text)
    if made ~= FORMAT then
      error('a state of another format, ' .. made)
    end
    if is ~= shape then
      return 0, 0, 0, version
    end
    return a, b, c, version
  end

  -- The version after `k` admissions, each of which is a write of its own: so a fold of many gives the versions that they would have
  -- had one by one. (At 2^53 they stand still. An instant of the year 2255 has to be given for that.)
  local function later(version, k)
    return min((version or max(now - 1, 0)) + k, 2 ^ 53)
  end

  -- A state as it is stored, and for how long. Neighbours often stay as long as each other, and to print a number takes a while.
  local last, text
  local function stored(term, version, a, b, c)
    local left = term.left(a, b, c, term, now)
    if left ~= last then
      last, left = left, max(1, ceil(left / 1000)) + SLACK
      text = format('%d', given and max(left, GIVEN) or left)
    end
    return pack('<BBdddd', FORMAT, term.shape, version, a, b, c), text
  end

  local n, checks, number
  n, checks, number, position = unpack('<I4BI4', argument, position)

  -- One check by itself needs no tables.
  if step_count == 1 and checks == 1 then
    local key, term = KEYS[1], terms[1]
    local cost = term.cost
    local a, b, c, version = load(key, term.shape)
    local k, x, y, z = term.step(a, b, c, term, now, cost, term.long, term.rest, n)
    if k > 0 and cost > 0 then
      version = later(version, k)
      local value, life = stored(term, version, x, y, z)
      call('SET', key, value, 'PX', life)
    end
    return pack('<I4I4dI4dddd', low, high, now, k, a, b, c, version or 0)
  end

  local reply, parts = { pack('<I4I4d', low, high, now) }, 1
  local keys, values, lives, writes, index = {}, {}, {}, 0, 0
  for s = 1, step_count do
    if s > 1 then
      n, checks, number, position = unpack('<I4BI4', argument, position)
    end
    local term = terms[number]
    if checks == 1 then
      index = index + 1
      local key, cost = KEYS[index], term.cost
      local a, b, c, version = load(key, term.shape)
      local k, x, y, z = term.step(a, b, c, term, now, cost, term.long, term.rest, n)
      if k > 0 and cost > 0 then
        version = later(version, k)
        writes = writes + 1
        keys[writes] = key
        values[writes], lives[writes] = stored(term, version, x, y, z)
      end
      parts = parts + 1
      reply[parts] = pack('<I4dddd', k, a, b, c, version or 0)
    else
      local k, rows = n, {}
      for i = 1, checks do
        if i > 1 then
          number, position = unpack('<I4', argument, position)
          term = terms[number]
        end
        index = index + 1
        local key = KEYS[index]
        local a, b, c, version = load(key, term.shape)
        local x, y, z
        if k > 0 then
          k, x, y, z = term.step(a, b, c, term, now, term.cost, term.long, term.rest, k)
        end
        rows[i] = { term, a, b, c, version or false, x, y, z, key }
      end
      parts = parts + 1
      reply[parts] = pack('<I4', k)
      for i = 1, checks do
        local row = rows[i]
        local of, a, b, c, version = row[1], row[2], row[3], row[4], row[5]
        local cost = of.cost
        if k > 0 and cost > 0 then
          local x, y, z = row[6], row[7], row[8]
          if k < n then
            -- Those before were charged for more than the last let pass.
            x, y, z = of.take(a, b, c, of, now, cost, of.long, of.rest, k)
          end
          version = later(version, k)
          writes = writes + 1
          keys[writes] = row[9]
          values[writes], lives[writes] = stored(of, version, x, y, z)
        end
        parts = parts + 1
        reply[parts] = pack('<dddd', a, b, c, version or 0)
      end
    end
  end

  for i = 1, writes do
    call('SET', keys[i], values[i], 'PX', lives[i])
  end
  return concat(reply)
end

