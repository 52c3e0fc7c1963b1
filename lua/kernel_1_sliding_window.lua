-- sliding_window.go's twin: a is the present window's index, b its count, c that of the window before. live tells whether
-- a is the window that was read.
K[1] = function()
  -- elapsed is how much of the present window has passed, in millionths.
  local function elapsed(limit)
    local ms = floordiv(now - limit.window * limit.period, 1000)
    local period = limit.period / 1000
    if period <= 9e9 then return floordiv(ms * 1e6, period) end
    return floordiv(ms, ceildiv(period, 1e6))
  end

  return {
    load = function(limit, key, value)
      local a, b, c
      if value then a, b, c = match(value, '^(%d+):(%d+):(%d+)$') end
      if value and not a then a, b, c = match(value, '^(%d+):(%d+):(%d+);') end
      if a then a, b, c = a + 0, b + 0, c + 0 end
      if a and plausible(limit, a * limit.period) and b <= MAX and c <= MAX then
        if a >= limit.window then
          local row = newrow(limit, key, a, b, c)
          row.live = true
          return row
        end
        if a == limit.window - 1 then return newrow(limit, key, limit.window, 0, b) end
      end
      return newrow(limit, key, limit.window, 0, 0)
    end,

    room = function(limit, row)
      limit.elapsed = limit.elapsed or elapsed(limit)
      local share = row.a == limit.window and limit.elapsed or 0 -- nothing has passed of a window that lies ahead
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

    -- A window that was there keeps its TTL, on servers that know how.
    save = function(limit, row)
      local value = fmt('%d:%d:%d', row.a, row.b, row.c)
      if row.live and redis_pcall('SET', row.key, value, 'KEEPTTL').ok then return end
      redis_call('SET', row.key, value, 'PX', ttl(limit, (row.a + 2) * limit.period))
    end,
  }
end
