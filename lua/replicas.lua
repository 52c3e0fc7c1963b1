-- Notes that the replica ARGV[1] is alive, and returns all that were within the last ARGV[2] ms, in KEYS[1], the last to
-- tell so at the end.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
redis.call('ZADD', KEYS[1], string.format('%.3f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.3f', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf')
