-- The contract (KEYS, ARGV, reply, rows) is in README.md; the meaning is limiter.Decide's.

local KEYS, ARGV, redis_call, redis_pcall = KEYS, ARGV, redis.call, redis.pcall
local fmt, match, rep, pack, unpack_ = string.format, string.match, string.rep, struct.pack, struct.unpack
local min, max = math.min, math.max
local MAX = 2^32 - 1
local TOGETHER, DENIED = 1, 2
local ENFORCED, QUOTA = 0, 1

local function floordiv(a, b) return (a - a % b) / b end

local function ceildiv(a, b) return (a + -a % b) / b end

local function clamp(x, lo, hi)
  if x < lo then return lo elseif x > hi then return hi end
  return x
end

local now = tonumber(ARGV[1])
if not now then
  local t = redis_call('TIME')
  now = t[1] * 1e6 + t[2]
end

-- ttl is how long a value is kept whose row is as good as none from an instant on: in ms, rounded up, and some
-- more, so that values which end together don't expire together.
local function ttl(limit, expires)
  if limit.expires ~= expires then
    local spread = min(limit.period / 8, 1e7) * ARGV[2] / 1e6
    limit.expires, limit.ttl = expires, fmt('%d', floordiv(max(expires - now, 0) + spread, 1000) + 1)
  end
  return limit.ttl
end

-- plausible tells whether a stored instant can be true. A clock may have stepped back since, but no more than a
-- day: what lies further ahead would deny for years, and counts as damaged.
local function plausible(limit, instant)
  return instant <= now + limit.period + 8.64e10
end

-- newrow is a row with all that it will ever hold: a table that grows costs more than all else here.
local function newrow(limit, key, a, b, c)
  return {a = a, b = b, c = c, limit = limit, key = key, pending = 0, live = false, changed = false}
end

-- kernels: each is made when it is first asked for, and all that they share with it, as most calls need none. load(limit,
-- key, value) gives the row rolled to now; room and spend are as in Go; save(limit, row) writes the row. roll(limit, row)
-- brings a row to another limit, where that makes a difference.
local function kernels()
local K = {false, false, false, false, false} -- as large as it becomes
-- kernels
return K
end

local K, made = nil, {}

local function kernelof(limit)
  local algorithm = limit.algorithm
  if not made[algorithm] then
    K = K or kernels()
    made[algorithm] = K[algorithm]()
  end
  return made[algorithm]
end

local limits, pos = {}, 1
while pos <= #ARGV[3] do
  local algorithm, requests, burst, period
  algorithm, requests, burst, period, pos = unpack_('<BI4I4I8', ARGV[3], pos)
  local window = floordiv(now, period)
  limits[#limits + 1] = {
    algorithm = algorithm, requests = requests, burst = burst, period = period, window = window,
    present = window % 2^20 * 2^32, quantum = period / 1e6, expires = 0, ttl = false, elapsed = false,
  }
end

local kinds = {}
pos = 1
while pos <= #ARGV[4] do
  local kind, count = {}, nil
  count, pos = unpack_('<H', ARGV[4], pos)
  for i = 1, count do
    local limit, cost, at, group, role, charge, passfull
    limit, cost, at, group, role, charge, passfull, pos = unpack_('<Hi8i8HBBB', ARGV[4], pos)
    kind[i] = {
      limit = limits[limit], kernel = false, cost = cost, need = (cost == 0 and passfull == 0) and 1 or cost, at = at,
      group = group, role = role, charge = charge, row = false, allowed = 0, passes = 0,
    }
  end
  kinds[#kinds + 1] = kind
end

-- All values are read before anything is written. A key of another type than string reads as none.
local values = redis_call('MGET', unpack(KEYS))

local reply, changed, plain = {now}, {}, 0

if ARGV[6] ~= '' then
  local rows = {}

  -- read reads a counter, and shows it in the reply.
  local function read(hit, key)
    local row = hit.kernel.load(hit.limit, KEYS[key], values[key])
    local shown = #reply
    reply[shown + 1], reply[shown + 2], reply[shown + 3] = row.a, row.b, row.c
    if row.log then
      for i = 1, row.c do reply[shown + 3 + i] = row.log[i] end
    end
    rows[key] = row
    return row
  end

  -- change charges n, or gives back. What is not there is not made by giving back: that changes nothing.
  local function change(hit, n)
    local row = hit.row
    if hit.kernel.spend(hit.limit, row, n, hit.at) then
      if not row.changed then changed[#changed + 1] = row end
      row.changed = hit.limit
    end
  end

  -- judge returns how many of the n requests a hit lets pass: the first so many, since each takes the same.
  local function judge(hit, n)
    local row, limit, cost, allowed = hit.row, hit.limit, hit.cost, n
    if row.limit ~= limit then
      row.limit = limit
      if hit.kernel.roll then hit.kernel.roll(limit, row) end
    end
    if cost < 0 then
      change(hit, cost)
      return n
    end
    local room = hit.kernel.room(limit, row) - row.pending
    if hit.need > room then
      allowed = 0
    elseif cost * n > room then
      allowed = floordiv(room, cost)
    end
    if allowed > 0 or hit.charge >= DENIED then row.pending = row.pending + cost end
    return allowed
  end

  -- verdict marks each hit with how many of the n requests its descriptor passes, and returns how many of them
  -- are admitted.
  local function verdict(hits, n)
    local admitted, quota, first = n, nil, 1
    while first <= #hits do
      local group, last, passes = hits[first].group, first, n
      while last <= #hits and hits[last].group == group do
        passes = min(passes, hits[last].allowed)
        last = last + 1
      end
      for i = first, last - 1 do hits[i].passes = passes end
      if hits[first].role == ENFORCED then
        admitted = min(admitted, passes)
      elseif hits[first].role == QUOTA then
        quota = max(quota or 0, passes)
      end
      first = last
    end
    return min(admitted, quota or n)
  end

  -- charged is for how many of the n requests a hit is charged.
  local function charged(hit, n, admitted)
    if hit.charge == DENIED then return n end
    if hit.charge == 0 then return hit.passes end
    local times = min(hit.passes, admitted)
    -- Once the hit itself is denied, it is denied and charged to the end.
    if hit.charge == TOGETHER + DENIED and times >= hit.allowed then return n end
    return times
  end

  local ops, at = {unpack_('<' .. rep('H', #ARGV[6] / 2), ARGV[6])}, 1
  while at < #ops do
    local hits, groups = kinds[ops[at]], ops[at + 1]
    local size = #hits
    for i = 1, size do hits[i].kernel = kernelof(hits[i].limit) end
    at = at + 2
    for _ = 1, groups do
      local n, all = ops[at], true
      for i = 1, size do
        local hit, key = hits[i], ops[at + i]
        hit.row = rows[key] or read(hit, key)
        hit.row.pending = 0
      end
      for i = 1, size do
        local allowed = judge(hits[i], n)
        hits[i].allowed, all = allowed, all and allowed == n
      end
      -- Where all pass, all are charged, whatever the policy.
      local admitted = not all and verdict(hits, n)
      for i = 1, size do
        local hit = hits[i]
        local times = all and n or charged(hit, n, admitted)
        if hit.cost > 0 and times > 0 then change(hit, hit.cost * times) end
      end
      at = at + 1 + size
    end
  end
end

-- From here on there are writes, and nothing that can raise, but for the first write.

-- byrow decides n requests for one window, writes it, and returns it as it was.
local function byrow(hit, n, key)
  local limit, kernel = hit.limit, kernelof(hit.limit)
  local row = kernel.load(limit, KEYS[key], values[key])
  local value = row.a % 2^20 * 2^32 + row.b
  if hit.charge < DENIED then n = min(n, max(floordiv(kernel.room(limit, row), hit.cost), 0)) end
  if n > 0 and kernel.spend(limit, row, hit.cost * n, 0) then kernel.save(limit, row) end
  return value
end

-- charge charges a window that has a count, or none yet. A number in a form that INCRBY doesn't take is written over.
local function charge(limit, key, value, spent)
  if values[key] and redis_pcall('INCRBY', KEYS[key], fmt('%d', spent)) == value + spent then return end
  redis_call('SET', KEYS[key], fmt('%d', value + spent), 'PX', ttl(limit, (limit.window + 1) * limit.period))
end

-- together decides n requests for several windows, each of which has to let them pass, and goes on to the next keys.
local found, odd = {}, {}
local function together(hits, n)
  local size, admitted = #hits, n
  for i = 1, size do
    local limit, key, room = hits[i].limit, plain + i, nil
    local value = tonumber(values[key] or limit.present)
    local count = (value or -1) - limit.present
    if count >= 0 and count <= MAX and count % 1 == 0 then
      odd[i], room = false, limit.requests - count
    else
      local row = kernelof(limit).load(limit, KEYS[key], values[key])
      odd[i], room, value = row, kernelof(limit).room(limit, row), row.a % 2^20 * 2^32 + row.b
    end
    found[i], admitted = value, min(admitted, max(floordiv(room, hits[i].cost), 0))
  end
  for i = 1, size do
    local limit, key, row, spent = hits[i].limit, plain + i, odd[i], hits[i].cost * admitted
    if admitted > 0 and not row then
      charge(limit, key, found[i], spent)
    elseif admitted > 0 and kernelof(limit).spend(limit, row, spent, 0) then
      kernelof(limit).save(limit, row)
    end
    values[key] = found[i] -- for the reply
  end
  plain = plain + size
end

-- alone decides groups of n requests for one window each.
local function alone(hit, n, groups)
  local limit, cost, charged, present = hit.limit, hit.cost, hit.charge, hit.limit.present
  local requests, expires = limit.requests, ttl(limit, (limit.window + 1) * limit.period)
  local full = cost * n
  local by, to = fmt('%d', full), fmt('%d', present + full)
  for key = plain + 1, plain + groups do
    -- What most windows are, none or the present one, goes without a row.
    local value, written = tonumber(values[key] or present), false
    local count = (value or -1) - present
    if count >= 0 and count <= MAX and count % 1 == 0 then
      local spent = full
      if charged < DENIED and full > requests - count then spent = cost * max(floordiv(requests - count, cost), 0) end
      if spent > MAX - count then spent = MAX - count end
      if spent == 0 then
        written = true
      elseif values[key] then
        written = redis_pcall('INCRBY', KEYS[key], spent == full and by or fmt('%d', spent)) == value + spent
      else
        redis_call('SET', KEYS[key], spent == full and to or fmt('%d', present + spent), 'PX', expires)
        written = true
      end
    end
    values[key] = written and value or byrow(hit, n, key) -- for the reply
  end
  plain = plain + groups
end

pos = 1
while pos <= #ARGV[5] do
  local kind, n, groups
  kind, n, groups, pos = unpack_('<HHH', ARGV[5], pos)
  local hits = kinds[kind]
  if #hits == 1 then
    alone(hits[1], n, groups)
  else
    for _ = 1, groups do together(hits, n) end
  end
end

for i = 1, #changed do
  local row = changed[i]
  kernelof(row.changed).save(row.changed, row)
end

-- packed is the reply's part of a list's first numbers, some at a time: a function takes a few thousand at most.
local function packed(list, count)
  if count <= 1000 then return pack('<' .. rep('i8', count), unpack(list, 1, count)) end
  local parts = {}
  for i = 1, count, 1000 do
    local last = min(i + 999, count)
    parts[#parts + 1] = pack('<' .. rep('i8', last - i + 1), unpack(list, i, last))
  end
  return table.concat(parts)
end

return packed(reply, #reply) .. packed(values, plain)
