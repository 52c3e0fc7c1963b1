-- fixed_window.go's twin: a is the window's index, b the count.
K[0] = {
  load = function(limit, value)
    local n = tonumber(value)
    if n and n >= 0 and n < 2^52 and n % 1 == 0 then
      local b = n % 2^32
      local ahead = ((n - b) / 2^32 - limit.window) % 2^20
      if ahead < 2^19 and plausible(limit, ahead * limit.period + now) then
        return {a = limit.window + ahead, b = b, c = 0, live = fmt('%d', n) == value}
      end
    end
    return {a = limit.window, b = 0, c = 0}
  end,

  room = function(limit, row)
    return limit.requests - row.b
  end,

  spend = function(limit, row, n, at)
    if at ~= 0 and floordiv(at, limit.period) ~= row.a then return false end
    local before = row.b
    row.b = clamp(before + n, 0, MAX)
    return row.b ~= before
  end,

  -- A live window is incremented, which leaves its TTL alone. loaded is the count it was read with.
  save = function(limit, row, key, loaded)
    if row.live then
      redis.call('INCRBY', key, fmt('%d', row.b - loaded.b))
      return
    end
    redis.call('SET', key, fmt('%d', row.a % 2^20 * 2^32 + row.b), 'PX', ttl(limit, (row.a + 1) * limit.period))
  end,
}
