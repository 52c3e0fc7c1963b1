-- sliding_window.go's twin: a is the present window's index, b its count, c that of the window before.
K[1] = {
  load = function(limit, value)
    local a, b, c
    if value then a, b, c = string.match(value, '^(%d+):(%d+):(%d+)$') end
    a, b, c = tonumber(a), tonumber(b), tonumber(c)
    if a and plausible(limit, a * limit.period) and b <= MAX and c <= MAX then
      if a >= limit.window then return {a = a, b = b, c = c} end
      if a == limit.window - 1 then return {a = limit.window, b = 0, c = b} end
    end
    return {a = limit.window, b = 0, c = 0}
  end,

  room = function(limit, row)
    local ms = floordiv(math.max(now - row.a * limit.period, 0), 1000)
    local period, share = limit.period / 1000, nil
    if period <= 9e9 then
      share = floordiv(ms * 1e6, period)
    else
      share = floordiv(ms, ceildiv(period, 1e6))
    end
    local used = row.c * (1e6 - share) + row.b * 1e6
    return floordiv(limit.requests * 1e6 - used, 1e6)
  end,

  spend = function(limit, row, n, at)
    local window, count = row.a, 'b'
    if at ~= 0 then window = floordiv(at, limit.period) end
    if window == row.a - 1 then count = 'c' elseif window ~= row.a then return false end
    local before = row[count]
    row[count] = clamp(before + n, 0, MAX)
    return row[count] ~= before
  end,

  save = function(limit, row, key)
    local value = fmt('%d:%d:%d', row.a, row.b, row.c)
    redis.call('SET', key, value, 'PX', ttl(limit, (row.a + 2) * limit.period))
  end,
}
