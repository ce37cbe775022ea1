-- Sliding counter, as sliding_counter.rs has it. A state is (start, current, previous).

local floor, max = math.floor, math.max

-- The state as it counts at `now`.
local function at(start, current, previous, limit, now)
  local period = limit.period
  local grid = now - now % period
  if start == grid then
    return start, current, previous
  end
  start = start - start % period
  if start >= grid then
    return start, current, previous
  end
  if grid - start == period then
    return grid, 0, current
  end
  return grid, 0, 0
end

-- Whether a/b <= c/d, for whole numbers below 2^53, b and d over 0: whole parts first, then the rests upside down, as
-- Euclid does it. The products a*d and c*b would leave the range in which a double is exact.
local function at_most(a, b, c, d)
  while true do
    local p, q = floor(a / b), floor(c / d)
    if p ~= q then
      return p < q
    end
    a, c = a - p * b, c - q * d
    if a == 0 then
      return true
    end
    if c == 0 then
      return false
    end
    a, b, c, d = d, c, b, a
  end
end

-- Whether previous x weight / period <= room.
local function within(previous, weight, period, room)
  if room < 0 then
    return false
  end
  local share, whole = previous * weight, room * period
  if share < 2 ^ 53 and whole < 2 ^ 53 then
    return share <= whole
  end
  if previous == 0 then
    return true
  end
  return room > 0 and at_most(previous, room, period, weight)
end

-- How many of `n` checks of this cost pass, one after the other.
local function fits(start, current, previous, limit, now, cost, _, _, n)
  if cost == 0 then
    return n
  end
  start, current, previous = at(start, current, previous, limit, now)
  local period = limit.period
  local weight, room = period - max(0, now - start), limit.amount - current
  if within(previous, weight, period, room - n * cost) then
    return n
  end
  -- Some k below n: `low` pass, `high` do not.
  local low, high = 0, n
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if within(previous, weight, period, room - middle * cost) then
      low = middle
    else
      high = middle
    end
  end
  return low
end

local function take(start, current, previous, limit, now, cost, _, _, n)
  start, current, previous = at(start, current, previous, limit, now)
  return start, current + n * cost, previous
end

local function refund(start, current, previous, limit, now, cost, _, _, taken)
  local grid, units, before = at(start, current, previous, limit, now)
  if taken - taken % limit.period == grid then
    return grid, max(0, units - cost), before
  end
  return start, current, previous
end

-- How long until the state is as good as never used, in us.
local function left(start, current, previous, limit, now)
  if current > 0 then
    return start - now + 2 * limit.period
  end
  if previous > 0 then
    return start - now + limit.period
  end
  return 0
end

-- `fits` and `take` in one: how many pass, and the state after them.
local function step(a, b, c, limit, now, cost, _, _, n)
  local k = fits(a, b, c, limit, now, cost, nil, nil, n)
  if k == 0 then
    return k
  end
  return k, take(a, b, c, limit, now, cost, nil, nil, k)
end

return fits, take, left, step, refund
