-- Token bucket and leaky bucket, as bucket.rs has them. A state is (seen, ahead, rest): the TAT's whole microseconds are
-- seen + ahead, which a double could not hold near 2^53, while each of the two is exact. Spans of time are pairs, whole
-- microseconds and a rest in 1/amount us; a cost comes as the span that Rust has divided out, (long, part).

-- The TAT as this limit counts it at `now`, ahead of the later of `seen` and `now`; that instant; and where on this
-- scale `now` lies, where nothing is owed.
local function counted(seen, ahead, rest, limit, now)
  if rest >= limit.amount then
    ahead, rest = ahead + 1, 0
  end
  -- The horizon is counted from the last write, hence before the clock moves on.
  if ahead > limit.horizon or ahead == limit.horizon and rest > limit.part then
    ahead, rest = limit.horizon, limit.part
  end
  if now > seen then
    -- What is rounded here lies more than 2^53 in the past, and counts as drained.
    ahead, seen = ahead + (seen - now), now
  end
  local none = now - seen
  if ahead < none then
    ahead, rest = none, 0
  end
  return seen, ahead, rest, none
end

-- a + b; the rests are both below the amount, so one carry is enough.
local function plus(long, part, longer, rest, amount)
  rest = part + rest
  if rest >= amount then
    return long + longer + 1, rest - amount
  end
  return long + longer, rest
end

-- How many of `n` checks of this cost pass, one after the other.
local function fits(seen, ahead, rest, limit, now, cost, long, part, n)
  if cost == 0 then
    return n
  end
  local amount, none, _ = limit.amount
  _, ahead, rest, none = counted(seen, ahead, rest, limit, now)
  local room, spare = limit.horizon + none, limit.part
  if n == 1 then
    long, part = plus(ahead, rest, long, part, amount)
    return (long < room or long == room and part <= spare) and 1 or 0
  end
  -- The cost times 1, 2, 4 …, as far as it can pass; then as many of these as fit, the largest first.
  local longs, parts, top, step = { long }, { part }, 1, 1
  while step * 2 <= n and longs[top] <= limit.horizon do
    longs[top + 1], parts[top + 1] = plus(longs[top], parts[top], longs[top], parts[top], amount)
    top, step = top + 1, step * 2
  end
  local k = 0
  for i = top, 1, -1 do
    if k + step <= n then
      long, part = plus(ahead, rest, longs[i], parts[i], amount)
      if long < room or long == room and part <= spare then
        ahead, rest, k = long, part, k + step
      end
    end
    step = step / 2
  end
  return k
end

-- Charges `n` times the cost. That they fit was asked before, so no sum passes the horizon.
local function take(seen, ahead, rest, limit, now, _, long, part, n)
  local amount = limit.amount
  seen, ahead, rest = counted(seen, ahead, rest, limit, now)
  while n > 1 do
    if n % 2 == 1 then
      ahead, rest = plus(ahead, rest, long, part, amount)
      n = n - 1
    end
    long, part = plus(long, part, long, part, amount)
    n = n / 2
  end
  ahead, rest = plus(ahead, rest, long, part, amount)
  return seen, ahead, rest
end

local function refund(seen, ahead, rest, limit, now, _, long, part)
  local latest, debt, spare, none = counted(seen, ahead, rest, limit, now)
  local owed = debt - none
  if owed == 0 and spare == 0 then
    -- A bucket that is full has nothing to get back; a write would move its TAT on to now.
    return seen, ahead, rest
  end
  if owed < long or owed == long and spare <= part then
    return latest, none, 0
  end
  if spare < part then
    return latest, debt - long - 1, spare + limit.amount - part
  end
  return latest, debt - long, spare - part
end

-- How long until the state is as good as never used, in us.
local function left(seen, ahead, rest, _, now)
  return ahead + (seen - now) + (rest > 0 and 1 or 0)
end

-- `fits` and `take` in one: how many pass, and the state after them.
local function step(seen, ahead, rest, limit, now, cost, long, part, n)
  if n > 1 or cost == 0 then
    local k = fits(seen, ahead, rest, limit, now, cost, long, part, n)
    if k > 0 and cost > 0 then
      return k, take(seen, ahead, rest, limit, now, cost, long, part, k)
    end
    return k
  end
  local none
  seen, ahead, rest, none = counted(seen, ahead, rest, limit, now)
  long, part = plus(ahead, rest, long, part, limit.amount)
  local room = limit.horizon + none
  if long < room or long == room and part <= limit.part then
    return 1, seen, long, part
  end
  return 0
end

return fits, take, left, step, refund
