-- sliding_log.go's twin: log holds the time of each hit, the oldest first. In Redis it is a sorted set, with the
-- time as score and time:number as member, so that two hits of one microsecond are two.
K[2] = function()
  local function addhits(log, n, at)
    local place = #log + 1
    if at ~= 0 then
      while place > 1 and log[place - 1] > at do place = place - 1 end
    else
      at = now
      if #log > 0 then at = max(at, log[#log]) end
    end
    for _ = 1, n do table.insert(log, place, at) end
  end

  local function takehits(log, n, at)
    local last = #log
    while at ~= 0 and last > 0 and log[last] > at do last = last - 1 end
    while last > 0 and n > 0 and (at == 0 or log[last] == at) do
      table.remove(log, last)
      last, n = last - 1, n - 1
    end
  end

  return {
    load = function(limit, key)
      local row = newrow(limit, key, 0, 0, 0)
      row.log = {}
      -- A value of another type answers with an error, and counts as none.
      local found = redis_pcall('ZRANGEBYSCORE', key, '(' .. fmt('%d', now - limit.period), '+inf', 'WITHSCORES')
      if found.err then return row end
      for i = 2, #found, 2 do
        local at = tonumber(found[i])
        if at and plausible(limit, at) and at % 1 == 0 then row.log[#row.log + 1] = at end
      end
      row.c = #row.log
      return row
    end,

    room = function(limit, row)
      return limit.requests - #row.log
    end,

    spend = function(limit, row, n, at)
      local before = #row.log
      if n < 0 then
        takehits(row.log, -n, at)
      elseif at == 0 or at > now - limit.period then
        addhits(row.log, min(n, 2 * limit.requests - before), at)
      end
      return #row.log ~= before
    end,

    -- The set is written anew, in one command: at most 256 members. DEL is for a value of another type, too.
    save = function(limit, row)
      local key = row.key
      redis_call('DEL', key)
      if #row.log == 0 then return end
      local members, number = {}, 0
      for i, at in ipairs(row.log) do
        if at == row.log[i - 1] then number = number + 1 else number = 0 end
        local score = fmt('%d', at)
        members[2 * i - 1], members[2 * i] = score, score .. ':' .. number
      end
      redis_call('ZADD', key, unpack(members))
      redis_call('PEXPIRE', key, ttl(limit, row.log[#row.log] + limit.period))
    end,
  }
end
