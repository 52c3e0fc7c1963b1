-- named_window.go's twin: b is the count, and the window is in the key's name. live is the count that was read, if there is
-- one.
K[5] = function()
  return {
    load = function(limit, key, value)
      local n = tonumber(value)
      if n and n >= 0 and n % 1 == 0 then
        local row = newrow(limit, key, 0, min(n, MAX), 0)
        row.live = row.b
        return row
      end
      return newrow(limit, key, 0, 0, 0)
    end,

    room = function(limit, row)
      return limit.requests - row.b
    end,

    spend = function(limit, row, n, at)
      if n > 0 and at ~= 0 and floordiv(at, limit.period) ~= limit.window then return false end
      local before = row.b
      row.b = clamp(before + n, 0, MAX)
      return row.b ~= before
    end,

    -- Its TTL is set once, also where the other service counted and got no further. What is no number, or in a form that
    -- INCRBY doesn't take, is written over.
    save = function(limit, row)
      local ms = ttl(limit, now + limit.period + 1e7)
      if row.live and type(redis_pcall('INCRBY', row.key, fmt('%d', row.b - row.live))) == 'number' then
        if redis_pcall('PTTL', row.key) == -1 then redis_call('PEXPIRE', row.key, ms) end
        return
      end
      redis_call('SET', row.key, fmt('%d', row.b), 'PX', ms)
    end,
  }
end
