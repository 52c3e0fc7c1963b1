-- Keeps small texts for a while, for all replicas, in the lines of KEYS[1]: when each ends, in ms, its name, and itself.
-- Keeps the text ARGV[2] by the name ARGV[1], in place of one that is there, for ARGV[3] ms, or for none. Without a name it
-- changes nothing. Returns the time, in ms, and the lines.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lines = redis.call('GET', KEYS[1]) or ''
if ARGV[1] == '' then return { string.format('%d', now), lines } end
local kept, latest = {}, 0
local function keep(ends, name, text)
  kept[#kept + 1] = string.format('%d %s %s\n', ends, name, text)
  latest = math.max(latest, ends)
end
for ends, name, text in string.gmatch(lines, '(%d+) (%S+) ([^\n]*)\n') do
  ends = tonumber(ends)
  if ends > now and name ~= ARGV[1] then keep(ends, name, text) end
end
local lifetime = tonumber(ARGV[3])
if lifetime > 0 then keep(now + lifetime, ARGV[1], ARGV[2]) end
lines = table.concat(kept)
if #kept > 0 then
  redis.call('SET', KEYS[1], lines, 'PX', string.format('%d', latest - now))
else
  redis.call('DEL', KEYS[1])
end
return { string.format('%d', now), lines }
