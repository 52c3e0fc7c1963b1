-- fixed_window.go's twin: a is the window's index, b the count. live is the count that was read, if the window
-- is there.
K[0] = function()
  return {
    load = function(limit, key, value)
      local n = tonumber(value)
      if n and n >= 0 and n < 2^52 and n % 1 == 0 then
        local b = n % 2^32
        local ahead = ((n - b - limit.present) / 2^32) % 2^20
        if ahead == 0 or ahead < 2^19 and plausible(limit, ahead * limit.period + now) then
          local row = newrow(limit, key, limit.window + ahead, b, 0)
          row.live = b
          return row
        end
      end
      return newrow(limit, key, limit.window, 0, 0)
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

    -- A live window is incremented, which leaves its TTL alone. A number in a form that INCRBY doesn't take is
    -- written over.
    save = function(limit, row)
      if row.live and type(redis_pcall('INCRBY', row.key, fmt('%d', row.b - row.live))) == 'number' then return end
      local value = fmt('%d', row.a % 2^20 * 2^32 + row.b)
      redis_call('SET', row.key, value, 'PX', ttl(limit, (row.a + 1) * limit.period))
    end,
  }
end
