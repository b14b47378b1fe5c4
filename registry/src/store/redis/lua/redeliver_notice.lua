-- Makes a dead notice the head of its queue.
-- KEYS: index, counts, due, since, queue, attempts, dead, deaths, the call's outcome
-- ARGV: name of the dead notice, webhook, id, now, the notice
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local name, webhook, id, now, notice = unpack(ARGV)
local outcome = earlier(KEYS[9])
if outcome then return outcome end
local was_there = redis.call('HDEL', KEYS[7], name)
if was_there == 1 then
  redis.call('ZREM', KEYS[8], name)
  redis.call('LPUSH', KEYS[5], notice)
  redis.call('HDEL', KEYS[6], id)
  redis.call('HINCRBY', KEYS[2], webhook, 1)
  redis.call('ZADD', KEYS[3], now, id)
  redis.call('ZADD', KEYS[4], now, id)
  reindex(KEYS[1], KEYS[3], webhook)
end
return remember(KEYS[9], was_there)
