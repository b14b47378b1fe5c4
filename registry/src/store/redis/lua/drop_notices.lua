-- Drops queues of a webhook, and all that is dead.
-- KEYS: index, counts, due, since, attempts, dead, deaths; the queues
-- ARGV: webhook; the id of each queue
-- Returns 1 if more is owed, else 0.
local webhook = ARGV[1]
redis.call('UNLINK', KEYS[6], KEYS[7])
for at = 2, #ARGV do
  redis.call('HINCRBY', KEYS[2], webhook, -redis.call('LLEN', KEYS[6 + at]))
  redis.call('UNLINK', KEYS[6 + at])
  redis.call('ZREM', KEYS[3], ARGV[at])
  redis.call('ZREM', KEYS[4], ARGV[at])
  redis.call('HDEL', KEYS[5], ARGV[at])
end
reindex(KEYS[1], KEYS[3], webhook)
if redis.call('ZCARD', KEYS[3]) > 0 then return 1 end
redis.call('HDEL', KEYS[2], webhook)
return 0
