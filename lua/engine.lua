-- The contract (KEYS, ARGV, reply, rows) is in README.md; the meaning is limiter.Decide's.

local fmt, pack, unpack_ = string.format, struct.pack, struct.unpack
local MAX = 2^32 - 1
local TOGETHER, DENIED = 1, 2
local ENFORCED, QUOTA = 0, 1

local function floordiv(a, b) return (a - a % b) / b end

local function ceildiv(a, b) return -floordiv(-a, b) end

local function clamp(x, lo, hi)
  if x < lo then return lo elseif x > hi then return hi end
  return x
end

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1e6 + t[2]
end
local jitter = ARGV[2] / 1e6

-- ttl is how long a value is kept whose row is as good as none from an instant on: in ms, rounded up, and some
-- more, so that values which end together don't expire together.
local function ttl(limit, expires)
  local spread = math.min(limit.period / 8, 1e7) * jitter
  return fmt('%d', floordiv(math.max(expires - now, 0) + spread, 1000) + 1)
end

-- plausible tells whether a stored instant can be true. A clock may have stepped back since, but no more than a
-- day: what lies further ahead would deny for years, and counts as damaged.
local function plausible(limit, instant)
  return instant <= now + limit.period + 8.64e10
end

-- kernels: load(limit, value, key) gives the row rolled to now; room and spend are as in Go; save(limit, row,
-- key, loaded) writes the row, where loaded is how it was read.
local K = {}
-- kernels

local limits, pos = {}, 1
while pos <= #ARGV[3] do
  local algorithm, requests, burst, period
  algorithm, requests, burst, period, pos = unpack_('<BI4I4I8', ARGV[3], pos)
  limits[#limits + 1] = {
    kernel = K[algorithm], requests = requests, burst = burst, period = period,
    window = floordiv(now, period), quantum = period / 1e6,
  }
end

-- All values are read before anything is written. A key of another type than string reads as none.
local values = redis.call('MGET', unpack(KEYS))

local rows, loaded, changed = {}, {}, {}

-- rowof reads a hit's row, or finds it. A row that is as it was read is read anew for another limit of the same
-- counter, which may roll it otherwise; but hits of one group (seen) share it.
local function rowof(hit, seen)
  local row = rows[hit.key]
  local other = row and row.limit ~= hit.limit and not changed[hit.key] and not seen[hit.key]
  seen[hit.key] = true
  if not row or other then
    row = hit.limit.kernel.load(hit.limit, values[hit.key], KEYS[hit.key])
    row.limit = hit.limit
    rows[hit.key] = row
    loaded[hit.key] = {a = row.a, b = row.b, c = row.c}
  end
  return row
end

-- change charges n, or gives back. What is not there is not made by giving back: that changes nothing.
local function change(hit, n)
  if hit.limit.kernel.spend(hit.limit, hit.row, n, hit.at) then changed[hit.key] = hit end
end

-- readgroup reads n equal requests of some hits each.
local function readgroup(ops, from)
  local n, count, hits, seen = nil, nil, {}, {}
  n, count, from = unpack_('<HH', ops, from)
  for i = 1, count do
    local h, l = {}, nil
    h.key, l, h.cost, h.at, h.group, h.role, h.charge, h.passfull, from = unpack_('<HHi8i8BBBB', ops, from)
    h.limit = limits[l]
    h.row = rowof(h, seen)
    hits[i] = h
  end
  return n, hits, from
end

-- judge finds how many of the n requests this hit lets pass: the first so many, since each takes the same.
local function judge(hit, n, pending)
  if hit.cost < 0 then
    change(hit, hit.cost)
    hit.allowed = n
    return
  end
  local need = hit.cost
  if need == 0 and hit.passfull == 0 then need = 1 end
  local taken = pending[hit.key] or 0
  local room = hit.limit.kernel.room(hit.limit, hit.row) - taken
  if need > room then
    hit.allowed = 0
  elseif hit.cost == 0 then
    hit.allowed = n
  else
    hit.allowed = math.min(n, floordiv(room, hit.cost))
  end
  if hit.allowed > 0 or hit.charge >= DENIED then pending[hit.key] = taken + hit.cost end
end

-- verdict marks each hit with how many of the n requests its descriptor passes, and returns how many of them
-- are admitted.
local function verdict(hits, n)
  local admitted, quota, first = n, nil, 1
  while first <= #hits do
    local group, last, passes = hits[first].group, first, n
    while last <= #hits and hits[last].group == group do
      passes = math.min(passes, hits[last].allowed)
      last = last + 1
    end
    for i = first, last - 1 do hits[i].passes = passes end
    if hits[first].role == ENFORCED then
      admitted = math.min(admitted, passes)
    elseif hits[first].role == QUOTA then
      quota = math.max(quota or 0, passes)
    end
    first = last
  end
  return math.min(admitted, quota or n)
end

-- charged is for how many of the n requests a hit is charged.
local function charged(hit, n, admitted)
  if hit.charge == DENIED then return n end
  if hit.charge == 0 then return hit.passes end
  local times = math.min(hit.passes, admitted)
  -- Once the hit itself is denied, it is denied and charged to the end.
  if hit.charge == TOGETHER + DENIED and times >= hit.allowed then return n end
  return times
end

local function packrow(row)
  local log = row.log
  if not log then return pack('<i8i8i8H', row.a, row.b, row.c, 0) end
  local stamps = {}
  for i = 1, #log do stamps[i] = pack('<i8', log[i]) end
  return pack('<i8i8i8H', row.a, row.b, row.c, #log) .. table.concat(stamps)
end

local norow = pack('<i8i8i8H', 0, 0, 0, 0)

local reply, at = {}, 1
while at <= #ARGV[4] do
  local n, hits
  n, hits, at = readgroup(ARGV[4], at)
  local packed = {}
  for i = 1, #hits do
    local row = hits[i].row
    -- Of a counter that comes more than once only the first row is read.
    if packed[row] then reply[#reply + 1] = norow else reply[#reply + 1] = packrow(row) end
    packed[row] = true
  end
  local pending = {}
  for i = 1, #hits do judge(hits[i], n, pending) end
  local admitted = verdict(hits, n)
  for i = 1, #hits do
    local hit = hits[i]
    local times = hit.cost > 0 and charged(hit, n, admitted) or 0
    if times > 0 then change(hit, hit.cost * times) end
  end
end

for key, hit in pairs(changed) do
  hit.limit.kernel.save(hit.limit, hit.row, KEYS[key], loaded[key])
end
return {now, table.concat(reply)}
