-- Fixed window, as fixed_window.rs has it. A state is (start, count).
--
-- `%` is exact: a quotient of whole numbers below 2^53 is at least 1/divisor below the next whole number, which is
-- more than rounding can bridge.

local floor, max, min = math.floor, math.max, math.min

-- The state as it counts at `now`: an older window counts 0, one in the future stays.
local function at(start, count, limit, now)
  local current = now - now % limit.period
  if start == current then
    return start, count
  end
  start = start - start % limit.period
  if start < current then
    return current, 0
  end
  return start, count
end

-- How many of `n` checks of this cost pass, one after the other.
local function fits(start, count, _, limit, now, cost, _, _, n)
  if cost == 0 then
    return n
  end
  start, count = at(start, count, limit, now)
  return max(0, min(n, floor((limit.amount - count) / cost)))
end

local function take(start, count, _, limit, now, cost, _, _, n)
  start, count = at(start, count, limit, now)
  return start, count + n * cost, 0
end

local function refund(start, count, _, limit, now, cost, _, _, taken)
  local current, units = at(start, count, limit, now)
  if taken - taken % limit.period == current then
    return current, max(0, units - cost), 0
  end
  return start, count, 0
end

-- How long until the state is as good as never used, in us.
local function left(start, count, _, limit, now)
  if count == 0 then
    return 0
  end
  return start - now + limit.period
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
