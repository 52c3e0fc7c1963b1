-- token_bucket.go's twin: a is the instant up to which the row accounts for tokens, b what is missing from a full
-- bucket, in millionths of a token.

local function capacity(limit)
  if limit.requests == 0 then return 0 end
  return limit.burst * 1e6
end

-- afterleak is what is left by now of an amount charged, or given back, at an earlier instant.
local function afterleak(limit, amount, at)
  local steps = floordiv(math.max(now - at, 0), limit.quantum)
  local leaked = math.min(steps * limit.requests, math.abs(amount))
  if amount < 0 then return amount + leaked end
  return amount - leaked
end

K[3] = {
  load = function(limit, value)
    local a, b
    if value then a, b = string.match(value, '^(%d+):(%d+)$') end
    a, b = tonumber(a), tonumber(b)
    if not (a and plausible(limit, a) and b < 2^53) then return {a = now, b = 0, c = 0} end
    if b == 0 or limit.requests == 0 then return {a = math.max(now, a), b = b, c = 0} end
    local steps = floordiv(math.max(now - a, 0), limit.quantum)
    if steps * limit.requests >= b then return {a = math.max(now, a), b = 0, c = 0} end
    return {a = a + steps * limit.quantum, b = b - steps * limit.requests, c = 0}
  end,

  room = function(limit, row)
    return floordiv(capacity(limit) - row.b, 1e6)
  end,

  spend = function(limit, row, n, at)
    local amount = n * 1e6
    if at ~= 0 then amount = afterleak(limit, amount, at) end
    local before = row.b
    row.b = clamp(before + amount, 0, math.max(2 * capacity(limit), before))
    if row.b == 0 then row.a = math.max(now, row.a) end
    return row.b ~= before
  end,

  save = function(limit, row, key)
    local expires = now + limit.period
    if limit.requests > 0 then
      -- A bucket that was filled under a larger limit could take for ever; Go gives up after 20 years, too.
      expires = row.a + math.min(ceildiv(row.b, limit.requests) * limit.quantum, 6.3072e14)
    end
    redis.call('SET', key, fmt('%d:%d', row.a, row.b), 'PX', ttl(limit, expires))
  end,
}
