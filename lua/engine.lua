-- The contract (KEYS, ARGV, reply, rows) is in README.md; the meaning is limiter.Decide's.

local fmt, pack, unpack_ = string.format, struct.pack, struct.unpack
local MAX = 2^32 - 1
local TOGETHER, DENIED = 1, 2
local ENFORCED, QUOTA = 0, 1

local function floordiv(a, b) return (a - a % b) / b end

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

-- kernels: load(limit, value) gives the row rolled to now, with live if the value stands and may be changed
-- in place; room and spend as in Go; save writes it.
local K = {}
-- kernels

local limits, pos = {}, 1
while pos <= #ARGV[3] do
  local algorithm, requests, burst, period
  algorithm, requests, burst, period, pos = unpack_('<BI4I4I8', ARGV[3], pos)
  limits[#limits + 1] = {
    kernel = K[algorithm], requests = requests, burst = burst, period = period, window = floordiv(now, period),
  }
end

-- All values are read before anything is written. A key of another type than string reads as none.
local values = redis.call('MGET', unpack(KEYS))

local rows, loaded, changed = {}, {}, {}

local function rowof(hit)
  local row = rows[hit.key]
  if not row then
    row = hit.limit.kernel.load(hit.limit, values[hit.key])
    rows[hit.key] = row
    loaded[hit.key] = {a = row.a, b = row.b, c = row.c}
  end
  return row
end

-- change charges n, or gives back. What is not there is not made by giving back: that changes nothing.
local function change(hit, n)
  if hit.limit.kernel.spend(hit.limit, hit.row, n, hit.at) then changed[hit.key] = hit end
end

local function readbatch(ops, from)
  local n, hits = nil, {}
  n, from = unpack_('<H', ops, from)
  for i = 1, n do
    local h, l = {}, nil
    h.key, l, h.cost, h.at, h.group, h.role, h.charge, h.passfull, from = unpack_('<HHi8i8BBBB', ops, from)
    h.limit = limits[l]
    h.row = rowof(h)
    hits[i] = h
  end
  return hits, from
end

local function judge(hit, pending)
  if hit.cost < 0 then
    change(hit, hit.cost)
    hit.allowed = true
    return
  end
  local need = hit.cost
  if need == 0 and hit.passfull == 0 then need = 1 end
  local taken = pending[hit.key] or 0
  hit.allowed = need <= hit.limit.kernel.room(hit.limit, hit.row) - taken
  if hit.allowed or hit.charge >= DENIED then pending[hit.key] = taken + hit.cost end
end

-- verdict marks each hit with whether its group passes, and tells whether the request is admitted.
local function verdict(hits)
  local admitted, quotas, passing, first = true, 0, 0, 1
  while first <= #hits do
    local group, last, passes = hits[first].group, first, true
    while last <= #hits and hits[last].group == group do
      passes = passes and hits[last].allowed
      last = last + 1
    end
    for i = first, last - 1 do hits[i].passes = passes end
    if hits[first].role == ENFORCED then
      admitted = admitted and passes
    elseif hits[first].role == QUOTA then
      quotas = quotas + 1
      if passes then passing = passing + 1 end
    end
    first = last
  end
  return admitted and (quotas == 0 or passing > 0)
end

local function charged(hit, admitted)
  if hit.charge == TOGETHER + DENIED then return not hit.allowed or (hit.passes and admitted) end
  if hit.charge == TOGETHER then return hit.passes and admitted end
  return hit.charge == DENIED or hit.passes
end

local reply, at = {}, 1
while at <= #ARGV[4] do
  local hits
  hits, at = readbatch(ARGV[4], at)
  for i = 1, #hits do
    local r = hits[i].row
    reply[#reply + 1] = pack('<i8i8i8', r.a, r.b, r.c)
  end
  local pending = {}
  for i = 1, #hits do judge(hits[i], pending) end
  local admitted = verdict(hits)
  for i = 1, #hits do
    if hits[i].cost > 0 and charged(hits[i], admitted) then change(hits[i], hits[i].cost) end
  end
end

for key, hit in pairs(changed) do
  hit.limit.kernel.save(hit.limit, hit.row, KEYS[key], loaded[key])
end
return {now, table.concat(reply)}
