-- Keeps a schedule, or forgets it, if the one that is stored has the version that the caller knows.
-- KEYS: schedules, versions, due, names of the tenant, the call's outcome
-- ARGV: name, known version or '', next version, schedule or '', score or ''
-- Returns 1, or 0 if the version is another; the same answer again for the same call.
local name = ARGV[1]
local outcome = earlier(KEYS[5])
if outcome then return outcome end
if (redis.call('HGET', KEYS[2], name) or '') ~= ARGV[2] then return remember(KEYS[5], 0) end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], name)
  redis.call('HDEL', KEYS[2], name)
  redis.call('ZREM', KEYS[4], name)
else
  redis.call('HSET', KEYS[1], name, ARGV[4])
  redis.call('HSET', KEYS[2], name, ARGV[3])
  redis.call('ZADD', KEYS[4], 0, name)
end
if ARGV[5] == '' then redis.call('ZREM', KEYS[3], name)
else redis.call('ZADD', KEYS[3], ARGV[5], name) end
return remember(KEYS[5], 1)
