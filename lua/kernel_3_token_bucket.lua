-- token_bucket.go's twin: a is the instant up to which the row accounts for tokens, b what is missing from a full
-- bucket, in millionths of a token.
K[3] = function()
  local function capacity(limit)
    if limit.requests == 0 then return 0 end
    return limit.burst * 1e6
  end

  local function roll(limit, row)
    local requests = limit.requests
    local steps = floordiv(max(now - row.a, 0), limit.quantum)
    if row.b == 0 or requests == 0 then -- a limit of 0 gives nothing back, now or later, for the time until now
      row.a = max(now, row.a)
    elseif steps * requests >= row.b then
      row.a, row.b = max(now, row.a), 0
    else
      row.a, row.b = row.a + steps * limit.quantum, row.b - steps * requests
    end
    return row
  end

  -- afterleak is what is left by now of an amount charged, or given back, at an earlier instant.
  local function afterleak(limit, amount, at)
    local steps = floordiv(max(now - at, 0), limit.quantum)
    local leaked = min(steps * limit.requests, math.abs(amount))
    if amount < 0 then return amount + leaked end
    return amount - leaked
  end

  return {
    load = function(limit, key, value)
      local a, b
      if value then a, b = match(value, '^(%d+):(%d+)$') end
      if value and not a then a, b = match(value, '^(%d+):(%d+);') end
      if a then a, b = a + 0, b + 0 end
      if not (a and plausible(limit, a) and b < 2^53) then return newrow(limit, key, now, 0, 0) end
      return roll(limit, newrow(limit, key, a, b, 0))
    end,

    roll = roll,

    room = function(limit, row)
      return floordiv(capacity(limit) - row.b, 1e6)
    end,

    spend = function(limit, row, n, at)
      local amount = n * 1e6
      if at ~= 0 then amount = afterleak(limit, amount, at) end
      local before = row.b
      row.b = clamp(before + amount, 0, max(2 * capacity(limit), before))
      if row.b == 0 then row.a = max(now, row.a) end
      return row.b ~= before
    end,

    save = function(limit, row)
      local expires = now + limit.period
      if limit.requests > 0 then
        -- A bucket that was filled under a larger limit could take for ever; Go gives up after 20 years, too.
        expires = row.a + min(ceildiv(row.b, limit.requests) * limit.quantum, 6.3072e14)
      end
      redis_call('SET', row.key, fmt('%d:%d', row.a, row.b), 'PX', ttl(limit, expires))
    end,
  }
end
